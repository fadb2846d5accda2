"""What a deployment registers, and whether it has to."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from eventlog.registry import Registry
from infra.schema_registry import needs_registration, subject_schemas
from schemas.catalog import avro_fingerprint
from schemas.codec import SCHEMAS
from schemas.releases import Contract, packaged_contract
from tests.schema_registry import schema_ids


def known() -> Registry:
    registry = Registry()
    for event in schema_ids(first=1):
        registry = registry.apply(event)
    return registry


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    """Two events, one of which is new in 0.10.0 and then changed; the other never changed."""
    versions = {"avro": (1, 3), "released/0.9.0": (1, None), "released/0.10.0": (1, 2)}
    for folder, fields in versions.items():
        (tmp_path / folder).mkdir(parents=True)
        for name, count in zip(("Kept", "Changed"), fields, strict=True):
            if count is not None:
                (tmp_path / folder / f"{name}.avsc").write_text(json.dumps(schema(name, count)))
    return Contract(tmp_path)


def schema(name: str, fields: int) -> dict[str, object]:
    listed = [{"name": f"f{number}", "type": "int", "default": 0} for number in range(fields)]
    return {"type": "record", "name": name, "namespace": "headrace.v1", "fields": listed}


def test_schemas_are_registered_by_release_oldest_first_each_once(contract: Contract) -> None:
    found = subject_schemas(contract)

    assert [(one.subject, len(one.avro["fields"])) for one in found] == [
        ("headrace.v1.Kept", 1),
        ("headrace.v1.Changed", 2),
        ("headrace.v1.Changed", 3),
    ]


def test_every_event_and_every_release_is_among_those_of_the_package() -> None:
    fingerprints = {avro_fingerprint(one.avro) for one in subject_schemas(packaged_contract())}

    assert fingerprints >= {schema.fingerprint for schema in SCHEMAS.values()}


def test_a_log_that_knows_every_id_needs_no_schema_registry() -> None:
    assert not needs_registration(known())
    assert needs_registration(Registry())


def test_one_event_without_an_id_is_enough_to_need_it() -> None:
    registry = known()
    other = replace(registry.schemas[3], fingerprint="0" * 16)

    assert needs_registration(registry.apply(other))
