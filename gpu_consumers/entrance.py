"""What stands between a work order and the scheduler: its JSON schema is compiled, then its LoRA adapter is brought.

Neither is done within a step, nobody waits for who needs neither, and who waits still has a deadline. Owned by the
engine loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from gpu_consumers.adapter_supply import AdapterSupply
from gpu_consumers.deadlines import Deadlines
from gpu_consumers.engine import Engine, PreparesSchemas
from gpu_consumers.generation import Failure
from gpu_consumers.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Entered:
    """Who waits here no longer. Sequences are as the engine is to run them; expired: past their deadline."""

    ready: tuple[Sequence, ...] = ()
    failed: Mapping[str, Failure] = field(default_factory=dict)
    expired: tuple[str, ...] = ()


class Entrance:
    """`submit`, then `turn` until it tells of the request; `leave` when the request ends, wherever it is by then."""

    def __init__(self, engine: Engine, adapters: AdapterSupply | None) -> None:
        """adapters: None for an engine that runs none."""
        self._engine = engine
        self._adapters = adapters
        self._sequences: dict[str, Sequence] = {}  # of those that wait, or failed since the newest turn
        self._compiled: dict[str, object] = {}  # keeps what was compiled of a schema until its request ends
        self._deadlines = Deadlines()  # of those whose schema is compiled; the adapters' know of the others
        self._ready: dict[str, Sequence] = {}
        self._failed: dict[str, Failure] = {}

    @property
    def waiting_count(self) -> int:
        return len(self._sequences)

    def submit(self, sequence: Sequence, now_us: int, compiled: Callable[[str | None], None]) -> None:
        """compiled: called on any thread when the sequence has a JSON schema and `schema_compiled` is due."""
        request_id, json_schema = sequence.request_id, sequence.sampling.json_schema
        self._sequences[request_id] = sequence
        if json_schema is not None and isinstance(self._engine, PreparesSchemas):
            self._deadlines.add(request_id, sequence.deadline_at_us)
            self._compiled[request_id] = self._engine.prepare_schema(json_schema, compiled)
        else:
            self._await_adapter(sequence, now_us)

    def schema_compiled(self, request_id: str, refusal: str | None, now_us: int) -> None:
        """Its schema is compiled, or can't be. Nothing for a request that left."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return
        self._deadlines.remove(request_id)
        if refusal is None:
            self._await_adapter(sequence, now_us)
        else:
            message = f"no answer can be held to this JSON schema: {refusal}"
            self._failed[request_id] = Failure(400, "invalid_request_error", "invalid_json_schema", message)

    def turn(self, now_us: int) -> Entered:
        """Between two steps; short. A sequence with an adapter gets the key of the weights that it is to run with."""
        ready = list(self._ready.values())
        failed = dict(self._failed)
        expired = self._deadlines.past(now_us)
        self._ready.clear()
        self._failed.clear()
        if self._adapters is not None:
            told = self._adapters.turn(now_us)
            ready += [replace(self._sequences.pop(name), adapter=key) for name, key in told.ready.items()]
            failed |= {request_id: _no_adapter(reason) for request_id, reason in told.failed.items()}
            expired += told.expired
        for request_id in (*failed, *expired):
            del self._sequences[request_id]
            self._deadlines.remove(request_id)
        return Entered(tuple(ready), failed, tuple(expired))

    def due_in(self, now_us: int) -> float:
        """Seconds until a turn has something to tell, if nothing happens; infinity for never."""
        if self._ready or self._failed:
            return 0.0
        at = self._deadlines.next_at_us
        due_in = float("inf") if at is None else max(0.0, (at - now_us) / 1e6)
        return due_in if self._adapters is None else min(due_in, self._adapters.due_in(now_us))

    def leave(self, request_id: str) -> None:
        """It ended, was cancelled or dropped."""
        self._sequences.pop(request_id, None)
        self._compiled.pop(request_id, None)
        self._deadlines.remove(request_id)
        self._failed.pop(request_id, None)
        self._ready.pop(request_id, None)
        if self._adapters is not None:
            self._adapters.leave(request_id)

    def close(self) -> None:
        if self._adapters is not None:
            self._adapters.close()

    def _await_adapter(self, sequence: Sequence, now_us: int) -> None:
        if sequence.adapter is None:
            self._ready[sequence.request_id] = self._sequences.pop(sequence.request_id)
        elif self._adapters is None:
            why = f"the {self._engine.info.name} engine of this worker runs no adapters"
            self._failed[sequence.request_id] = _no_adapter(why)
        else:
            self._adapters.submit(sequence, now_us)


def _no_adapter(reason: str) -> Failure:
    return Failure(422, "invalid_request_error", "adapter_unavailable", reason)
