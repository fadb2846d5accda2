from __future__ import annotations

from pathlib import Path

import pytest

from infra.contender import Contender, contender
from infra.errors import ContenderInvalid


def test_a_dtype_may_follow_the_name() -> None:
    assert contender("chat@v1:float16", "bfloat16") == Contender("chat@v1", "float16")
    assert contender("chat@v1", "bfloat16") == Contender("chat@v1", "bfloat16")


def test_a_directory_is_called_by_its_last_part_and_may_have_a_colon(tmp_path: Path) -> None:
    assert contender("/models/chat/:float32", "bfloat16").label == "chat:float32"
    strange = tmp_path / "a:b"
    strange.mkdir()
    assert contender(str(strange), "float32") == Contender(str(strange), "float32")
    assert contender(f"{strange}:float16", "float32") == Contender(str(strange), "float16")


@pytest.mark.parametrize("written", ["chat:int3", "chat:", ":float32", "http://x"])
def test_a_suffix_that_is_none_is_named(written: str) -> None:
    with pytest.raises(ContenderInvalid, match="write a model as NAME or NAME:DTYPE"):
        contender(written, "bfloat16")
