"""librdkafka's security settings in Faust's words."""

from __future__ import annotations

import faust
import pytest

from streams.credentials import UnsupportedSecurity, credentials_of

SASL = {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": "streams", "sasl.password": "secret"}


@pytest.mark.parametrize("security", [{}, {"security.protocol": "plaintext"}])
def test_plaintext_needs_no_credentials(security: dict[str, str]) -> None:
    assert credentials_of(security) is None


@pytest.mark.parametrize("protocol", ["sasl_plaintext", "SASL_SSL"])
def test_user_and_password_go_over_with_their_mechanism(protocol: str) -> None:
    found = credentials_of({"security.protocol": protocol, **SASL})

    assert isinstance(found, faust.SASLCredentials)
    assert (found.username, found.password, found.mechanism.value) == ("streams", "secret", "SCRAM-SHA-256")
    assert found.protocol.value == protocol.upper()
    assert (found.ssl_context is not None) == (protocol == "SASL_SSL")


def test_tls_alone_has_a_context_that_checks_the_broker() -> None:
    found = credentials_of({"security.protocol": "ssl"})

    assert isinstance(found, faust.SSLCredentials)
    assert found.context.check_hostname


@pytest.mark.parametrize(
    "security", [{"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, {"security.protocol": "odd"}]
)
def test_what_faust_can_not_speak_is_refused_with_what_it_can(security: dict[str, str]) -> None:
    with pytest.raises(UnsupportedSecurity, match="use PLAIN or SCRAM"):
        credentials_of(security)
