"""Stop strings, end of sequence and limits against a reference that has the whole text before it."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from gpu_consumers.output import Output, OutputLimits, StopStrings
from models.tokenizer import ByteTokenizer

# Few letters, so that stop strings overlap with themselves, with each other, and with the text.
TEXT = st.text("abé", max_size=12)
STOPS = st.lists(st.text("abé", min_size=1, max_size=4), max_size=4).map(tuple)
EOS = ByteTokenizer.EOS


def cut(text: str, stops: tuple[str, ...]) -> tuple[str, bool]:
    """The text before the stop string that is whole first (the longest, if several are), and whether there is one."""
    for end in range(1, len(text) + 1):
        whole = [stop for stop in stops if text[:end].endswith(stop)]
        if whole:
            return text[: end - max(map(len, whole))], True
    return text, False


@given(pieces=st.lists(TEXT), stops=STOPS)
@example(pieces=["ab", "ab", "a"], stops=("aba", "b"))
@example(pieces=["abéa"], stops=("abéa", "bé"))
@example(pieces=["abé"], stops=("abé", "bé"))
def test_text_in_any_pieces_is_cut_where_the_whole_text_would_be(pieces: list[str], stops: tuple[str, ...]) -> None:
    stop = StopStrings(stops)
    given_out = "".join(stop.push(piece) for piece in pieces)
    expected, found = cut("".join(pieces), stops)
    assert stop.found == found
    assert given_out + stop.finish() == expected


@given(pieces=st.lists(TEXT), stops=STOPS)
def test_only_what_may_become_a_stop_string_is_held_back(pieces: list[str], stops: tuple[str, ...]) -> None:
    stop = StopStrings(stops)
    given_out = "".join(stop.push(piece) for piece in pieces)
    if not stop.found:
        held = "".join(pieces)[len(given_out) :]
        assert not held or any(beginning.startswith(held) for beginning in stops)


@given(text=TEXT, stops=STOPS, max_tokens=st.integers(1, 30), eos_at=st.none() | st.integers(0, 25))
def test_an_answer_token_by_token_is_the_answer_as_a_whole(
    text: str, stops: tuple[str, ...], max_tokens: int, eos_at: int | None
) -> None:
    tokens = list(text.encode())
    if eos_at is not None:
        tokens.insert(eos_at, EOS)
    output = Output(ByteTokenizer(), OutputLimits(max_tokens, frozenset({EOS}), stops))
    pieces = []
    for token in tokens:
        pieces.append(output.push(token))
        assert output.text_chars == sum(map(len, pieces))
        if output.finish_reason:
            break
    if output.finish_reason is None:
        assert output.token_count == len(tokens) < max_tokens
        return
    made = tokens[: output.token_count]
    expected, found = cut(ByteTokenizer().decode(made), stops)
    assert "".join(pieces) == expected
    ends_with_eos = made[-1] == EOS
    assert output.finish_reason == ("stop" if found or ends_with_eos else "length")
    assert EOS not in made[:-1]
    assert output.token_count <= max_tokens
    # it ended no later than it had to
    assert not cut(ByteTokenizer().decode(made[:-1]), stops)[1]


@given(text=TEXT, stops=STOPS, max_tokens=st.integers(1, 30), at=st.integers(0, 30))
def test_an_output_resumed_anywhere_goes_on_as_if_it_had_not_stopped(
    text: str, stops: tuple[str, ...], max_tokens: int, at: int
) -> None:
    limits = OutputLimits(max_tokens, frozenset({EOS}), stops)
    tokens = [*text.encode(), EOS]
    whole = Output(ByteTokenizer(), limits)
    pieces = []
    for token in tokens:
        pieces.append(whole.push(token))
        if whole.finish_reason:
            break
    made = tokens[: len(pieces)]
    resumed, before = Output.resumed(ByteTokenizer(), limits, made[:at])
    assert before == "".join(pieces[:at])
    after = [resumed.push(token) for token in made[at:]]
    assert after == pieces[at:]
    assert (resumed.finish_reason, resumed.token_count, resumed.text_chars) == (
        whole.finish_reason,
        whole.token_count,
        whole.text_chars,
    )
