"""Schema ids from a schema registry, for those who set `schema_registry_url` (extra `registry`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from headrace_client.clock import monotonic
from headrace_client.contract.catalog import AvroSchema, parsed_schema
from headrace_client.contract.codec import SCHEMAS, Codec, full_name
from headrace_client.contract.errors import SchemaRegistryUnavailable, UnknownSchema
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
_LOOKUP_S = 2
_CLOSED_S = 10.0


class RegistryLookup:
    """Asks for schema ids that the registry has not told beforehand; owned by the thread that reads results.

    After a failure nothing is asked for `_CLOSED_S`: a registry that is down must not hold up every record.
    """

    def __init__(self, url: str, ask: Callable[[int], str], *, clock: Callable[[], float] = monotonic) -> None:
        """ask: the schema's text; raises whatever an HTTP client and a registry make up."""
        self._url = url
        self._ask = ask
        self._clock = clock
        self._closed_until = float("-inf")
        self._why = ""

    def __call__(self, schema_id: int) -> AvroSchema:
        """Raises UnknownSchema, SchemaRegistryUnavailable and UnusableSchema."""
        if self._clock() < self._closed_until:
            raise SchemaRegistryUnavailable(f"{self._url} is not asked now: {self._why}", schema_id=schema_id)
        try:
            text = self._ask(schema_id)
        except Exception as error:
            if getattr(error, "http_status_code", None) == 404:
                raise UnknownSchema(f"{self._url} has no schema id {schema_id}", schema_id=schema_id) from error
            self._closed_until, self._why = self._clock() + _CLOSED_S, str(error)
            raise SchemaRegistryUnavailable(f"{self._url} does not answer: {error}", schema_id=schema_id) from error
        return parsed_schema(text)


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

    def ask(schema_id: int) -> str:
        with SchemaRegistryClient({"url": url, "timeout": _LOOKUP_S, "max.retries": 0, **settings}) as client:
            return client.get_schema(schema_id).schema_str or ""

    codec = Codec("confluent", lookup=RegistryLookup(url, ask))
    try:
        registry = SchemaRegistryClient({"url": url, "timeout": _TIMEOUT_S, **settings})
    except (ValueError, TypeError) as error:
        raise RegistryFailed(f"no schema registry can be asked with these settings: {error}") from error
    with registry as client:
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
