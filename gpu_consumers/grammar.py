"""Guided output: a JSON schema, compiled once for an engine's vocabulary, says in each step which tokens may follow.

Compiling takes from half a millisecond to seconds, so it has threads of its own and is asked for (`prepare`) when a
request arrives, long before its sequence gets a slot. What stands between is a set of allowed tokens for each step,
which is a function of the tokens read so far alone: a sequence that goes on elsewhere is held to the same text.
"""

from __future__ import annotations

import json
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final
from weakref import WeakValueDictionary

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

from models.errors import JsonSchemaInvalidError
from models.json_grammar import grammar_of, parser_limits
from models.tokenizer import Tokenizer

log = logging.getLogger("headrace.worker")

_THREADS: Final = 2
_KEPT: Final = 32
"""Grammars kept for those who come next with the same schema; what is in use is kept besides."""

_REASON_CHARS: Final = 300
# Unforced: of the tokens that may follow the model takes the one that it wants. llguidance would otherwise force, where
# only one text can follow, the tokens of that text, and ask a tokenizer to cut it; not every tokenizer cuts the middle
# of a text as it would a text of its own.
_RULES: Final = '%llguidance {"no_forcing": true}\nstart: %json '
_RULES_SHOWN: Final = "\n   1 | %llguidance"
_PLACE_IN_RULES: Final = "at 2(8): failed to compile JSON schema: "


class Matcher:
    """One answer while it is made. A token that the grammar does not allow, or none that it allows, is its end."""

    __slots__ = ("_matcher",)

    def __init__(self, matcher: LLMatcher) -> None:
        self._matcher = matcher

    def read(self, token_ids: Sequence[int]) -> None:
        """These are the next tokens of the answer."""
        self._matcher.consume_tokens(list(token_ids))

    def allowed(self) -> bytes:
        """The tokens that may follow, one bit for each id, the lowest bit first: at least vocabulary / 8 bytes.

        End-of-sequence is among them exactly where the answer may end. Empty after a failure.
        """
        mask = b"" if self._matcher.is_error() else self._matcher.compute_bitmask()
        return b"" if self._matcher.is_error() else mask

    @property
    def failure(self) -> str | None:
        """Why the answer can't go on."""
        return _error(self._matcher)

    @property
    def may_end(self) -> bool:
        """Whether what was read is whole as it is."""
        return not self._matcher.is_error() and self._matcher.is_accepting()


class Grammar:
    """A compiled schema, or the reason why there is none. Made on one thread, used on another."""

    __slots__ = ("__weakref__", "_start", "refusal")

    def __init__(self, start: LLMatcher | str) -> None:
        """start: a matcher that has read nothing, or a reason."""
        self._start = start
        self.refusal: Final = start if isinstance(start, str) else None

    def matcher(self) -> Matcher:
        """For an answer from its first token on. Raises ValueError where there is a refusal."""
        if isinstance(self._start, str):
            raise ValueError(self._start)
        return Matcher(self._start.deep_copy())


class GrammarCompiler:
    """Owned by the thread of the engine: only that may call it. Compiling itself goes on on others."""

    def __init__(self, tokenizer: Tokenizer, *, vocabulary_size: int, eos_token_ids: Iterable[int]) -> None:
        """vocabulary_size: of the model, whose last ids may be ones that the tokenizer doesn't know."""
        self._eos_token_ids = sorted(eos_token_ids)
        words = _Words([tokenizer.token_bytes(i) for i in range(vocabulary_size)], self._eos_token_ids)
        self._tokenizer = LLTokenizer(
            TokenizerWrapper(words), eos_token=self._eos_token_ids or None, slices=LLTokenizer.json_slices()
        )
        self._executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="grammar")
        self._recent: OrderedDict[str, Future[Grammar]] = OrderedDict()
        self._in_use: WeakValueDictionary[str, Future[Grammar]] = WeakValueDictionary()

    def prepare(self, json_schema: str, ready: Callable[[str | None], None]) -> object:
        """Compile it. `ready`, once: None, or why it can't be done; before this returns, or on another thread.

        The grammar is there for `grammar` as long as what is returned is kept.
        """

        def done(future: Future[Grammar]) -> None:
            if not future.cancelled():  # by `close`: nobody waits any more
                ready(future.result().refusal)

        future = self._compiled(json_schema)
        future.add_done_callback(done)
        return future

    def grammar(self, json_schema: str) -> Grammar:
        """At once if it was prepared; otherwise it is waited for."""
        return self._compiled(json_schema).result()

    def close(self) -> None:
        """What is not being compiled yet never will be."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _compiled(self, json_schema: str) -> Future[Grammar]:
        future = self._in_use.get(json_schema)
        if future is None:
            future = self._in_use[json_schema] = self._executor.submit(self._compile, json_schema)
        self._recent[json_schema] = future
        self._recent.move_to_end(json_schema)
        if len(self._recent) > _KEPT:
            self._recent.popitem(last=False)
        return future

    def _compile(self, json_schema: str) -> Grammar:
        """On a thread of the executor. Whatever goes wrong is a refusal: who waits is told, and fails alone."""
        try:
            return self._made(json_schema)
        except Exception as error:
            log.exception("a JSON schema can't be compiled")
            return Grammar(f"compiling it failed with {type(error).__name__}")

    def _made(self, json_schema: str) -> Grammar:
        if not self._eos_token_ids:
            return Grammar("the model has no token that ends an answer, so none can end where its JSON schema does")
        try:
            rules = _unforced(grammar_of(json_schema))
        except JsonSchemaInvalidError as error:
            return Grammar(str(error))
        matcher = LLMatcher(self._tokenizer, rules, log_level=0, limits=parser_limits())
        if (reason := _error(matcher)) is not None:
            return Grammar(reason)
        # The first mask builds the states of the grammar's beginning, which all its copies share.
        matcher.compute_bitmask()
        return Grammar(_error(matcher) or matcher)


class _Words:
    """A vocabulary, in the shape that llguidance takes one."""

    bos_token_id = None

    def __init__(self, tokens: list[bytes], eos_token_ids: Sequence[int]) -> None:
        self.tokens = tokens
        self.eos_token_id = eos_token_ids[0] if eos_token_ids else 0
        self.special_token_ids: list[int] = []  # they have no bytes, and so no place in any text

    def __call__(self, text: bytes) -> list[int]:
        """llguidance tries whether this takes bytes. It cuts texts to force them, which our grammars don't."""
        return []


def _unforced(grammar: str) -> str:
    """The same grammar without forced tokens."""
    [only] = json.loads(grammar)["grammars"]
    return _RULES + json.dumps(only["json_schema"])


def _error(matcher: LLMatcher) -> str | None:
    if not matcher.is_error():
        return None
    reason = matcher.get_error().partition(_RULES_SHOWN)[0].removeprefix(_PLACE_IN_RULES)
    return " ".join(reason.removesuffix("<non-verbose/>").split())[:_REASON_CHARS]
