from collections.abc import Sequence

import pytest
import tokenizers
from tokenizers import decoders
from tokenizers.models import WordLevel

from models.detokenizer import IncrementalDetokenizer
from models.tokenizer import ByteTokenizer, DirectoryTokenizer
from tests.tiny_model import tiny_tokenizer


def pieces(detokenizer: IncrementalDetokenizer, ids: list[int]) -> list[str]:
    return [detokenizer.push(i) for i in ids]


def test_a_character_appears_whole_with_its_last_byte() -> None:
    tokenizer = ByteTokenizer()

    assert pieces(IncrementalDetokenizer(tokenizer), tokenizer.encode("a🌊é")) == [
        "a", "", "", "", "🌊", "", "é"
    ]  # fmt: skip


def test_broken_bytes_appear_as_soon_as_nothing_can_mend_them_and_the_rest_at_the_end() -> None:
    detokenizer = IncrementalDetokenizer(ByteTokenizer())

    assert pieces(detokenizer, [0xFF, 0xFF, 0xF0, 0x9F, 0x41]) == ["", "\ufffd", "\ufffd", "", "\ufffdA"]
    assert pieces(detokenizer, [0xE4, 0xBD]) == ["", ""]
    assert detokenizer.finish() == "\ufffd"
    assert detokenizer.finish() == ""
    assert detokenizer.text == "\ufffd\ufffd\ufffdA\ufffd"


def test_special_and_unknown_tokens_neither_show_nor_break_a_character() -> None:
    detokenizer = IncrementalDetokenizer(ByteTokenizer())

    assert pieces(detokenizer, [0xC3, ByteTokenizer.EOS, 999, 0xA9]) == ["", "", "", "é"]


def test_a_token_after_the_end_is_a_mistake_of_the_caller() -> None:
    detokenizer = IncrementalDetokenizer(ByteTokenizer())
    detokenizer.finish()

    with pytest.raises(RuntimeError, match="push after finish"):
        detokenizer.push(0x41)


def test_a_resumed_detokenizer_holds_back_what_the_first_one_held_back() -> None:
    ids = ByteTokenizer().encode("so: 你好")
    resumed = IncrementalDetokenizer.resumed(ByteTokenizer(), ids[:5])

    assert resumed.text == "so: "
    assert pieces(resumed, ids[5:]) == ["", "你", "", "", "好"]


class CountingTokenizer(DirectoryTokenizer):
    """Counts the tokens that it decodes."""

    decoded_tokens = 0

    def decode(self, token_ids: Sequence[int]) -> str:
        self.decoded_tokens += len(token_ids)
        return super().decode(token_ids)


@pytest.mark.parametrize("text", ["the river runs to the sea. ", "🌊", "\ufffd"])
def test_the_cost_of_a_token_does_not_grow_with_the_response(text: str) -> None:
    def cost(repeats: int) -> float:
        tokenizer = CountingTokenizer(tiny_tokenizer())
        ids = tokenizer.encode(text * repeats)
        pieces(IncrementalDetokenizer(tokenizer), ids)
        return tokenizer.decoded_tokens / len(ids)

    assert cost(500) <= 20
    assert cost(500) == pytest.approx(cost(100), rel=0.1)


def test_garbage_without_end_does_not_make_a_token_dearer() -> None:
    tokenizer = CountingTokenizer(tiny_tokenizer())
    broken = tiny_tokenizer().token_to_id("Ģ")  # how a byte-level vocabulary writes 0x80, never a first byte
    assert broken is not None
    detokenizer = IncrementalDetokenizer(tokenizer)
    for _ in range(2_000):
        detokenizer.push(broken)

    assert detokenizer.text + detokenizer.finish() == "\ufffd" * 2_000
    assert tokenizer.decoded_tokens / 2_000 <= 20


def test_tokens_without_text_do_not_make_the_next_word_the_first() -> None:
    """A decoder drops the space before the first word; a window must not begin where it would do so again."""
    tokenizer = tokenizers.Tokenizer(WordLevel({"": 0, "▁a": 1, "?": 2}, unk_token="?"))
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    ids = [1, *[0] * 40, 1]

    assert "".join(pieces(IncrementalDetokenizer(DirectoryTokenizer(tokenizer)), ids)) == "a a"
