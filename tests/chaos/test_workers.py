"""Four workers under 64 streams, one killed, stopped or sent away every few seconds: no client notices but by a pause.

`make chaos` does it for three minutes; the suite for some seconds. HEADRACE_TEST_CHAOS_SECONDS says how long.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eventlog.clock import monotonic
from gpu_consumers.engines.torch import load_torch_engine
from gpu_consumers.generation import Model
from models.tokenizer import open_tokenizer
from schemas.events import RequestRouted
from schemas.ids import request_id_of
from tests.brokers import Broker
from tests.chaos.clients import Answer, keep_asking
from tests.chaos.faults import WORKERS, Faults
from tests.chaos.world import MODEL, SLOTS, Logged, World, world
from tests.lone_worker import LoneWorker
from tests.oracle import Oracle
from tests.tiny_model import MAX_CONTEXT_TOKENS, make_tiny_model

SECONDS = float(os.environ.get("HEADRACE_TEST_CHAOS_SECONDS", "6"))
STREAMS = 64
TENANTS = 4
SEED = 20261130

pytestmark = [pytest.mark.slow, pytest.mark.timeout(SECONDS + 240)]


@pytest.fixture(scope="module")
def model_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("tiny"))


def requests() -> list[dict[str, Any]]:
    """Two dozen different ones: every second greedy, the others sampled with a seed."""
    words = ["The", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog", "while", "the", "river", "runs"]
    return [
        {
            "model": MODEL,
            "input": " ".join(words[n % 12 :] + words[: n // 2]),
            "max_output_tokens": 30 + 6 * (n % 12),
            "temperature": 0.0 if n % 2 else 0.9,
            "seed": n,
        }
        for n in range(24)
    ]


async def test_whatever_happens_to_workers_every_client_gets_its_whole_answer_once(
    broker: Broker, model_directory: Path, tmp_path: Path
) -> None:
    async with world(broker, model_directory, tmp_path, tenants=TENANTS) as everything:
        for _ in range(WORKERS):
            everything.fleet.start()
        await everything.fleet.until_awake(WORKERS)
        faults = Faults(everything, random.Random(SEED))
        answers = await under_faults(everything, faults)
        logged = await asyncio.to_thread(everything.logged)
    expected = uninterrupted(model_directory, logged)
    for answer in answers:
        assert_whole(answer, logged, expected)
    assert_greedy_is_what_generate_makes(model_directory, logged)
    tokens = sum(len(log.token_ids) for log in logged.answers.values())
    takeovers = logged.attempts - len(logged.orders)
    print(
        f"\n{len(answers)} answers of {tokens} tokens on {STREAMS} streams in {SECONDS:.0f} s; "
        f"{sum(faults.count.values())} faults ({', '.join(f'{n} {what}' for what, n in faults.count.items())}); "
        f"{takeovers} takeovers; longest pause {max(answer.longest_pause_s for answer in answers):.1f} s"
    )
    assert len(answers) == len(logged.orders) >= STREAMS
    assert faults.count["killed"] > 0
    assert takeovers > 0, "nothing was interrupted, so nothing was shown"


async def under_faults(everything: World, faults: Faults) -> list[Answer]:
    """Every stream asks until the time is over, and hears its last answer to the end."""
    until = monotonic() + SECONDS
    made = requests()
    streams = [
        keep_asking(
            everything.gateway.ws,
            everything.keys[number % TENANTS],
            made[number % len(made) :] + made[: number % len(made)],
            lambda: monotonic() < until,
        )
        for number in range(STREAMS)
    ]
    async with asyncio.TaskGroup() as group:
        breaking = group.create_task(faults.run(lambda: monotonic() < until))
        asking = [group.create_task(stream) for stream in streams]
    assert breaking.done()
    return [answer for task in asking for answer in task.result()]


Key = tuple[tuple[int, ...], float, int, int]


def key_of(order: RequestRouted) -> Key:
    """Orders that ask for the same."""
    return order.prompt_token_ids, order.temperature, order.seed, order.max_output_tokens


def uninterrupted(model_directory: Path, logged: Logged) -> dict[Key, tuple[list[int], str]]:
    """Tokens and text of each kind of order by one worker that nothing happens to."""
    engine = load_torch_engine(model_directory, dtype="float32", slots=SLOTS, max_context_tokens=MAX_CONTEXT_TOKENS)
    model = Model(open_tokenizer(str(model_directory)), engine.info.eos_token_ids)
    kinds = {key_of(order): replace(order, deadline_at_us=None) for order in logged.orders.values()}
    log = LoneWorker(engine, model).run(kinds.values())
    made = {key: log.answers[order.request_id] for key, order in kinds.items()}
    return {key: (list(answer.token_ids), answer.text) for key, answer in made.items()}


def assert_whole(answer: Answer, logged: Logged, expected: dict[Key, tuple[list[int], str]]) -> None:
    request_id = request_id_of(answer.response_id)
    log = logged.answers[request_id]
    assert answer.end["type"] in ("response.completed", "response.incomplete"), answer.end
    assert answer.text == log.text
    assert answer.end["response"]["usage"]["output_tokens"] == len(log.token_ids)
    assert (list(log.token_ids), log.text) == expected[key_of(logged.orders[request_id])]


def assert_greedy_is_what_generate_makes(model_directory: Path, logged: Logged) -> None:
    oracle = Oracle(model_directory)
    greedy: dict[Key, Sequence[int]] = {
        key_of(order): logged.answers[order.request_id].token_ids
        for order in logged.orders.values()
        if not order.temperature
    }
    compared = 0
    for (prompt, _, _, most), made in greedy.items():
        whole = oracle.answer(prompt, most)  # up to the first near tie
        assert list(made[: len(whole)]) == whole[: len(made)]
        compared += min(len(made), len(whole))
    assert compared > 30 * len(greedy)
