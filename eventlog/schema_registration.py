"""Putting schemas into a schema registry: what a deployment does, through confluent-kafka's client. Blocking."""

from __future__ import annotations

import json
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from confluent_kafka.schema_registry import ConfigCompatibilityLevel, Schema, SchemaRegistryClient, ServerConfig
from confluent_kafka.schema_registry.error import SchemaRegistryError

from eventlog.errors import SchemaRefused, SchemaRegistryFailed
from eventlog.schema_registry_address import RegistryAddress
from schemas.catalog import AvroSchema

COMPATIBILITY = ConfigCompatibilityLevel.FULL_TRANSITIVE
_TIMEOUT_S = 10
_RETRIES = 2
_RETRY_WAIT_MS = 200
_REFUSALS = (409, 422)


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """Where a schema is in the registry. version: of its subject, from 1."""

    schema_id: int
    version: int


class SchemaRegistrar:
    """Makes schemas known to a registry. What is known already stays as it is, with the id that it has."""

    def __init__(self, address: RegistryAddress) -> None:
        self._url = address.url
        self._client = SchemaRegistryClient(_configuration(address))

    def register(self, subject: str, avro: AvroSchema) -> RegisteredSchema:
        """The schema's id and version. From now on its subject takes what is FULL_TRANSITIVE compatible, only.

        Raises SchemaRefused if it is not, and SchemaRegistryFailed.
        """
        schema = Schema(json.dumps(avro), "AVRO")
        try:
            self._client.set_config(subject, ServerConfig(compatibility=COMPATIBILITY))
            schema_id = self._client.register_schema(subject, schema)
            version = self._client.lookup_schema(subject, schema).version
        except SchemaRegistryError as error:
            if error.http_status_code in _REFUSALS:
                raise SchemaRefused(subject, self._url, error.error_message) from error
            raise SchemaRegistryFailed(self._url, f"answers {error.http_status_code}: {error.error_message}") from error
        except Exception as error:  # the client lets through what its HTTP library raises
            raise SchemaRegistryFailed(self._url, f"{type(error).__name__}: {error}") from error
        if version is None:
            raise SchemaRegistryFailed(self._url, f"tells no version of {subject}")
        return RegisteredSchema(schema_id, version)

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _configuration(address: RegistryAddress) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "url": address.url,
        "timeout": _TIMEOUT_S,
        "max.retries": _RETRIES,
        "retries.wait.ms": _RETRY_WAIT_MS,
    }
    if address.username is not None:
        settings["basic.auth.user.info"] = f"{address.username}:{address.password or ''}"
    if address.token is not None:
        settings |= {
            "bearer.auth.credentials.source": "STATIC_TOKEN",
            "bearer.auth.token": address.token,
            "bearer.auth.logical.cluster": "",  # a header of Confluent's cloud, which the client insists on
        }
    if address.ca_location is not None:
        settings["ssl.ca.location"] = str(address.ca_location)
    return settings
