"""The bytes of tokens, joined, are the text that the tokenizer decodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_detokenizer import TEXTS, TOKENIZERS

DROPS_FIRST_SPACE = ("sentencepiece", "metaspace")


@pytest.mark.parametrize("name", ["bytes", "byte-level"])
@given(data=st.data())
def test_of_any_ids_where_tokens_are_bytes(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = data.draw(st.lists(st.integers(min_value=0, max_value=tokenizer.vocabulary_size + 2), max_size=60))
    joined = b"".join(map(tokenizer.token_bytes, ids))
    assert joined.decode(errors="replace") == tokenizer.decode(ids)


@pytest.mark.parametrize("name", ["bytes", "byte-level", "sentencepiece"])
@given(text=TEXTS)
def test_of_the_tokens_of_a_text(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    ids = tokenizer.encode(text)
    joined = b"".join(map(tokenizer.token_bytes, ids)).decode(errors="replace")
    assert (joined.removeprefix(" ") if name == "sentencepiece" else joined) == tokenizer.decode(ids)


@pytest.mark.parametrize("name", DROPS_FIRST_SPACE)
@given(data=st.data())
def test_of_any_ids_that_are_whole_characters(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    whole = [i for i in range(tokenizer.vocabulary_size + 2) if not tokenizer.is_unsettled(i)]
    ids = data.draw(st.lists(st.sampled_from(whole), max_size=40))
    joined = b"".join(map(tokenizer.token_bytes, ids)).decode(errors="replace")
    assert joined.removeprefix(" ") == tokenizer.decode(ids)
