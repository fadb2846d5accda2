"""Our codec and Avro's own library for Java agree to the byte."""

from __future__ import annotations

import pytest

from schemas.catalog import single_object_header
from schemas.codec import decode, encode
from schemas.events import EVENT_TYPES
from tests.avro_vectors import NASTY, Vectors, ask_java, asked_schemas, load_vectors
from tests.java import java_with_avro

STALE = "after a change of schemas: python -m tests.avro_vectors (it needs Java, as tests/java.py says)"


@pytest.fixture(scope="module")
def vectors() -> Vectors:
    return load_vectors()


def test_every_schema_of_this_tree_and_of_every_release_has_the_header_that_java_gives_it(vectors: Vectors) -> None:
    asked = {(release, schema["name"]): single_object_header(schema) for release, schema in asked_schemas()}
    given = {(release, name): header for release, found in vectors.headers.items() for name, header in found.items()}
    assert asked == given, STALE


def test_every_event_has_a_vector_and_the_nasty_ones_too(vectors: Vectors) -> None:
    events = [vector.event for vector in vectors.events]
    assert {type(event) for event in events} == set(EVENT_TYPES), STALE
    assert events[-len(NASTY) :] == list(NASTY), STALE


def test_we_write_what_java_writes(vectors: Vectors) -> None:
    for vector in vectors.events:
        assert encode(vector.event) == vector.data, type(vector.event).__name__


def test_we_read_what_java_writes(vectors: Vectors) -> None:
    for vector in vectors.events:
        assert decode(vector.data) == vector.event, type(vector.event).__name__


def test_java_still_writes_the_same(vectors: Vectors) -> None:
    assert ask_java(java_with_avro(), [vector.event for vector in vectors.events]) == vectors, STALE
