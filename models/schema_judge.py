"""Is this JSON schema one that an answer can be held to? Judged in a process of its own, within time and memory.

Compiling a schema has no bound that its length would give: fifteen patterns in an `allOf` are 400 bytes and half a
minute, `{"multipleOf": 1000003}` is 300 MB. Neither a thread nor a coroutine can be stopped in it, a process can.
"""

from __future__ import annotations

import json
import resource
import select
import signal
import subprocess
import sys
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from models.errors import SchemaJudgeBusyError
from models.json_grammar import MAX_JSON_SCHEMA_BYTES, schema_objection

MEMORY_BYTES: Final = 1 << 30
_KEPT = 512
_START_SECONDS = 30.0
_WALL_FACTOR = 10  # what the processor time may become on a machine that has others to serve


@dataclass(frozen=True, slots=True)
class Judged:
    """objection: why no answer can be held to a schema; None if one can."""

    objection: str | None


class SchemaJudge:
    """Judges one schema at a time and remembers what it said lately. Safe to share between threads, which take turns.

    cpu_seconds: what one schema may take.
    """

    def __init__(self, *, cpu_seconds: float = 2.0) -> None:
        self._cpu_seconds = cpu_seconds
        self._process: subprocess.Popen[str] | None = None
        self._asking = threading.Lock()
        self._said: OrderedDict[str, Judged] = OrderedDict()
        self._remembering = threading.Lock()

    def remembered(self, json_schema: str) -> Judged | None:
        """What was said of this schema lately; None if it has to be asked about. At once, from any thread."""
        with self._remembering:
            judged = self._said.get(json_schema)
            if judged is not None:
                self._said.move_to_end(json_schema)
        return judged

    def objection(self, json_schema: str) -> str | None:
        """Why no answer can be held to it, None if one can. Blocks; raises SchemaJudgeBusyError."""
        judged = self.remembered(json_schema)
        if judged is not None:
            return judged.objection
        if len(json_schema) > MAX_JSON_SCHEMA_BYTES:
            return schema_objection(json_schema)  # at once, and not worth remembering
        with self._asking:
            reason = self._ask(json_schema)
        with self._remembering:
            self._said[json_schema] = Judged(reason)
            if len(self._said) > _KEPT:
                self._said.popitem(last=False)
        return reason

    def close(self) -> None:
        """End the process. A schema that it is asked about meanwhile is judged to take too long."""
        if (process := self._process) is not None:
            process.kill()
            with self._asking:
                self._end()

    def _ask(self, json_schema: str) -> str | None:
        process = self._running()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps(json_schema) + "\n")
            process.stdin.flush()
            in_time = select.select([process.stdout], [], [], self._cpu_seconds * _WALL_FACTOR)[0]
            answer = process.stdout.readline() if in_time else ""
        except OSError:  # it has just ended
            answer = ""
        if answer:
            reason: str | None = json.loads(answer)
            return reason
        self._end()
        return "compiling it takes more time or memory than there is for one schema; make it simpler"

    def _running(self) -> subprocess.Popen[str]:
        """The process, ready to be asked: a new one where there is none."""
        if self._process is not None and self._process.poll() is None:
            return self._process
        self._end()
        process = self._process = subprocess.Popen(
            [sys.executable, "-m", "models.schema_judge", str(self._cpu_seconds)],
            cwd=Path(__file__).resolve().parent.parent,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,  # Ctrl-C is ours to take: it ends when its input does
        )
        assert process.stdout is not None
        if not select.select([process.stdout], [], [], _START_SECONDS)[0] or process.stdout.readline() != "ready\n":
            self._end()
            raise SchemaJudgeBusyError("the process that checks JSON schemas did not start")
        return process

    def _end(self) -> None:
        if self._process is None:
            return
        self._process.kill()
        with suppress(BrokenPipeError), self._process:  # closes the pipes and waits
            pass
        self._process = None


def _judge(cpu_seconds: float) -> None:
    """The process: a schema a line in, the objection a line out, both as JSON.

    Its own timer ends it, in the middle of compiling and also when nobody is left who would: SIGPROF's default action.
    """
    with suppress(OSError, ValueError):  # a lower limit is set from outside, or this system has none
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    print("ready", flush=True)
    for line in sys.stdin:
        signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
        answer = json.dumps(schema_objection(json.loads(line)))
        signal.setitimer(signal.ITIMER_PROF, 0)
        print(answer, flush=True)


if __name__ == "__main__":
    _judge(float(sys.argv[1]))
