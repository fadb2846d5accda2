"""A schema registry as readers use it: where it is, and one question.

confluent-kafka's client is for those who deploy (eventlog/schema_registration.py). It reads answers of any size, for as
long as they trickle in, and parses what they hold; on a reader's way each of these has a bound.
"""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from eventlog.clock import monotonic
from eventlog.schema_registry_address import RegistryAddress
from schemas.catalog import AvroSchema, parsed_schema
from schemas.errors import SchemaRegistryUnavailable, UnknownSchema, UnusableSchema

MAX_ANSWER_BYTES = 1024 * 1024
_ACCEPT = "application/vnd.schemaregistry.v1+json, application/json"
_NO_SUCH_SCHEMA = 40403  # Confluent's error code


class SchemaRegistry:
    """Threads may share it. patience_s: longest that a question goes on, the time to connect apart."""

    def __init__(
        self, address: RegistryAddress, *, patience_s: float = 5.0, clock: Callable[[], float] = monotonic
    ) -> None:
        self._clock = clock
        self._url = address.url.rstrip("/")
        self._patience_s = patience_s
        headers = {"Accept": _ACCEPT, "Accept-Encoding": "identity"}  # a small answer must not unpack to a large one
        if address.token is not None:
            headers["Authorization"] = f"Bearer {address.token}"
        self._client = httpx.Client(
            headers=headers,
            auth=(address.username, address.password or "") if address.username is not None else None,
            verify=True if address.ca_location is None else _trusting(address.ca_location),
            timeout=patience_s,
            # Questions are rare: a connection that is kept would be dead by the next one.
            limits=httpx.Limits(max_keepalive_connections=0),
        )

    def schema(self, schema_id: int) -> AvroSchema:
        """The schema behind an id.

        Raises UnknownSchema if there is none, UnusableSchema if it is none that can be read (not Avro, too large, too
        deep), SchemaRegistryUnavailable if nothing answers that is a schema registry.
        """
        try:
            status, body = self._get(f"{self._url}/schemas/ids/{schema_id}")
        except httpx.HTTPError as error:
            raise self._unavailable(f"does not answer ({type(error).__name__}: {error})") from error
        if status == 200 and len(body) > MAX_ANSWER_BYTES:
            raise UnusableSchema(f"the schema with the id {schema_id} takes more than {MAX_ANSWER_BYTES} bytes")
        answer = _json_object(body)
        if status == 404 and answer.get("error_code") == _NO_SUCH_SCHEMA:
            raise UnknownSchema(f"the schema registry knows no schema with the id {schema_id}", schema_id=schema_id)
        text = answer.get("schema")
        if status != 200 or not isinstance(text, str):
            raise self._unavailable(f"answers {status} and no schema")
        if (kind := answer.get("schemaType", "AVRO")) != "AVRO":
            raise UnusableSchema(f"the schema with the id {schema_id} is no Avro, it is {str(kind)[:20]!r}")
        return parsed_schema(text)

    def _get(self, url: str) -> tuple[int, bytes]:
        """Status and body, of which no more is read than shows that it is too large."""
        give_up_at = self._clock() + self._patience_s
        body = bytearray()
        with self._client.stream("GET", url) as response:
            for piece in response.iter_raw():
                body += piece
                if len(body) > MAX_ANSWER_BYTES:
                    break
                if self._clock() > give_up_at:
                    raise httpx.ReadTimeout(f"its answer takes more than {self._patience_s:g} s")
        return response.status_code, bytes(body)

    def _unavailable(self, what: str) -> SchemaRegistryUnavailable:
        return SchemaRegistryUnavailable(f"the schema registry at {self._url} {what}")

    def close(self) -> None:
        self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _trusting(ca_location: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(ca_location))


def _json_object(body: bytes) -> dict[str, object]:
    """Empty for what is none."""
    try:
        answer = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return answer if isinstance(answer, dict) else {}
