import pytest

from gpu_consumers.output import Output, OutputLimits
from models.tokenizer import ByteTokenizer

EOS = ByteTokenizer.EOS


def output(max_tokens: int = 100, *stop: str) -> Output:
    return Output(ByteTokenizer(), OutputLimits(max_tokens, frozenset({EOS}), stop))


def push_all(answer: Output, text: str) -> list[str]:
    return [answer.push(token) for token in text.encode()]


def test_text_comes_with_the_token_that_completes_it() -> None:
    answer = output()
    assert push_all(answer, "aé!") == ["a", "", "é", "!"]
    assert (answer.token_count, answer.text_chars, answer.finish_reason) == (4, 3, None)


def test_end_of_sequence_is_counted_and_not_shown() -> None:
    answer = output()
    push_all(answer, "hi")
    assert answer.push(EOS) == ""
    assert (answer.finish_reason, answer.token_count, answer.text_chars) == ("stop", 3, 2)


def test_the_beginning_of_a_stop_string_waits_and_comes_out_when_it_is_none() -> None:
    answer = output(100, "END")
    assert push_all(answer, "xENE") == ["x", "", "", "EN"]
    assert push_all(answer, "ND") == ["", ""]
    assert (answer.finish_reason, answer.text_chars, answer.token_count) == ("stop", 3, 6)


def test_what_was_held_back_comes_with_the_last_token_of_a_full_answer() -> None:
    answer = output(4, "END!")
    assert push_all(answer, "xEND") == ["x", "", "", "END"]
    assert answer.finish_reason == "length"


def test_what_was_held_back_comes_with_the_end_of_sequence() -> None:
    answer = output(100, "END!")
    assert push_all(answer, "xEND") == ["x", "", "", ""]
    assert answer.push(EOS) == "END"
    assert answer.finish_reason == "stop"


def test_a_character_that_never_became_whole_is_shown_as_such() -> None:
    answer = output(1)
    assert answer.push(0xC3) == "\N{REPLACEMENT CHARACTER}"


def test_a_stop_string_at_the_last_token_is_a_stop() -> None:
    answer = output(3, "END")
    assert push_all(answer, "END") == ["", "", ""]
    assert answer.finish_reason == "stop"


def test_an_empty_stop_string_stops_nothing() -> None:
    answer = output(2, "")
    assert push_all(answer, "ab") == ["a", "b"]
    assert answer.finish_reason == "length"


def test_a_token_after_the_end_is_a_bug_of_the_caller() -> None:
    answer = output(1)
    answer.push(65)
    with pytest.raises(RuntimeError, match="after the answer ended with length"):
        answer.push(65)


def test_resumed_by_tokens_that_end_it_it_is_finished() -> None:
    answer, text = Output.resumed(ByteTokenizer(), OutputLimits(2), b"abc")
    assert (text, answer.finish_reason, answer.token_count) == ("ab", "length", 2)
