"""What stands behind a schema id that nobody has told us: somebody is asked, within bounds.

Readers come here off the fast path: when another service writes with a schema that it has registered itself. Whatever
the schema registry does (slow, down, garbage), and whatever ids senders make up, the consumers of a process wait for
it a second or two in ten.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass

from eventlog.clock import monotonic
from schemas.catalog import AvroSchema
from schemas.codec import Lookup
from schemas.errors import ContractError, SchemaRegistryUnavailable

Answer = AvroSchema | ContractError
_ANSWERS = 1_024


@dataclass(frozen=True, slots=True)
class LookupPolicy:
    """How long is waited, and how long not asked.

    wait_s: longest that a caller waits for an answer. The question goes on behind it, and a late answer is kept.
    closed_s: so long nothing is asked after a failure, or after more than `budget_s` of waiting in as long.
    remembered_s: so long an answer is believed, be it that there is no such schema.
    """

    wait_s: float = 1.0
    closed_s: float = 10.0
    budget_s: float = 1.0
    remembered_s: float = 30.0


class LookupGate:
    """Whether the registry may be asked now. Pure: `now` is passed in, in seconds."""

    def __init__(self, policy: LookupPolicy) -> None:
        self._policy = policy
        self._window_began = float("-inf")
        self._waited_s = 0.0
        self._closed_until = float("-inf")
        self._why = ""

    def refusal(self, now: float) -> str | None:
        """Why nothing is asked now; None: ask."""
        return (
            f"{self._why}; not asked again for {self._closed_until - now:.1f} s" if now < self._closed_until else None
        )

    def failed(self, now: float, why: str) -> None:
        self._closed_until = now + self._policy.closed_s
        self._why = why

    def waited(self, now: float, seconds: float) -> None:
        """An answer came after so long. Unknown ids one after the other must not hold a consumer up either."""
        if now - self._window_began > self._policy.closed_s:
            self._window_began, self._waited_s = now, 0.0
        self._waited_s += seconds
        if self._waited_s > self._policy.budget_s:
            self._closed_until = self._window_began + self._policy.closed_s
            self._why = f"look-ups of schema ids took {self._waited_s:.1f} s"


class SchemaLookup:
    """A codec's `Lookup` around a slower one, `ask`, which runs on threads of its own: one for each id at a time.

    Threads may share it.
    """

    def __init__(
        self, ask: Lookup, policy: LookupPolicy | None = None, *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._ask = ask
        self._policy = policy or LookupPolicy()
        self._clock = clock
        self._gate = LookupGate(self._policy)
        self._lock = threading.Lock()
        self._asking: dict[int, Future[Answer]] = {}
        self._answers: OrderedDict[int, tuple[float, Answer]] = OrderedDict()

    def __call__(self, schema_id: int) -> AvroSchema:
        """The schema behind this id, within `wait_s`.

        Raises UnknownSchema, UnusableSchema, and SchemaRegistryUnavailable: the registry fails, or was not asked.
        """
        now = self._clock()
        with self._lock:
            answer = self._remembered(schema_id, now)
            if answer is None:
                if (why := self._gate.refusal(now)) is not None:
                    raise _unavailable(schema_id, why)
                question = self._asking.get(schema_id) or self._begin(schema_id)
        if answer is None:
            answer = self._wait_for(question, schema_id, now)
        if isinstance(answer, SchemaRegistryUnavailable):
            raise _unavailable(schema_id, str(answer))
        if isinstance(answer, ContractError):
            raise answer.with_traceback(None)  # else it grows each time
        return answer

    def _remembered(self, schema_id: int, now: float) -> Answer | None:
        until, answer = self._answers.get(schema_id, (now, None))
        return answer if now < until else None

    def _begin(self, schema_id: int) -> Future[Answer]:
        question: Future[Answer] = Future()
        self._asking[schema_id] = question
        threading.Thread(
            target=self._run, args=(schema_id, question), name=f"schema-id-{schema_id}", daemon=True
        ).start()  # fmt: skip
        return question

    def _run(self, schema_id: int, question: Future[Answer]) -> None:
        answer: Answer
        try:
            answer = self._ask(schema_id)
        except ContractError as error:
            answer = error
        except Exception as error:  # whatever it is, it must not end a consumer
            answer = SchemaRegistryUnavailable(f"{type(error).__name__}: {error}")
        with self._lock:
            del self._asking[schema_id]
            if not isinstance(answer, SchemaRegistryUnavailable):
                self._answers[schema_id] = (self._clock() + self._policy.remembered_s, answer)
                self._answers.move_to_end(schema_id)
                if len(self._answers) > _ANSWERS:
                    self._answers.popitem(last=False)
        question.set_result(answer)

    def _wait_for(self, question: Future[Answer], schema_id: int, began: float) -> Answer:
        try:
            answer = question.result(self._policy.wait_s)
        except TimeoutError:
            answer = SchemaRegistryUnavailable(f"no answer within {self._policy.wait_s:g} s")
        now = self._clock()
        with self._lock:
            if isinstance(answer, SchemaRegistryUnavailable):
                self._gate.failed(now, str(answer))
            else:
                self._gate.waited(now, now - began)
        return answer


def _unavailable(schema_id: int, why: str) -> SchemaRegistryUnavailable:
    return SchemaRegistryUnavailable(f"the schema id {schema_id} is not known here: {why}", schema_id=schema_id)
