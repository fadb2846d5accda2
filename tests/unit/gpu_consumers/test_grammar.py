"""Guided output by itself: which tokens a schema allows, and what happens where there are none."""

from __future__ import annotations

import gc
import json
import re
import threading
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import pytest

from gpu_consumers.grammar import GrammarCompiler, Matcher
from models.tokenizer import ByteTokenizer, DirectoryTokenizer, Tokenizer
from tests.property.test_detokenizer import sentencepiece_like
from tests.tiny_model import EOS_TOKEN, SPECIAL_TOKENS, tiny_tokenizer

PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
EOS = SPECIAL_TOKENS.index(EOS_TOKEN)


@pytest.fixture
def compiler() -> Iterator[GrammarCompiler]:
    tokenizer = DirectoryTokenizer(tiny_tokenizer())
    compiler = GrammarCompiler(tokenizer, vocabulary_size=tokenizer.vocabulary_size + 5, eos_token_ids={EOS})
    yield compiler
    compiler.close()


def ids_of(mask: bytes) -> set[int]:
    return {8 * place + bit for place, byte in enumerate(mask) for bit in range(8) if byte >> bit & 1}


def allowed(matcher: Matcher) -> set[int]:
    return ids_of(matcher.allowed())


def reading(compiler: GrammarCompiler, schema: dict[str, Any], text: str) -> Matcher:
    matcher = compiler.grammar(json.dumps(schema)).matcher()
    matcher.read(tiny_tokenizer().encode(text).ids)
    return matcher


def test_a_text_that_obeys_is_read_to_its_end_and_then_only_the_end_may_follow(compiler: GrammarCompiler) -> None:
    matcher = reading(compiler, PERSON, "")
    for token_id in tiny_tokenizer().encode('{"name": "Zoë 🌊", "age": 41}').ids:
        mask = allowed(matcher)
        assert token_id in mask
        assert EOS not in mask
        matcher.read([token_id])
    assert allowed(matcher) == {EOS}
    assert matcher.may_end


def test_the_end_is_allowed_where_the_text_may_end_and_go_on(compiler: GrammarCompiler) -> None:
    matcher = reading(compiler, {"type": "integer"}, "12")
    mask = allowed(matcher)
    assert EOS in mask
    assert tiny_tokenizer().encode("3").ids[0] in mask


def test_every_token_that_begins_what_may_follow_is_allowed(compiler: GrammarCompiler) -> None:
    tokenizer = DirectoryTokenizer(tiny_tokenizer())
    all_bytes = {i: tokenizer.token_bytes(i) for i in range(tokenizer.vocabulary_size)}
    text = max((b.decode() for b in all_bytes.values() if b.isalpha()), key=len) + " follows"
    beginnings = {i for i, token in all_bytes.items() if token and text.encode().startswith(token)}
    assert len(beginnings) > 1
    assert allowed(reading(compiler, {"const": text}, '"')) == beginnings


def test_tokens_that_the_tokenizer_does_not_know_and_special_ones_are_never_allowed(compiler: GrammarCompiler) -> None:
    tokenizer = tiny_tokenizer()
    inside = allowed(reading(compiler, {"type": "string"}, '"a'))
    assert inside
    assert max(inside) < tokenizer.get_vocab_size()
    assert not inside & {0, EOS}


@pytest.mark.parametrize(
    ("name", "tokenizer"), [("bytes", ByteTokenizer()), ("pieces", DirectoryTokenizer(sentencepiece_like()))]
)
def test_any_alphabet_will_do(name: str, tokenizer: Tokenizer) -> None:
    compiler = GrammarCompiler(tokenizer, vocabulary_size=tokenizer.vocabulary_size, eos_token_ids={2})
    matcher = compiler.grammar(json.dumps({"enum": ["a b", "é"]})).matcher()
    for byte in '"é"'.encode():
        token_id = byte if name == "bytes" else 3 + byte
        assert token_id in allowed(matcher)
        matcher.read([token_id])
    assert allowed(matcher) == {2}
    compiler.close()


def test_white_space_can_not_go_on_for_ever(compiler: GrammarCompiler) -> None:
    matcher = reading(compiler, PERSON, "{")
    space = tiny_tokenizer().encode(" ").ids
    read = 0
    while set(space) <= allowed(matcher):
        matcher.read(space)
        read += 1
        assert read < 100
    assert read == 8
    assert not matcher.failure


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ('{"type": "objec"}', "Invalid type: objec"),
        ('{"not": {}}', "Unimplemented keys"),
        ('{"type": "string", "pattern": "(?=a)b"}', "look-around"),
        ("[1]", "must be a JSON object"),
        ("{", "it is no JSON"),
    ],
)
def test_a_schema_that_can_not_be_compiled_has_a_reason_in_one_line(
    compiler: GrammarCompiler, schema: str, reason: str
) -> None:
    refusal = compiler.grammar(schema).refusal
    assert refusal is not None
    assert reason in refusal
    assert "\n" not in refusal
    assert "%json" not in refusal
    with pytest.raises(ValueError, match=re.escape(refusal)):
        compiler.grammar(schema).matcher()


def test_a_model_without_an_end_can_not_be_guided() -> None:
    compiler = GrammarCompiler(ByteTokenizer(), vocabulary_size=256, eos_token_ids=())
    assert "no token that ends an answer" in str(compiler.grammar('{"type": "object"}').refusal)
    compiler.close()


def test_a_text_that_strays_fails_and_allows_nothing(compiler: GrammarCompiler) -> None:
    matcher = reading(compiler, PERSON, "[")
    assert matcher.failure
    assert matcher.allowed() == b""
    assert not matcher.may_end


def test_a_schema_that_leaves_nothing_to_say_is_refused(compiler: GrammarCompiler) -> None:
    assert compiler.grammar('{"$ref": "#"}').refusal is not None
    assert "Unsatisfiable" in str(compiler.grammar('{"type": "integer", "minimum": 5, "maximum": 1}').refusal)


def test_two_answers_of_one_grammar_do_not_touch_each_other(compiler: GrammarCompiler) -> None:
    first, second = reading(compiler, PERSON, '{"name'), reading(compiler, PERSON, "{")
    assert allowed(first) != allowed(second)
    first.read(tiny_tokenizer().encode("x").ids)
    assert first.failure
    assert second.failure is None


def test_what_was_prepared_is_there_at_once_and_told_once(compiler: GrammarCompiler) -> None:
    told: list[str | None] = []
    ready = threading.Event()

    def tell(refusal: str | None) -> None:
        told.append(refusal)
        ready.set()

    kept = compiler.prepare(json.dumps(PERSON), tell)
    assert ready.wait(10)
    assert told == [None]
    again = compiler.prepare(json.dumps(PERSON), told.append)
    assert again is kept, "the same grammar"
    assert told == [None, None], "and no waiting"
    bad = threading.Event()
    compiler.prepare('{"type": "objec"}', lambda refusal: bad.set() if refusal else None)
    assert bad.wait(10)


def test_who_asks_is_told_when_compiling_breaks(compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(json_schema: str) -> str:
        raise RuntimeError("out of its mind")

    monkeypatch.setattr("gpu_consumers.grammar.grammar_of", broken)
    told: SimpleQueue[str | None] = SimpleQueue()
    kept = compiler.prepare(json.dumps(PERSON), told.put)
    assert told.get(timeout=10) == "compiling it failed with RuntimeError"
    assert compiler.prepare(json.dumps(PERSON), told.put) is kept
    assert told.get(timeout=10) == "compiling it failed with RuntimeError"


def test_what_is_in_use_is_kept_whatever_else_is_compiled(compiler: GrammarCompiler) -> None:
    kept = compiler.prepare(json.dumps(PERSON), lambda _: None)
    others = [compiler.grammar(json.dumps({"const": number})) for number in range(40)]
    gc.collect()
    assert compiler.prepare(json.dumps(PERSON), lambda _: None) is kept
    assert compiler.grammar(json.dumps({"const": 39})) is others[39]
    assert compiler.grammar(json.dumps({"const": 0})) is not others[0], "nobody waits for it"


def test_closing_drops_what_is_not_compiled_yet() -> None:
    compiler = GrammarCompiler(ByteTokenizer(), vocabulary_size=257, eos_token_ids={256})
    told: list[str | None] = []
    hard = {"allOf": [{"type": "string", "pattern": f".*{i}.*"} for i in range(9)]}
    kept = [compiler.prepare(json.dumps(hard | {"title": str(number)}), told.append) for number in range(50)]
    compiler.close()
    assert len(told) < len(kept)
