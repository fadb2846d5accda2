"""The shelf of tokenizers."""

from __future__ import annotations

import pytest

from models.errors import TokenizerNotFoundError
from streams.tokenizers import TokenizerShelf
from tests.unit.streams.samples import model


def test_models_with_the_same_tokenizer_share_it() -> None:
    shelf = TokenizerShelf()

    assert shelf.get(model("chat@v1")) is shelf.get(model("chat@v2"))


def test_a_tokenizer_that_is_not_there_is_looked_for_again() -> None:
    shelf = TokenizerShelf()

    for _ in range(2):
        with pytest.raises(TokenizerNotFoundError):
            shelf.get(model("chat@v1", tokenizer="/nowhere"))
