"""What an event on `validated` leads to: admissions, refusals, settlements, cancels, and the same again."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

from eventlog.registry import Registry
from schemas.events import (
    AdapterRegistered,
    GenerationFailed,
    LogitBias,
    QuotaSettled,
    RequestAdmitted,
    RequestCancelled,
    RequestRejected,
    RequestRouted,
    TenantRegistered,
)
from streams.decide import (
    NOTHING,
    Verdict,
    decide_admission,
    decide_cancel,
    decide_settlement,
    limits_of,
)
from streams.entry import Entry, decode_entry, encode_entry
from streams.quota import Ledger, full_ledger
from tests.unit.streams.samples import NOW_US, SECOND_US, finished, model, registry, request_id, tenant, validated

LATER_US = NOW_US + 7


def admit(
    offset: int = 0,
    *,
    entry: Entry | None = None,
    ledger: Ledger | None = None,
    of: TenantRegistered | None = None,
    catalog: Registry | None = None,
    **changes: Any,
) -> Verdict:
    return decide_admission(
        validated(**changes),
        offset,
        entry=entry,
        ledger=ledger,
        tenant=of or tenant(),
        catalog=catalog or registry(),
        now_us=LATER_US,
    )


def entry_of(verdict: Verdict) -> Entry:
    assert verdict.entry is not None
    return verdict.entry


def refused(verdict: Verdict) -> RequestRejected:
    (output,) = verdict.outputs
    assert isinstance(output.event, RequestRejected)
    assert (output.topic, output.partition) == ("tokens.acme", 2)
    return output.event


def test_an_admitted_request_is_announced_in_its_token_log_and_sent_to_work() -> None:
    verdict = admit()

    admitted, routed = verdict.outputs
    assert (admitted.topic, admitted.partition, admitted.key) == ("tokens.acme", 2, request_id())
    assert isinstance(admitted.event, RequestAdmitted)
    assert (admitted.event.reserved_tokens, admitted.event.remaining_tokens) == (30, 5970)
    assert (admitted.event.limit_requests, admitted.event.remaining_requests) == (60, 59)
    assert (routed.topic, routed.partition, routed.key) == ("work.chat-v1.acme", None, request_id())
    assert isinstance(routed.event, RequestRouted)
    assert (routed.event.model_version, routed.event.deployment) == ("chat@v1", "chat-v1")
    assert (routed.event.reason, routed.event.admitted_at_us) == ("pinned version", LATER_US)


def test_the_work_order_carries_everything_that_generation_needs() -> None:
    event = validated(
        temperature=0.5, top_p=0.9, top_k=4, seed=11, stop=("x",), deadline_at_us=NOW_US + 9, min_p=0.1,
        repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=-0.5, top_logprobs=2, json_schema="{}",
        logit_bias=(LogitBias(token_id=3, bias=-1.0),),
    )  # fmt: skip
    catalog = registry(model(engine="torch"))

    verdict = decide_admission(event, 0, entry=None, ledger=None, tenant=tenant(), catalog=catalog, now_us=LATER_US)

    routed = verdict.outputs[1].event
    shared = {field.name for field in fields(RequestRouted)} & {field.name for field in fields(event)} - {"at_us"}
    assert {name: getattr(routed, name) for name in shared} == {name: getattr(event, name) for name in shared}
    assert len(shared) > 16


def test_an_adapter_goes_to_the_deployment_of_its_base_version_and_is_told_again_the_same() -> None:
    adapter = AdapterRegistered(adapter="tone@v1", at_us=NOW_US, model_version="chat@v1", location="/a", tenant="acme")
    catalog = registry().apply(adapter)

    first = admit(model="tone@v1", catalog=catalog)

    routed = first.outputs[1]
    assert isinstance(routed.event, RequestRouted)
    assert (routed.topic, routed.event.model, routed.event.model_version) == ("work.chat-v1.acme", "tone@v1", "chat@v1")
    named = (routed.event.adapter, routed.event.adapter_registered_at_us, routed.event.adapter_location)
    assert named == ("tone@v1", NOW_US, "/a")
    anew = registry().apply(replace(adapter, at_us=LATER_US, location="/b"))
    stored = decode_entry(encode_entry(entry_of(first)))
    for since in (registry(), anew):
        assert admit(model="tone@v1", catalog=since, entry=stored).outputs == first.outputs


def test_another_tenants_adapter_is_a_404_of_route() -> None:
    adapter = AdapterRegistered(adapter="tone@v1", at_us=NOW_US, model_version="chat@v1", location="/a", tenant="bolt")

    rejected = refused(admit(model="tone@v1", catalog=registry().apply(adapter)))

    assert (rejected.status, rejected.code, rejected.stage) == (404, "model_not_found", "route")


def test_the_ledger_goes_by_the_events_time_and_the_stamp_by_the_clock() -> None:
    verdict = admit(at_us=NOW_US)

    assert entry_of(verdict).ledger.as_of_us == NOW_US
    assert entry_of(verdict).decision.at_us == LATER_US


def test_the_same_record_again_says_the_same_again_and_reserves_nothing() -> None:
    first = admit(offset=4)

    again = admit(offset=4, entry=entry_of(first), ledger=entry_of(first).ledger)

    assert again == Verdict(entry=None, outputs=first.outputs)


def test_another_record_of_the_same_request_says_nothing() -> None:
    first = admit(offset=4)

    assert admit(offset=5, entry=entry_of(first), ledger=entry_of(first).ledger) == NOTHING


def test_a_refusal_is_known_to_its_duplicates_too() -> None:
    first = admit(offset=4, of=tenant(tokens_per_minute=10))

    assert admit(offset=4, entry=entry_of(first)).outputs == first.outputs
    assert admit(offset=5, entry=entry_of(first)) == NOTHING


def test_over_quota_is_a_429_that_says_when_to_come_back() -> None:
    limits = limits_of(tenant())
    used_up = replace(full_ledger(limits, now_us=NOW_US), tokens=0)

    rejected = refused(admit(ledger=used_up))

    assert (rejected.status, rejected.error_type, rejected.code) == (429, "rate_limit_error", "token_rate_exceeded")
    assert rejected.retry_after_ms == 300
    assert "try again in 300 ms" in rejected.message


@pytest.mark.parametrize(
    ("ledger_changes", "limits", "status", "code"),
    [
        ({"requests": 0}, {}, 429, "request_rate_exceeded"),
        ({"open_requests": 8}, {}, 429, "concurrency_exceeded"),
        ({}, {"tokens_per_minute": 29}, 422, "request_exceeds_quota"),
        ({}, {"requests_per_minute": 0}, 422, "quota_is_zero"),
    ],
)
def test_each_limit_has_its_own_code(
    ledger_changes: dict[str, int], limits: dict[str, int], status: int, code: str
) -> None:
    of = tenant(**limits)
    ledger = replace(full_ledger(limits_of(of), now_us=NOW_US), **ledger_changes)

    rejected = refused(admit(ledger=ledger, of=of))

    assert (rejected.status, rejected.code) == (status, code)
    assert (rejected.retry_after_ms is None) == (status == 422)


def test_a_model_that_went_since_validation_is_a_404_of_route() -> None:
    rejected = refused(admit(catalog=registry(model("other@v1"))))

    assert (rejected.stage, rejected.status, rejected.code) == ("route", 404, "model_not_found")


def test_a_tenant_that_nobody_registered_is_refused() -> None:
    verdict = decide_admission(
        validated(), 0, entry=None, ledger=None, tenant=None, catalog=registry(), now_us=LATER_US
    )

    assert refused(verdict).status == 403
    assert verdict.entry is None


def settle(offset: int, entry: Entry | None, **changes: int) -> Verdict:
    return decide_settlement(
        finished(**changes),
        offset,
        entry=entry,
        ledger=None if entry is None else entry.ledger,
        tenant=tenant(),
        now_us=LATER_US,
    )


def test_the_end_of_a_request_settles_its_reservation() -> None:
    admitted = entry_of(admit(offset=0))

    verdict = settle(1, admitted, prompt=10, output=5)

    (output,) = verdict.outputs
    assert output.topic == "lifecycle.acme"
    assert isinstance(output.event, QuotaSettled)
    assert (output.event.reserved_tokens, output.event.released_tokens) == (30, 15)
    assert entry_of(verdict).ledger.reserved_tokens == 0
    assert entry_of(verdict).ledger.tokens == admitted.ledger.tokens + 15 * 60_000_000


def failed(status: int, code: str) -> GenerationFailed:
    """Before its first token."""
    return GenerationFailed(
        request_id=request_id(),
        tenant="acme",
        attempt=1,
        at_us=NOW_US + SECOND_US,
        worker="w",
        deployment="chat-v1",
        model_version="chat@v1",
        status=status,
        error_type="",
        code=code,
        message="",
        prompt_tokens=10,
        output_tokens=0,
    )


def test_a_failed_generation_settles_too() -> None:
    admitted = entry_of(admit())
    event = failed(500, "worker_lost")

    verdict = decide_settlement(event, 1, entry=admitted, ledger=admitted.ledger, tenant=tenant(), now_us=LATER_US)

    assert entry_of(verdict).ledger.open_requests == 0


@pytest.mark.parametrize("code", ["adapter_unavailable", "not_servable"])
def test_a_request_that_a_worker_refuses_costs_no_tokens(code: str) -> None:
    admitted = entry_of(admit())
    event = replace(failed(422, code), at_us=NOW_US)

    verdict = decide_settlement(event, 1, entry=admitted, ledger=admitted.ledger, tenant=tenant(), now_us=LATER_US)

    (output,) = verdict.outputs
    assert isinstance(output.event, QuotaSettled)
    assert (output.event.prompt_tokens, output.event.output_tokens, output.event.released_tokens) == (0, 0, 30)
    untouched = full_ledger(limits_of(tenant()), now_us=NOW_US)
    ledger = entry_of(verdict).ledger
    assert (ledger.tokens, ledger.reserved_tokens, ledger.open_requests) == (untouched.tokens, 0, 0)
    assert ledger.requests == admitted.ledger.requests, "it was one of the minute's requests"


def test_settling_twice_is_settling_once() -> None:
    first = settle(1, entry_of(admit(offset=0)))

    assert settle(2, entry_of(first)) == NOTHING
    assert settle(1, entry_of(first)) == Verdict(entry=None, outputs=first.outputs)


def test_what_was_never_admitted_is_not_settled() -> None:
    assert settle(1, None) == NOTHING
    assert settle(1, entry_of(admit(of=tenant(tokens_per_minute=10)))) == NOTHING


def test_a_cancel_goes_where_the_work_went_with_the_same_key() -> None:
    admitted = admit()
    work = admitted.outputs[1]
    cancel = RequestCancelled(request_id=request_id(), tenant="acme", at_us=NOW_US, reason="client")

    (output,) = decide_cancel(cancel, entry=entry_of(admitted)).outputs

    assert (output.topic, output.key, output.partition) == (work.topic, work.key, work.partition)
    assert output.event == cancel


def test_a_cancel_of_what_is_not_open_goes_nowhere() -> None:
    cancel = RequestCancelled(request_id=request_id(), tenant="acme", at_us=NOW_US, reason="client")
    settled = entry_of(settle(1, entry_of(admit(offset=0))))
    rejected = entry_of(admit(of=tenant(tokens_per_minute=10)))

    assert [decide_cancel(cancel, entry=entry) for entry in (None, settled, rejected)] == [NOTHING] * 3
