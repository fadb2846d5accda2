"""The thread that reads adapters, and what the engine loop makes of what it brings."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from eventlog.clock import monotonic
from gpu_consumers.adapter_gate import GateTurn, PutWeights
from gpu_consumers.adapter_supply import AdapterSupply
from gpu_consumers.engine import Engine
from gpu_consumers.engines.echo import EchoEngine
from gpu_consumers.engines.torch import load_torch_engine
from gpu_consumers.errors import AdapterUnavailableError
from gpu_consumers.generation import Model
from gpu_consumers.metrics import WorkerMetrics
from gpu_consumers.prior_attempts import PriorAttempts
from gpu_consumers.sequence import Sequence
from gpu_consumers.work import Leave
from models.tokenizer import ByteTokenizer, open_tokenizer
from schemas.events import AdapterRegistered, GenerationFailed, GenerationFinished, RequestRouted, TokensGenerated
from schemas.ids import new_request_id
from tests.lone_worker import MODEL_VERSION, Log, LoneWorker
from tests.lora_adapter import make_adapter
from tests.oracle import Oracle
from tests.timing import within
from tests.tiny_model import make_tiny_model
from tests.unit.gpu_consumers.test_generation import ORDER


def registered(name: str, *, location: Path | str = "", at_us: int = 1) -> AdapterRegistered:
    return AdapterRegistered(adapter=name, at_us=at_us, model_version=MODEL_VERSION, location=str(location or name))


class Host:
    """Two places; a location says what comes of reading it."""

    adapter_places = 2

    def __init__(self) -> None:
        self.places: dict[int, str] = {}
        self.readers: set[str] = set()

    def read_adapter(self, key: str, location: str) -> PutWeights:
        self.readers.add(threading.current_thread().name)
        if location == "unfit":
            raise AdapterUnavailableError("it does not fit")
        if location == "odd":
            raise ZeroDivisionError("nobody thought of this")
        if location == "large":
            return self._refuse
        return lambda place: self.places.update({place: key})

    def _refuse(self, place: int) -> None:
        raise AdapterUnavailableError("there is no room on the device")


class Loop:
    """The engine loop, as far as adapters go."""

    def __init__(self) -> None:
        self.host = Host()
        self.awake = threading.Event()
        self.metrics = WorkerMetrics(deployment="d", worker="w")
        self.supply = AdapterSupply(self.host, model_version=MODEL_VERSION, metrics=self.metrics, wake=self.awake.set)

    def submit(self, request_id: str, adapter: str) -> None:
        self.supply.submit(Sequence(request_id, "acme", (1,), 2, adapter=adapter), now_us=1)

    def until(self, answered: int) -> GateTurn:
        """Turns, one whenever there is something to hear, until so many requests are ready or have failed."""
        ready: dict[str, str] = {}
        failed: dict[str, str] = {}
        while True:
            turn = self.supply.turn(1)
            ready |= turn.ready
            failed |= turn.failed
            if len(ready) + len(failed) >= answered:
                return GateTurn(ready, failed)
            assert self.awake.wait(within(10.0)), "it is not woken"
            self.awake.clear()

    def value(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(name, {"deployment": "d", "worker": "w"})


@pytest.fixture
def loop() -> Iterator[Loop]:
    loop = Loop()
    loop.supply.registry_changed(
        {name: registered(name) for name in ("tone", "other", "third", "unfit", "odd", "large")}
    )
    yield loop
    loop.supply.close()


def test_an_adapter_is_read_on_a_thread_of_its_own_and_installed_in_a_turn(loop: Loop) -> None:
    loop.submit("r1", "tone")
    assert loop.until(1) == GateTurn(ready={"r1": "tone#1"})
    assert loop.host.places == {0: "tone#1"}
    assert loop.host.readers == {"adapters"}


def test_metrics_tell_loads_evictions_and_who_waits(loop: Loop) -> None:
    for n, name in enumerate(("tone", "other", "third")):
        loop.submit(f"r{n}", name)
    loop.until(2)
    assert loop.value("headrace:lora_adapters") == 2
    assert loop.value("headrace:num_requests_waiting_for_adapter") == loop.supply.waiting_count == 1
    loop.supply.leave("r0")
    loop.until(1)
    assert loop.value("headrace:lora_loads_total") == 3
    assert loop.value("headrace:lora_evictions_total") == 1
    assert loop.value("headrace:lora_load_seconds_count") == 3


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("unfit", "the adapter unfit can't be loaded: it does not fit"),
        ("odd", "the adapter odd can't be loaded: it can't be read"),
        ("large", "the adapter large can't be loaded: there is no room on the device"),
    ],
)
def test_an_adapter_that_can_not_be_loaded_fails_its_requests_alone(loop: Loop, name: str, reason: str) -> None:
    loop.submit("bad", name)
    loop.submit("good", "tone")
    assert loop.until(2) == GateTurn(ready={"good": "tone#1"}, failed={"bad": reason})
    assert loop.value("headrace:lora_load_failures_total") == 1
    assert loop.value("headrace:lora_adapters") == 1


def test_a_turn_is_due_at_once_when_somebody_left(loop: Loop) -> None:
    loop.submit("r1", "tone")
    loop.until(1)
    assert loop.supply.due_in(1) == float("inf")
    loop.supply.leave("r1")
    assert loop.supply.due_in(1) == 0.0


# With the engine loop and a model.


def order(number: int, **changes: object) -> RequestRouted:
    plain = replace(
        ORDER, request_id=new_request_id(now_ms=1, partition=0, entropy=number), stop=(), temperature=0.0, priority=0,
        prompt_token_ids=tuple(range(10 + number, 40 + number)), max_output_tokens=24, deadline_at_us=None,
    )  # fmt: skip
    return replace(plain, **changes)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def adapters(directory: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("adapters")
    return {f"a{n}@v1": make_adapter(directory, made / str(n), seed=n) for n in range(3)}


@pytest.fixture
def tiny(directory: Path) -> Callable[[], Engine]:
    def load(places: int = 1) -> Engine:
        return load_torch_engine(
            directory, dtype="float32", slots=4, max_context_tokens=128, max_step_tokens=32, adapter_places=places
        )

    return load


def test_requests_for_more_adapters_than_there_are_places_all_get_what_peft_answers(
    directory: Path, adapters: dict[str, Path], tiny: Callable[[], Engine]
) -> None:
    orders = [order(n, adapter=(*adapters, None)[n % 4]) for n in range(12)]
    model = Model(open_tokenizer(str(directory)), frozenset())
    known = [registered(name, location=location) for name, location in adapters.items()]
    log = LoneWorker(tiny(), model, adapters=known).run(orders)
    for name in (*adapters, None):
        oracle = Oracle(directory, adapter=None if name is None else adapters[name])
        for one in orders:
            if one.adapter == name:
                expected = oracle.answer(one.prompt_token_ids, one.max_output_tokens)
                assert log.answers[one.request_id].token_ids[: len(expected)] == expected
    assert len({tuple(log.answers[one.request_id].token_ids) for one in orders}) == len(orders)


def test_a_request_whose_adapter_is_broken_ends_alone_with_the_reason(
    directory: Path, adapters: dict[str, Path], tiny: Callable[[], Engine], tmp_path: Path
) -> None:
    model = Model(open_tokenizer(str(directory)), frozenset())
    known = [registered("a0@v1", location=adapters["a0@v1"]), registered("gone@v1", location=tmp_path / "gone")]
    orders = [order(0), order(1, adapter="gone@v1"), order(2, adapter="a0@v1")]
    worker = LoneWorker(tiny(), model, adapters=known)
    log = worker.run(orders)
    end = log.terminal(orders[1])
    assert isinstance(end, GenerationFailed)
    assert (end.status, end.error_type, end.code) == (422, "invalid_request_error", "adapter_unavailable")
    assert end.message == (
        "the adapter gone@v1 can't be loaded: adapter_config.json can't be read: No such file or directory"
    )
    for fine in (orders[0], orders[2]):
        assert isinstance(log.terminal(fine), GenerationFinished)
        assert len(log.answers[fine.request_id].token_ids) == fine.max_output_tokens


def routed_with(registration: AdapterRegistered) -> RequestRouted:
    return order(
        1, adapter=registration.adapter, model_version=MODEL_VERSION,
        adapter_registered_at_us=registration.at_us, adapter_location=registration.location,
    )  # fmt: skip


def cut_off(engine: Engine, model: Model, one: RequestRouted, known: AdapterRegistered) -> PriorAttempts:
    """What a worker leaves of the answer that has to go in the middle of it."""
    worker = LoneWorker(engine, model, adapters=[known])
    worker.before_step = lambda step: worker.inbox.put(Leave(monotonic())) if step == 8 else None
    prior = PriorAttempts()
    for event in worker.run([one]).events[one.request_id]:
        prior.apply(event)
    assert 4 < len(prior.log.token_ids) < one.max_output_tokens
    return prior


def output_of(log: Log, one: RequestRouted) -> list[int]:
    events = log.events[one.request_id]
    return [token for event in events if isinstance(event, TokensGenerated) for token in event.token_ids]


def test_an_answer_that_was_cut_off_is_finished_with_the_weights_with_which_it_began(
    directory: Path, adapters: dict[str, Path], tiny: Callable[[], Engine]
) -> None:
    old, new = (registered("tone@v1", location=adapters[name], at_us=at) for at, name in enumerate(("a0@v1", "a1@v1")))
    model, one = Model(open_tokenizer(str(directory)), frozenset()), routed_with(old)
    prior = cut_off(tiny(), model, one, old)
    since = replace(routed_with(new), request_id=order(2).request_id)

    second = LoneWorker(tiny(), model, adapters=[new])
    second.take(since)
    second.take(one, prior)
    log = second.run()

    for asked, begun, folder in ((one, prior.log.token_ids, "a0@v1"), (since, [], "a1@v1")):
        assert isinstance(log.terminal(asked), GenerationFinished)
        expected = Oracle(directory, adapter=adapters[folder]).answer(asked.prompt_token_ids, asked.max_output_tokens)
        assert len(expected) > len(begun) + 2, "a near tie left too little to compare"
        assert (begun + output_of(log, asked))[: len(expected)] == expected
    assert output_of(log, since)[: len(prior.log.token_ids)] != prior.log.token_ids, "the weights differ too little"


@pytest.mark.parametrize(
    ("place", "why"),
    [
        ("the same folder", "the weights of tone@v1 that were to answer are gone, its folder has others"),
        (
            "another folder",
            "the adapter tone@v1 can't be loaded: adapter_config.json can't be read: No such file",
        ),
    ],
)
def test_an_answer_whose_weights_are_gone_ends_with_the_reason_and_is_not_finished_with_others(
    directory: Path, adapters: dict[str, Path], tiny: Callable[[], Engine], tmp_path: Path, place: str, why: str
) -> None:
    folder = tmp_path / "tone"
    shutil.copytree(adapters["a0@v1"], folder)
    old = registered("tone@v1", location=folder)
    model, one = Model(open_tokenizer(str(directory)), frozenset()), routed_with(old)
    prior = cut_off(tiny(), model, one, old)
    shutil.rmtree(folder)
    if place == "the same folder":
        shutil.copytree(adapters["a1@v1"], folder)
        new = replace(old, at_us=2)
    else:
        new = replace(old, at_us=2, location=str(adapters["a1@v1"]))

    second = LoneWorker(tiny(), model, adapters=[new])
    second.take(one, prior)
    log = second.run()

    end = log.terminal(one)
    assert isinstance(end, GenerationFailed)
    assert (end.status, end.code, end.output_tokens) == (422, "adapter_unavailable", len(prior.log.token_ids))
    assert end.message.startswith(why)
    assert end.message.endswith("; it was registered anew since the request was routed: send the request again")
    assert output_of(log, one) == []


def test_who_waits_for_an_adapter_can_be_cancelled_or_run_out_of_time(
    directory: Path, tiny: Callable[[], Engine]
) -> None:
    model = Model(open_tokenizer(str(directory)), frozenset())
    worker = LoneWorker(tiny(), model, adapters=[])
    cancelled = order(1, adapter="nobody@v1")
    late = order(2, adapter="nobody@v1", deadline_at_us=1)
    worker.cancel(worker.take(cancelled))
    log = worker.run([late])
    ends = [log.terminal(one) for one in (cancelled, late)]
    assert [end.finish_reason for end in ends if isinstance(end, GenerationFinished)] == ["cancelled", "timeout"]
    assert worker.adapters is not None
    assert worker.adapters.waiting_count == 0


def test_an_engine_without_adapters_says_so() -> None:
    log = LoneWorker(EchoEngine(), Model(ByteTokenizer(), frozenset())).run([order(1, adapter="a0@v1")])
    end = log.terminal(order(1))
    assert isinstance(end, GenerationFailed)
    assert (end.code, end.message) == ("adapter_unavailable", "the echo engine of this worker runs no adapters")
