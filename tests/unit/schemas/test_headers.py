"""Headers, held against CloudEvents 1.0 (Kafka protocol binding) and W3C Trace Context."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.catalog import published_schema
from schemas.events import (
    EVENT_TYPES,
    AdapterRegistered,
    ApiKeyRevoked,
    DeadLetterRequeued,
    Event,
    RequestCancelled,
    RequestSubmitted,
)
from schemas.headers import (
    continued_traceparent,
    event_id_of,
    headers_of,
    is_traceparent,
    own_traceparent,
    rfc3339,
)
from tests.property.test_codec import events

REQUEST_ID = "0192f3a0-1111-7222-8333-444444440005"
TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
SPAN = "00f067aa0ba902b7"
RECEIVED = f"00-{TRACE}-{SPAN}-01"
# The grammar of version 00: W3C Trace Context, 3.2.2.
W3C = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
# CloudEvents 1.0, "Type System": characters that no attribute may hold.
FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
FEW = settings(max_examples=20)  # of each type of event
ANY_TEXT = st.text(max_size=60)


def cancelled(request_id: str = REQUEST_ID, **other: Any) -> RequestCancelled:
    return RequestCancelled(request_id=request_id, tenant="acme", at_us=1_764_489_600_000_001, reason="client", **other)


def headers(event: Event, **options: Any) -> dict[str, str]:
    """By name, which none has twice."""
    found = headers_of(event, **{"source": "/headrace/test", **options})
    by_name = {name: value.decode() for name, value in found}
    assert len(by_name) == len(found)
    return by_name


def test_an_event_of_a_request_has_the_six_attributes_and_our_two() -> None:
    assert headers(cancelled()) == {
        "ce_specversion": "1.0",
        "ce_id": f"RequestCancelled/{REQUEST_ID}/1764489600000001",
        "ce_type": "headrace.v1.RequestCancelled",
        "ce_source": "/headrace/test",
        "ce_time": "2025-11-30T08:00:00.000001Z",
        "traceparent": "00-0192f3a0111172228333444444440005-8333444444440005-01",
        "request_id": REQUEST_ID,
        "tenant": "acme",
    }


def test_an_event_of_no_tenant_has_no_tenant_header() -> None:
    adapter = AdapterRegistered(adapter="a", at_us=1, model_version="m@v1", location="/a")
    assert "tenant" not in headers(adapter)
    assert headers(replace(adapter, tenant="acme"))["tenant"] == "acme"


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda cls: cls.__name__)
def test_every_event_has_headers_that_the_specifications_allow(event_type: type[Event]) -> None:
    @FEW
    @given(events(event_type))
    def allowed(event: Event) -> None:
        found = headers(event)
        assert {"ce_specversion", "ce_id", "ce_type", "ce_source", "ce_time", "traceparent"} <= found.keys()
        assert all(value and not FORBIDDEN.search(value) for name, value in found.items() if name.startswith("ce_"))
        assert RFC3339.fullmatch(found["ce_time"])
        assert W3C.fullmatch(found["traceparent"])

    allowed()


@pytest.mark.parametrize("event_type", EVENT_TYPES, ids=lambda cls: cls.__name__)
def test_ids_are_equal_for_the_same_fact_and_differ_for_others(event_type: type[Event]) -> None:
    identity = published_schema(event_type)["identity"]

    @FEW
    @given(events(event_type), events(event_type))
    def tells_apart(one: Event, other: Event) -> None:
        same = {name: getattr(one, name) for name in identity}
        assert event_id_of(replace(other, **same)) == event_id_of(one)
        is_same_fact = all(getattr(other, name) == value for name, value in same.items())
        assert (event_id_of(other) == event_id_of(one)) is is_same_fact

    tells_apart()


@given(st.tuples(ANY_TEXT, ANY_TEXT), st.tuples(ANY_TEXT, ANY_TEXT))
def test_no_text_in_a_value_passes_for_another_value(one: tuple[str, str], other: tuple[str, str]) -> None:
    def event_id(tenant: str, key_id: str) -> str:
        return event_id_of(ApiKeyRevoked(tenant=tenant, key_id=key_id, at_us=1))

    assert (event_id(*one) == event_id(*other)) is (one == other)


@pytest.mark.parametrize(
    ("one", "other"),
    [(("a/b", "c"), ("a", "b/c")), (("a%2Fb", "c"), ("a/b", "c")), (("", "/"), ("/", "")), (("\n", ""), ("%0A", ""))],
)
def test_slashes_and_percent_signs_are_told_apart(one: tuple[str, str], other: tuple[str, str]) -> None:
    ids = [event_id_of(ApiKeyRevoked(tenant=tenant, key_id=key, at_us=1)) for tenant, key in (one, other)]
    assert ids[0] != ids[1]
    assert not any(FORBIDDEN.search(event_id) for event_id in ids)


def test_an_id_of_letters_beyond_ascii_is_kept_readable() -> None:
    assert event_id_of(ApiKeyRevoked(tenant="große-fische", key_id="名", at_us=1)) == "ApiKeyRevoked/große-fische/名/1"
    assert headers(cancelled("größe"))["request_id"] == "größe"


def test_the_type_is_a_part_of_the_id() -> None:
    requeued = DeadLetterRequeued(
        at_us=1, origin_topic="t", origin_partition=0, origin_offset=1, requeued_offset=2, operator="me"
    )
    assert event_id_of(requeued) == "DeadLetterRequeued/t/0/1/2"


def test_a_source_is_a_uri_reference_whatever_the_part_calls_itself() -> None:
    assert headers(cancelled(), source="/headrace/a b\u00fc\n%41")["ce_source"] == "/headrace/a%20b%C3%BC%0A%41"


@pytest.mark.parametrize(
    ("at_us", "text"),
    [
        (0, "1970-01-01T00:00:00.000000Z"),
        (-1, "1969-12-31T23:59:59.999999Z"),
        (1_709_210_096_000_700, "2024-02-29T12:34:56.000700Z"),
        (-62_135_596_800_000_000, "0001-01-01T00:00:00.000000Z"),
        (253_402_300_799_999_999, "9999-12-31T23:59:59.999999Z"),
        (253_402_300_800_000_000, "9999-12-31T23:59:59.000000Z"),
        (-(1 << 63), "0001-01-01T00:00:00.224192Z"),
        ((1 << 63) - 1, "9999-12-31T23:59:59.775807Z"),
    ],
)
def test_times_are_rfc3339_up_to_the_ends_of_the_calendar(at_us: int, text: str) -> None:
    assert rfc3339(at_us) == text


@given(st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC)))  # noqa: DTZ001
def test_a_time_in_the_calendar_comes_back(at: datetime) -> None:
    since = at - datetime(1970, 1, 1, tzinfo=UTC)
    assert datetime.fromisoformat(rfc3339((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)) == at


@given(st.uuids().map(str) | ANY_TEXT | st.text("0-", max_size=40) | st.text("0123456789abcdef", min_size=30))
def test_a_trace_is_valid_for_any_request_id(request_id: str) -> None:
    own = own_traceparent(request_id)
    assert W3C.fullmatch(own.decode())
    assert is_traceparent(own)
    assert own_traceparent(request_id) == own
    assert W3C.fullmatch(continued_traceparent(RECEIVED, request_id).decode())


@pytest.mark.parametrize("request_id", ["", "0" * 32, "1" * 16 + "0" * 16, "0" * 8 + "-" * 4 + "0" * 24, "\ud800" * 36])
def test_an_id_that_gives_no_trace_has_one_all_the_same(request_id: str) -> None:
    assert W3C.fullmatch(own_traceparent(request_id).decode())


def test_a_clients_trace_goes_on_with_the_requests_own_span() -> None:
    assert continued_traceparent(RECEIVED, REQUEST_ID) == f"00-{TRACE}-8333444444440005-01".encode()
    assert continued_traceparent(f" {RECEIVED}\t", REQUEST_ID) == f"00-{TRACE}-8333444444440005-01".encode()


@pytest.mark.parametrize(("received", "kept"), [("00", "00"), ("01", "01"), ("03", "01"), ("fe", "00"), ("ff", "01")])
def test_only_the_sampled_flag_goes_on(received: str, kept: str) -> None:
    continued = continued_traceparent(f"00-{TRACE}-{SPAN}-{received}", REQUEST_ID)
    assert continued == f"00-{TRACE}-8333444444440005-{kept}".encode()


@pytest.mark.parametrize(
    "received",
    [f"01-{TRACE}-{SPAN}-01", f"01-{TRACE}-{SPAN}-01-what-comes", f"fe-{TRACE}-{SPAN}-01-"],
    ids=["as now", "with more", "with an end"],
)
def test_a_version_to_come_goes_on_as_version_00(received: str) -> None:
    assert continued_traceparent(received, REQUEST_ID) == f"00-{TRACE}-8333444444440005-01".encode()


@pytest.mark.parametrize(
    "received",
    [
        "",
        "00",
        RECEIVED.upper(),
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01-",
        f"01-{TRACE}-{SPAN}-01more",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}a-{SPAN}-01",
        f"00-{TRACE[:-1]}g-{SPAN}-01",
        f"00-{TRACE}-{SPAN[:-1]}-01",
        f"00_{TRACE}_{SPAN}_01",
        f"{RECEIVED},{RECEIVED}",
        f"{RECEIVED}\n",
        f"00-{chr(0xFF11) * 32}-{SPAN}-01",
        "x" * 100_000,
    ],
)
def test_what_is_no_traceparent_is_ignored(received: str) -> None:
    assert continued_traceparent(received, REQUEST_ID) == own_traceparent(REQUEST_ID)
    assert not is_traceparent(received.encode())


@given(st.binary(max_size=60) | st.text("0123456789abcdef-", min_size=55, max_size=55).map(str.encode))
def test_any_header_of_another_service_is_looked_at_without_harm(received: bytes) -> None:
    assert not is_traceparent(received) or re.fullmatch(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", received)


def test_a_record_hands_on_the_trace_that_it_was_given() -> None:
    submitted = RequestSubmitted(
        request_id=REQUEST_ID, tenant="acme", at_us=1, received_at_us=1, source="test", model="chat", messages=()
    )
    assert headers(submitted, traceparent=RECEIVED.encode())["traceparent"] == RECEIVED
