"""Schema ids from a schema registry, for those who set `schema_registry_url` (extra `registry`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from headrace_client.contract.catalog import AvroSchema
from headrace_client.contract.codec import SCHEMAS, Codec, full_name
from headrace_client.contract.errors import UnknownSchema
from headrace_client.contract.events import (
    GenerationFailed,
    GenerationFinished,
    GenerationStarted,
    RequestAdmitted,
    RequestCancelled,
    RequestRejected,
    RequestSubmitted,
    TokensGenerated,
)
from headrace_client.errors import RegistryFailed

WRITTEN = (RequestSubmitted, RequestCancelled)
READ = (RequestAdmitted, RequestRejected, GenerationStarted, TokensGenerated, GenerationFinished, GenerationFailed)
_TIMEOUT_S = 10


def confluent_codec(url: str, settings: Mapping[str, Any]) -> Codec:
    """A codec that writes Confluent framing with this registry's ids, and asks it for ids that it does not know.

    Registers nothing: that is the deployment's (`headrace schemas register`). Raises RegistryFailed.
    """
    try:
        from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
        from confluent_kafka.schema_registry.error import SchemaRegistryError
    except ImportError as error:
        raise RegistryFailed(
            f"schema_registry_url needs more packages ({error}): pip install 'headrace-client[registry]'"
        ) from error

    def connected() -> SchemaRegistryClient:
        return SchemaRegistryClient({"url": url, "timeout": _TIMEOUT_S, **settings})

    def lookup(schema_id: int) -> AvroSchema:
        try:
            with connected() as client:
                found: AvroSchema = json.loads(client.get_schema(schema_id).schema_str or "{}")
        except Exception as error:  # of requests, of JSON, of the registry: the record can't be read, and that is all
            raise UnknownSchema(
                f"{url} gives no schema for the id {schema_id}: {error}", schema_id=schema_id
            ) from error
        return found

    codec = Codec("confluent", lookup=lookup)
    with connected() as client:
        for event_type in (*WRITTEN, *READ):
            schema = SCHEMAS[event_type]
            try:
                found = client.lookup_schema(full_name(event_type), Schema(json.dumps(schema.avro), "AVRO"))
            except SchemaRegistryError as error:
                if event_type in WRITTEN:
                    raise RegistryFailed(
                        f"{url} has no {full_name(event_type)} of this version ({error}): upgrade the deployment, and "
                        "run `headrace schemas register` there"
                    ) from error
            except Exception as error:
                raise RegistryFailed(f"the schema registry {url} does not answer: {error}") from error
            else:
                codec.learn_ours(int(found.schema_id or 0), schema.fingerprint)
    return codec
