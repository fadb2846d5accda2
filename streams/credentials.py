"""librdkafka's security settings, which the whole system is configured with, in Faust's words."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from typing import Any

import faust
from faust.types.auth import CredentialsT

from streams.errors import StreamsError


class UnsupportedSecurity(StreamsError):
    """Faust cannot speak to a broker with these settings."""

    code = "unsupported_security"


def credentials_of(security: Mapping[str, str]) -> CredentialsT | None:
    """Credentials for plaintext (None), TLS, or SASL by user and password. Raises UnsupportedSecurity."""
    protocol = security.get("security.protocol", "plaintext").upper()
    if protocol == "PLAINTEXT":
        return None
    context = _tls(security) if protocol.endswith("SSL") else None
    if protocol == "SSL":
        return faust.SSLCredentials(context)
    mechanism = security.get("sasl.mechanism", security.get("sasl.mechanisms", "PLAIN"))
    if protocol not in ("SASL_PLAINTEXT", "SASL_SSL") or mechanism not in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"):
        raise UnsupportedSecurity(
            f"security.protocol {protocol} with sasl.mechanism {mechanism} is not supported by the streams; "
            "use PLAIN or SCRAM with SASL_SSL or SASL_PLAINTEXT, or SSL alone"
        )
    settings: dict[str, Any] = {"mechanism": mechanism, "ssl_context": context}
    return faust.SASLCredentials(
        username=security.get("sasl.username", ""), password=security.get("sasl.password", ""), **settings
    )


def _tls(security: Mapping[str, str]) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=security.get("ssl.ca.location"))
    certificate = security.get("ssl.certificate.location")
    if certificate:
        context.load_cert_chain(certificate, security.get("ssl.key.location"), security.get("ssl.key.password"))
    return context
