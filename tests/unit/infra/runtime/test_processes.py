"""Real processes under the supervisor: small programs that stand in for the parts, and a real embedded broker."""

# ruff: noqa: ASYNC110, ASYNC240 - other processes and small files are all that these tests look at

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from infra.errors import JavaMissing
from infra.runtime.broker import BrokerChoice, prepare_broker, wait_until_broker_answers
from infra.runtime.command import Command
from infra.runtime.parts import EXIT_CANNOT_WORK, Backoff, PartSpec, PartState, StopPlan, SystemState
from infra.runtime.process import PartLaunch
from infra.runtime.processes import Processes
from infra.runtime.supervisor import Supervisor
from tests.timing import within

GET_READY = "import os, sys, signal; os.write(int(sys.argv[2]), b'ready\\n')\n"
WAIT = "signal.pause()\n"
QUICK = Backoff(first_seconds=0.05, max_seconds=0.1)


def part(name: str, script: str, directory: Path, *needs: str) -> PartLaunch:
    command = Command((sys.executable, "-I", "-S", "-c", script), directory, {})
    return PartLaunch(PartSpec(name, needs), lambda: command)


class Watched:
    """Processes that run in the background of a test, whose states can be waited for."""

    def __init__(self, launches: list[PartLaunch], logs: Path, stop_plan: StopPlan | None = None) -> None:
        self.history: list[Supervisor] = []
        self._changed = asyncio.Condition()
        self.processes = Processes(launches, logs, self._note, backoff=QUICK, stop_plan=stop_plan)
        self.running = asyncio.create_task(self.processes.run())
        self._notes: set[asyncio.Task[None]] = set()

    def _note(self, supervisor: Supervisor) -> None:
        self.history.append(supervisor)
        self._notes.add(asyncio.create_task(self._tell()))

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def until(self, condition: Callable[[Supervisor], bool]) -> Supervisor:
        async with asyncio.timeout(within(20)), self._changed:
            await self._changed.wait_for(lambda: bool(self.history) and condition(self.history[-1]))
        return self.history[-1]

    async def until_ready(self) -> None:
        await self.until(lambda now: now.state is SystemState.READY)

    async def stop(self) -> Supervisor:
        self.processes.request_stop()
        return await asyncio.wait_for(self.running, within(20))


def pid_in(file: Path) -> int:
    return int(file.read_text())


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def test_a_killed_part_is_started_again_and_the_line_says_why(tmp_path: Path) -> None:
    script = "import os; open('pid', 'w').write(str(os.getpid()))\n" + GET_READY + WAIT
    watched = Watched([part("streams", script, tmp_path)], tmp_path)
    await watched.until_ready()

    os.kill(pid_in(tmp_path / "pid"), signal.SIGKILL)
    restarting = await watched.until(lambda now: now.parts["streams"].restarts == 1)
    await watched.until_ready()
    stopped = await watched.stop()

    assert restarting.parts["streams"].why == "killed by SIGKILL"
    assert stopped.state is SystemState.STOPPED
    assert (tmp_path / "streams.log.1").exists()


async def test_a_part_that_ends_by_itself_says_its_status_and_last_line(tmp_path: Path) -> None:
    script = "import sys; print('first', flush=True); sys.exit('no disk left')"
    watched = Watched([part("sink", script, tmp_path)], tmp_path)

    ended = await asyncio.wait_for(watched.running, within(20))

    assert ended.state is SystemState.FAILED
    assert ended.parts["sink"].why == "exit status 1: no disk left"
    assert ended.parts["sink"].restarts == Backoff().give_up_after


async def test_a_part_that_says_it_cannot_work_is_not_tried_again_and_its_sentence_is_the_reason(
    tmp_path: Path,
) -> None:
    script = f"import sys; print('no CUDA device here', file=sys.stderr); sys.exit({EXIT_CANNOT_WORK})"
    ended = await asyncio.wait_for(Watched([part("worker", script, tmp_path)], tmp_path).running, within(20))

    assert ended.parts["worker"].why == "no CUDA device here"
    assert ended.parts["worker"].restarts == 1


async def test_a_part_that_cannot_be_prepared_fails_with_the_reason_and_stops_the_others(tmp_path: Path) -> None:
    def no_java() -> Command:
        raise JavaMissing(17)

    launches = [part("sink", GET_READY + WAIT, tmp_path), PartLaunch(PartSpec("broker", ("sink",)), no_java)]
    ended = await asyncio.wait_for(Watched(launches, tmp_path).running, within(20))

    assert ended.parts["broker"].state is PartState.FAILED
    assert ended.parts["broker"].why == str(JavaMissing(17))
    assert ended.parts["sink"].state is PartState.STOPPED


async def test_a_program_that_is_not_there_fails_with_its_name(tmp_path: Path) -> None:
    nothing = PartLaunch(PartSpec("streams"), lambda: Command(("/nowhere/at-all",), tmp_path, {}))

    ended = await asyncio.wait_for(Watched([nothing], tmp_path).running, within(20))

    assert "/nowhere/at-all" in ended.parts["streams"].why


async def test_a_part_that_ignores_the_request_to_stop_is_killed_at_the_end_of_the_grace(tmp_path: Path) -> None:
    script = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + GET_READY + WAIT
    plan = StopPlan(grace_seconds=0.3, turn_seconds=0.1, dependants_seconds=0.2)
    watched = Watched([part("worker", script, tmp_path), part("gateway", script, tmp_path)], tmp_path, plan)
    await watched.until_ready()

    stopped = await watched.stop()

    assert [p.state for p in stopped.parts.values()] == [PartState.STOPPED, PartState.STOPPED]


async def test_what_a_part_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    child = (
        "import subprocess, sys\nleft = subprocess.Popen(['sleep', '1000'])\nopen('left', 'w').write(str(left.pid))\n"
    )
    watched = Watched([part("worker", child + GET_READY + WAIT, tmp_path)], tmp_path)
    await watched.until_ready()

    await watched.stop()

    assert await _gone(pid_in(tmp_path / "left"))


async def test_a_broker_in_memory_that_dies_takes_its_dependants_with_it_and_all_come_back(tmp_path: Path) -> None:
    launch = prepare_broker(BrokerChoice(), tmp_path)
    assert launch.command is not None
    command = launch.command
    broker = PartLaunch(
        PartSpec("broker", carries_dependants=not launch.keeps_log),
        lambda: command,
        lambda give_up: wait_until_broker_answers(launch.bootstrap_servers, within(20), give_up),
    )
    script = "import os; open(f'pid-{os.getpid()}', 'w').close()\n" + GET_READY + WAIT
    watched = Watched([broker, part("streams", script, tmp_path, "broker")], tmp_path)
    await watched.until_ready()

    os.kill(await _only_process_with(command.arguments[0]), signal.SIGKILL)
    await watched.until(lambda now: now.parts["broker"].restarts == 1)
    await watched.until_ready()
    stopped = await watched.stop()

    assert stopped.state is SystemState.STOPPED
    assert stopped.parts["streams"].failures == 0
    assert len(list(tmp_path.glob("pid-*"))) == 2


async def test_nothing_outlives_a_supervisor_that_is_killed(tmp_path: Path) -> None:
    """The supervisor here is a process of its own, killed with SIGKILL."""
    program = f"""
import asyncio, sys
from pathlib import Path
from infra.runtime.command import Command
from infra.runtime.parts import PartSpec
from infra.runtime.process import PartLaunch
from infra.runtime.processes import Processes
script = {GET_READY + "open('pid.new', 'w').write(str(os.getpid())); os.rename('pid.new', 'pid')" + chr(10) + WAIT!r}
here = Path({str(tmp_path)!r})
command = Command((sys.executable, '-I', '-S', '-c', script), here, {{}})
asyncio.run(Processes([PartLaunch(PartSpec('worker'), lambda: command)], here, lambda state: None).run())
"""
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    async with asyncio.timeout(within(20)):
        while not (tmp_path / "pid").exists():
            await asyncio.sleep(0.02)
    part_pid = pid_in(tmp_path / "pid")

    supervisor.kill()
    await supervisor.wait()

    assert await _gone(part_pid)


async def _gone(pid: int) -> bool:
    async with asyncio.timeout(within(20)):
        while is_alive(pid):
            await asyncio.sleep(0.02)
    return True


async def _only_process_with(marker: str) -> int:
    """The child of this process whose command line holds the marker (the broker of this test)."""
    children = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    found = [int(child) for child in children if marker in Path(f"/proc/{child}/cmdline").read_text()]
    return found[-1]
