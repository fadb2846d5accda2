"""Incremental detokenization equals decoding the whole, for any ids, wherever it was interrupted."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, normalizers
from tokenizers.models import BPE, WordPiece

from models.detokenizer import IncrementalDetokenizer
from models.tokenizer import ByteTokenizer, DirectoryTokenizer, Tokenizer
from tests.tiny_model import tiny_tokenizer

TEXTS = st.text(alphabet=st.sampled_from("ab é你🌊👩\u200d\ufffd\n▁"), max_size=40)


def sentencepiece_like() -> tokenizers.Tokenizer:
    """Llama 2's layout: `▁` for spaces, bytes as a fallback, the first space dropped by the decoder."""
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens += ["▁", "▁▁", "a", "b", "▁a", "▁ab", "ab", "é", "\ufffd"]
    merges = [("▁", "▁"), ("a", "b"), ("▁", "a"), ("▁a", "b")]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = tokenizers.Tokenizer(BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def metaspace_like() -> tokenizers.Tokenizer:
    tokens = ["<unk>", "▁", "a", "b", "▁a", "▁ab", "é", "你", "🌊"]
    tokenizer = tokenizers.Tokenizer(
        BPE({token: i for i, token in enumerate(tokens)}, [("▁", "a"), ("▁a", "b")][:1], unk_token="<unk>")
    )
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def wordpiece_like() -> tokenizers.Tokenizer:
    tokens = ["[UNK]", "a", "##b", "b", "##a", ",", ".", "'", "s", "n't", "é"]
    tokenizer = tokenizers.Tokenizer(WordPiece({token: i for i, token in enumerate(tokens)}))
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


TOKENIZERS: dict[str, Tokenizer] = {
    "bytes": ByteTokenizer(),
    "byte-level": DirectoryTokenizer(tiny_tokenizer()),
    "sentencepiece": DirectoryTokenizer(sentencepiece_like()),
    "metaspace": DirectoryTokenizer(metaspace_like()),
    "wordpiece": DirectoryTokenizer(wordpiece_like()),
}

each_tokenizer = pytest.mark.parametrize("name", TOKENIZERS)


def random_ids(data: st.DataObject, tokenizer: Tokenizer) -> list[int]:
    """Any ids: a few past the vocabulary, long runs of few ids (which is where windows go wrong)."""
    ids = st.integers(min_value=0, max_value=tokenizer.vocabulary_size + 2)
    few = st.lists(ids, min_size=1, max_size=4).flatmap(lambda some: st.lists(st.sampled_from(some), max_size=60))
    return data.draw(st.one_of(st.lists(ids, max_size=60), few))


@each_tokenizer
@given(data=st.data())
def test_the_pieces_of_random_ids_are_the_decoded_whole(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = random_ids(data, tokenizer)
    detokenizer = IncrementalDetokenizer(tokenizer)
    whole = tokenizer.decode(ids)

    so_far = ""
    for token_id in ids:
        so_far += detokenizer.push(token_id)
        assert whole.startswith(so_far)
        assert detokenizer.text == so_far
    assert so_far + detokenizer.finish() == whole


@each_tokenizer
@given(data=st.data())
def test_a_resumed_detokenizer_goes_on_as_the_uninterrupted_one(name: str, data: st.DataObject) -> None:
    tokenizer = TOKENIZERS[name]
    ids = random_ids(data, tokenizer)
    cut = data.draw(st.integers(min_value=0, max_value=len(ids)))
    uninterrupted = IncrementalDetokenizer(tokenizer)
    before = "".join(uninterrupted.push(i) for i in ids[:cut])

    resumed = IncrementalDetokenizer.resumed(tokenizer, ids[:cut])

    assert resumed.text == before
    assert [resumed.push(i) for i in ids[cut:]] == [uninterrupted.push(i) for i in ids[cut:]]
    assert resumed.finish() == uninterrupted.finish()


@pytest.mark.parametrize("name", ["bytes", "byte-level", "sentencepiece"])
@given(text=TEXTS)
def test_a_text_streams_back_without_a_broken_character(name: str, text: str) -> None:
    tokenizer = TOKENIZERS[name]
    detokenizer = IncrementalDetokenizer(tokenizer)
    pieces = [*map(detokenizer.push, tokenizer.encode(text)), detokenizer.finish()]

    expected = text.replace("▁", " ") if name == "sentencepiece" else text
    assert "".join(pieces) == expected
    assert sum(piece.count("\ufffd") for piece in pieces) == text.count("\ufffd")
