"""What contract tests begin with."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import httpx
import openai
import pytest

from eventlog.admin import LogAdmin
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from schemas.topics import Topics
from tests.brokers import Broker
from tests.contract.gateway_world import World, register_model, world
from tests.timing import within


@pytest.fixture(scope="module")
def profile(broker: Broker) -> BrokerProfile:
    return broker.profile


@pytest.fixture
def admin(profile: BrokerProfile) -> Iterator[LogAdmin]:
    with LogAdmin(profile, Topics()) as admin:
        admin.create_shared_topics()
        yield admin


@pytest.fixture
def producer(profile: BrokerProfile) -> Iterator[EventProducer]:
    with EventProducer(profile, client_id="test") as producer:
        yield producer


@pytest.fixture(scope="module")
def here(broker: Broker) -> Iterator[World]:
    profile = broker.profile
    register_model(profile)
    with world(profile) as made:
        yield made


@pytest.fixture
def client(here: World) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{here.gateway.http}/v1", api_key=here.key, max_retries=0) as made:
        yield made


@pytest.fixture
async def async_client(here: World) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{here.gateway.http}/v1", api_key=here.key, max_retries=0) as made:
        yield made


@pytest.fixture
def http(here: World) -> Iterator[httpx.Client]:
    headers = {"authorization": f"Bearer {here.key}"}
    with httpx.Client(base_url=here.gateway.http, headers=headers, timeout=within(30)) as made:
        yield made
