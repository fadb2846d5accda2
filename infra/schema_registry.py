"""Making our schemas known on deploy: to the schema registry, and their ids to every part, by control.schemas.

Parts never ask the registry for schemas of ours. A registry that is down stops this, and so a new release; it stops no
part that runs, and none that starts again.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from eventlog.admin import LogAdmin
from eventlog.errors import SchemaIdTaken
from eventlog.registry import Registry
from eventlog.schema_registry_address import RegistryAddress
from schemas.catalog import AvroSchema, avro_fingerprint
from schemas.codec import SCHEMAS, Codec, full_name
from schemas.events import SchemaPublished, SchemaRegistered
from schemas.releases import Contract, packaged_contract, parsed

if TYPE_CHECKING:
    from eventlog.schema_registration import SchemaRegistrar


@dataclass(frozen=True, slots=True)
class SubjectSchema:
    """One version of an event's schema. The subject is the record's name: an event is in several topics, and a topic
    holds several events (docs/adr/0007-subjects-are-record-names.md).
    """

    subject: str
    avro: AvroSchema


def subject_schemas(contract: Contract) -> list[SubjectSchema]:
    """Every schema that a writer of any release may use, each once; oldest release first, the working tree's last.

    A registry that is filled anew thus gives each the id that it had.
    """
    files = [*(contract.release(version) for version in contract.versions()), contract.working_tree()]
    found: list[SubjectSchema] = []
    for schemas in map(parsed, files):
        for avro in schemas.values():
            one = SubjectSchema(f"{avro['namespace']}.{avro['name']}", avro)
            if one not in found:
                found.append(one)
    return found


def publish_schemas(admin: LogAdmin, registry: Registry, *, now_us: int) -> list[SchemaPublished]:
    """Every schema of this release that the log does not hold yet, written there; again is as good as once.

    To be done before a part of this release starts: parts of older ones learn from it to read what the new one writes,
    so that parts can be brought up to date one by one, in any order. No schema registry is needed for it.
    """
    new = [
        SchemaPublished(
            subject=full_name(event_type), at_us=now_us, fingerprint=schema.fingerprint, avro=_text(schema.avro)
        )
        for event_type, schema in SCHEMAS.items()
        if schema.fingerprint not in registry.published
    ]
    admin.publish_schemas(new)
    return new


def needs_registration(registry: Registry) -> bool:
    """Whether an event of this release has no schema id in the log yet."""
    known = {(schema.subject, schema.fingerprint) for schema in registry.schemas.values()}
    return any((full_name(event_type), schema.fingerprint) not in known for event_type, schema in SCHEMAS.items())


def register_schemas(
    address: RegistryAddress, admin: LogAdmin, registry: Registry, codec: Codec, *, now_us: int
) -> list[SchemaRegistered]:
    """Every schema of every release in the schema registry, and its id in the log and in `codec`; what is new there.

    Again is as good as once. Blocks. Raises SchemaRegistryFailed, SchemaRefused and SchemaIdTaken: then the log has
    nothing new.
    """
    # Only here: confluent-kafka's client takes half a second to import, and `seed` may not need it.
    from eventlog.schema_registration import SchemaRegistrar

    with SchemaRegistrar(address) as registrar:
        given = [_given(registrar, one, now_us) for one in subject_schemas(packaged_contract())]
    _check_ids(address, registry, given)
    new = [event for event in given if not _is_known(event, registry)]
    admin.register_schemas(new)
    for event in given:
        codec.learn_ours(event.schema_id, event.fingerprint)
    return new


def _given(registrar: SchemaRegistrar, one: SubjectSchema, now_us: int) -> SchemaRegistered:
    place = registrar.register(one.subject, one.avro)
    return SchemaRegistered(
        subject=one.subject,
        at_us=now_us,
        schema_id=place.schema_id,
        version=place.version,
        fingerprint=avro_fingerprint(one.avro),
        avro=_text(one.avro),
    )


def _text(avro: AvroSchema) -> str:
    return json.dumps(avro, separators=(",", ":"))


def _check_ids(address: RegistryAddress, registry: Registry, given: Iterable[SchemaRegistered]) -> None:
    for event in given:
        known = registry.schemas.get(event.schema_id)
        if known is not None and (known.subject, known.fingerprint) != (event.subject, event.fingerprint):
            raise SchemaIdTaken(event.schema_id, known.subject, event.subject, address.url)


def _is_known(event: SchemaRegistered, registry: Registry) -> bool:
    known = registry.schemas.get(event.schema_id)
    return known is not None and known.version == event.version
