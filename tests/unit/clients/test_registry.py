from __future__ import annotations

import json

import pytest

from headrace_client.contract.errors import SchemaRegistryUnavailable, UnknownSchema, UnusableSchema
from headrace_client.errors import RegistryFailed
from headrace_client.registry import RegistryLookup, confluent_codec

SCHEMA = {"type": "record", "name": "TokensGenerated", "namespace": "headrace.v1", "fields": []}


class Refused(Exception):
    http_status_code = 404


class World:
    """A registry that says what it is told to, and a clock."""

    def __init__(self) -> None:
        self.now = 0.0
        self.answer: str | Exception = json.dumps(SCHEMA)
        self.asked: list[int] = []
        self.lookup = RegistryLookup("http://registry", self._ask, clock=lambda: self.now)

    def _ask(self, schema_id: int) -> str:
        self.asked.append(schema_id)
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_a_registry_that_fails_is_left_alone_for_a_while() -> None:
    world = World()
    world.answer = OSError("refused")
    for schema_id in (7, 8, 9):
        with pytest.raises(SchemaRegistryUnavailable, match="refused"):
            world.lookup(schema_id)
    assert world.asked == [7]

    world.now, world.answer = 10.0, json.dumps(SCHEMA)
    assert world.lookup(8) == SCHEMA


def test_an_id_that_it_does_not_have_is_no_failure() -> None:
    world = World()
    world.answer = Refused("no such schema")
    with pytest.raises(UnknownSchema, match="has no schema id 7"):
        world.lookup(7)
    world.answer = json.dumps(SCHEMA)
    assert world.lookup(8) == SCHEMA


@pytest.mark.parametrize("text", ["", "no JSON", "[" * 100_000, '"string"'])
def test_what_is_no_schema_is_unusable(text: str) -> None:
    world = World()
    world.answer = text
    with pytest.raises(UnusableSchema):
        world.lookup(7)


def test_an_address_that_is_none_is_a_failure_of_the_registry() -> None:
    with pytest.raises(RegistryFailed, match="nonsense"):
        confluent_codec("nonsense", {})
