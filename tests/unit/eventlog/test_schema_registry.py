"""What a reader gets of a schema registry, however it answers."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from eventlog.schema_registry import MAX_ANSWER_BYTES, SchemaRegistry
from eventlog.schema_registry_address import RegistryAddress
from schemas.catalog import published_schema
from schemas.errors import SchemaRegistryUnavailable, UnknownSchema, UnusableSchema
from schemas.events import TokensGenerated
from tests.schema_registry import Reply, StandIn, stand_in

SCHEMA = published_schema(TokensGenerated)


@pytest.fixture
def served() -> Iterator[StandIn]:
    with stand_in() as registry:
        yield registry


def ask(served: StandIn, schema_id: int = 7, *, patience_s: float = 30.0) -> object:
    with SchemaRegistry(served.address, patience_s=patience_s) as registry:
        return registry.schema(schema_id)


def test_it_gives_the_schema_behind_an_id(served: StandIn) -> None:
    served.replies[7] = Reply.schema(SCHEMA)

    assert ask(served) == SCHEMA
    assert served.asked == [7]


def test_an_id_that_it_does_not_know_is_unknown(served: StandIn) -> None:
    with pytest.raises(UnknownSchema) as caught:
        ask(served)

    assert caught.value.code == "unknown_schema"
    assert caught.value.schema_id == 7


@pytest.mark.parametrize(
    "reply",
    [
        Reply(500, b'{"error_code":50001,"message":"Error in the backend data store"}'),
        Reply(503, b"<html>no server is available</html>"),
        Reply(401, b'{"error_code":401,"message":"Unauthorized"}'),
        Reply(404, b"<html>there is nothing here</html>"),
        Reply(404, b'{"error_code":40401,"message":"Subject not found"}'),
        Reply(302, b""),
        Reply(200, b"<html>please sign in</html>"),
        Reply(200, b""),
        Reply(200, b"[1, 2"),
        Reply(200, b"[]"),
        Reply(200, b"{}"),
        Reply(200, b'{"schema": 5}'),
        Reply(200, b'{"schema": null}'),
        Reply(200, b"\xff\xfe"),
        Reply(200, b"[" * 100_000),
    ],
)
def test_what_is_no_answer_of_a_registry_means_that_there_is_none(served: StandIn, reply: Reply) -> None:
    served.reply = reply

    with pytest.raises(SchemaRegistryUnavailable, match=served.address.url):
        ask(served)


@pytest.mark.parametrize(
    "reply",
    [
        Reply.text("no JSON"),
        Reply.text('"string"'),
        Reply.text("[]"),
        Reply.text('{"a":' * 100_000),
        Reply.text("[" * 100_000),
        Reply(body=json.dumps({"schema": "syntax = 'proto3';", "schemaType": "PROTOBUF"}).encode()),
        Reply(body=b'{"schema": "' + b"x" * MAX_ANSWER_BYTES),
        Reply(body=b"x" * 65_536, endless=True),
    ],
)
def test_a_schema_that_nobody_can_read_is_unusable(served: StandIn, reply: Reply) -> None:
    served.reply = reply

    with pytest.raises(UnusableSchema):
        ask(served)


def test_one_that_is_gone_does_not_answer(served: StandIn) -> None:
    served.close()

    with pytest.raises(SchemaRegistryUnavailable, match="does not answer"):
        ask(served)


def test_a_question_ends_when_its_patience_does(served: StandIn) -> None:
    never = threading.Event()
    served.reply = Reply(after=never)

    with pytest.raises(SchemaRegistryUnavailable, match="Timeout"):
        ask(served, patience_s=0.05)

    assert not never.is_set()
    never.set()


def test_an_answer_that_trickles_in_ends_when_the_patience_does(served: StandIn) -> None:
    served.reply = Reply(body=b" ", endless=True)
    ten_seconds_later_each_time = itertools.count(0.0, 10.0).__next__

    with (
        SchemaRegistry(served.address, clock=ten_seconds_later_each_time) as registry,
        pytest.raises(SchemaRegistryUnavailable, match="takes more than 5 s"),
    ):
        registry.schema(7)


def test_it_says_who_asks(served: StandIn) -> None:
    served.reply = Reply.schema(SCHEMA)
    for address in (
        replace(served.address, username="reader", password="p:w"),
        replace(served.address, token="t0ken"),
        served.address,
    ):
        with SchemaRegistry(address) as registry:
            registry.schema(1)

    assert served.authorizations == ["Basic cmVhZGVyOnA6dw==", "Bearer t0ken", None]


def test_what_shows_an_address_shows_no_secret() -> None:
    address = RegistryAddress("http://registry", "reader", "secret-1", "secret-2")

    assert "secret" not in repr(address)
