"""What `headrace up` will run: everything that is decided and checked before the first part starts."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from eventlog.clock import now_us
from infra.builtin_models import SMOLLM2, builtin_model, builtin_names
from infra.credentials import Credentials, ensure_credentials
from infra.runtime.broker import BrokerKind, BrokerLaunch, prepare_broker, wait_until_broker_answers
from infra.runtime.command import Command
from infra.runtime.data_directory import DataDirectory, Running
from infra.runtime.parts import PartSpec
from infra.runtime.ports import LOOPBACK, claim_port
from infra.runtime.process import PartLaunch
from infra.seed import seed_log
from infra.settings import Settings, inherited_environment
from infra.wiring import broker_choice, broker_profile, schema_registry_of, topics_of

_BROKER_READY_SECONDS = 60.0
# One that is said to run already answers at once or not at all.
_EXTERNAL_BROKER_SECONDS = 15.0
# Loading weights from a slow disk takes its time; nothing else does.
_WORKER_READY_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Everything that is decided before the first part starts. `settings` name real ports."""

    settings: Settings
    directory: DataDirectory
    credentials: Credentials
    broker: BrokerLaunch
    smollm2: Path | None

    @property
    def running(self) -> Running:
        return Running(
            pid=os.getpid(),
            bootstrap_servers=self.broker.bootstrap_servers,
            broker=self.settings.broker,
            gateway_url=f"http://{self.settings.gateway_host}:{self.settings.gateway_port}",
            clickhouse_url=None
            if self.settings.clickhouse_dsn
            else f"http://{LOOPBACK}:{self.settings.clickhouse_port}",
        )

    def seed(self) -> None:
        """Blocks. Raises EventLogError."""
        now = now_us()
        models = [builtin_model(name, self.smollm2, now) for name in builtin_names(self.settings.model)]
        seed_log(
            broker_profile(self.settings), topics_of(self.settings), self.credentials, models, now,
            schema_registry_of(self.settings),
        )  # fmt: skip


@contextmanager
def prepared(settings: Settings, ensure_smollm2: Callable[[Path], Path]) -> Iterator[Plan]:
    """Hold the data directory for as long as the block runs, and get everything ready that the parts will need.

    `ensure_smollm2` gives the model's files for a cache directory, and blocks while it fetches them. Raises an
    InfraError, ModelError or EventLogError that says what is missing; nothing was started then.
    """
    directory = DataDirectory(settings.data_dir)
    with directory.held():
        plan = make_plan(settings, directory, ensure_smollm2)
        if plan.broker.kind is BrokerKind.EXTERNAL:
            profile = broker_profile(plan.settings)
            wait_until_broker_answers(profile.bootstrap_servers, _EXTERNAL_BROKER_SECONDS, security=profile.security)
            plan.seed()
        directory.announce(plan.running)
        yield plan


def make_plan(settings: Settings, directory: DataDirectory, ensure_smollm2: Callable[[Path], Path]) -> Plan:
    """Check and decide everything. Blocks while a model is fetched or a Kafka is formatted."""
    names = builtin_names(settings.model)
    gateway_port = claim_port(settings.gateway_port, "HEADRACE_GATEWAY_PORT", settings.gateway_host)
    clickhouse_port = (
        settings.clickhouse_port
        if settings.clickhouse_dsn
        else claim_port(settings.clickhouse_port, "HEADRACE_CLICKHOUSE_PORT")
    )
    broker = prepare_broker(broker_choice(settings), directory.path)
    smollm2 = ensure_smollm2(settings.cache_dir) if SMOLLM2 in names else None
    kind = settings.broker if broker.kind is BrokerKind.EXTERNAL else broker.kind.value
    real = replace(
        settings,
        gateway_port=gateway_port,
        clickhouse_port=clickhouse_port,
        kafka_bootstrap_servers=broker.bootstrap_servers,
        broker="embedded" if kind == "embedded" else "kafka",
    )
    return Plan(real, directory, ensure_credentials(directory.credentials), broker, smollm2)


def launches_of(plan: Plan) -> list[PartLaunch]:
    """The parts in starting order."""
    needs: tuple[str, ...] = ()
    launches = []
    if plan.broker.command is not None:
        launches.append(_broker_launch(plan))
        needs = ("broker",)
    for name in ("sink", "streams"):
        launches.append(_part_launch(plan, name, PartSpec(name, needs)))
    workers = worker_names(plan.settings)
    for part, model in workers.items():
        spec = PartSpec(part, needs, ready_within_seconds=_WORKER_READY_SECONDS)
        # All parts stop together, so there is nobody to finish for.
        changes = {"HEADRACE_MODEL": f"{model}@v1", "HEADRACE_DRAIN_SECONDS": "0"}
        launches.append(_part_launch(plan, "worker", spec, changes))
    launches.append(_part_launch(plan, "gateway", PartSpec("gateway", needs)))
    return launches


def worker_names(settings: Settings) -> Mapping[str, str]:
    """Part name to model name: one worker for each model."""
    names = builtin_names(settings.model)
    return {"worker" if len(names) == 1 else f"worker-{name}": name for name in names}


def about_of(plan: Plan) -> dict[str, str]:
    """What a person wants to know of each part."""
    running = plan.running
    clickhouse = (
        "the ClickHouse of HEADRACE_CLICKHOUSE_DSN" if running.clickhouse_url is None else running.clickhouse_url
    )
    kind = "Apache Kafka" if plan.broker.kind is BrokerKind.KAFKA else "embedded, its log in memory,"
    return {
        "broker": f"{kind} at {running.bootstrap_servers}",
        "sink": clickhouse,
        "gateway": running.gateway_url,
        **{part: f"{model} on {plan.settings.device}" for part, model in worker_names(plan.settings).items()},
    }


def _broker_launch(plan: Plan) -> PartLaunch:
    launch = plan.broker
    port = int(launch.bootstrap_servers.rpartition(":")[2])
    choice = replace(broker_choice(replace(plan.settings, kafka_bootstrap_servers=None)), port=port)

    def until_ready(give_up: Callable[[], bool]) -> None:
        wait_until_broker_answers(launch.bootstrap_servers, _BROKER_READY_SECONDS, give_up)
        if not give_up():
            plan.seed()

    def command() -> Command:
        # Again for each start: a new embedded broker is a new log, with an id of its own.
        again = prepare_broker(choice, plan.directory.path).command
        assert again is not None
        return again

    return PartLaunch(PartSpec("broker", carries_dependants=not launch.keeps_log), command, until_ready)


def _part_launch(plan: Plan, subcommand: str, spec: PartSpec, changes: Mapping[str, str] | None = None) -> PartLaunch:
    environment = {
        **inherited_environment(),
        **plan.settings.environment(),
        **_python_environment(),
        **(changes or {}),
    }
    command = Command((sys.executable, "-P", "-m", "infra.cli", subcommand), plan.directory.path, environment)
    return PartLaunch(spec, lambda: command)


def _python_environment() -> dict[str, str]:
    """Parts find this very code whatever folder they run in, and their last words reach the log."""
    here = str(Path(__file__).resolve().parent.parent)
    before = inherited_environment().get("PYTHONPATH")
    return {
        "PYTHONPATH": f"{here}{os.pathsep}{before}" if before else here,
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",  # models are on disk; a wrong path must not ask a hub for 20 seconds
        "TOKENIZERS_PARALLELISM": "false",
    }
