"""Quota and route: what one event on `validated` changes, and what is said about it. Pure.

Every function takes the entry that the table has for the request (None for a new one) and the tenant's ledger, and
gives the entry to store and the events to send. Records can come twice, and then:
- the same record read again (a restart) gives the same events again, because nobody knows whether they were sent;
- another record about a request that is decided already changes nothing and says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from schemas.events import (
    Event,
    GenerationFailed,
    GenerationFinished,
    QuotaSettled,
    RequestAdmitted,
    RequestCancelled,
    RequestRejected,
    RequestRouted,
    RequestValidated,
    TenantRegistered,
)
from schemas.ids import partition_of
from schemas.topics import lifecycle_topic, tokens_topic, work_topic
from schemas.usage import charged_tokens
from streams.entry import Entry, Placement
from streams.parameters import check_engine
from streams.quota import (
    Ledger,
    Limits,
    Refused,
    full_ledger,
    remaining_requests,
    remaining_tokens,
    reserve,
    settle,
)
from streams.route import Catalog, Resolution, resolve_tokenized


@dataclass(frozen=True, slots=True)
class Output:
    """An event on its way. partition None: by the hash of the key, which is the request id."""

    topic: str
    event: Event
    key: str
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """entry: to be stored; None when nothing changed."""

    entry: Entry | None = None
    outputs: tuple[Output, ...] = ()


NOTHING = Verdict()


def to_token_log(event: RequestAdmitted | RequestRejected) -> Output:
    """To the partition of the token log that the request id names."""
    return Output(tokens_topic(event.tenant), event, event.request_id, partition_of(event.request_id))


def limits_of(tenant: TenantRegistered) -> Limits:
    return Limits(tenant.requests_per_minute, tenant.tokens_per_minute, tenant.max_concurrent_requests)


def decide_admission(
    event: RequestValidated,
    offset: int,
    *,
    entry: Entry | None,
    ledger: Ledger | None,
    tenant: TenantRegistered | None,
    catalog: Catalog,
    now_us: int,
) -> Verdict:
    """Admit and route, or refuse. ledger None: the tenant's first request.

    now_us stamps what is sent; the ledger goes by the event's own time.
    """
    if entry is not None:
        return Verdict(outputs=_said(event, entry)) if entry.decided_at_offset == offset else NOTHING
    if tenant is None:
        message = f"the tenant {event.tenant!r} is not registered; register it, then send the request again"
        refusal = _rejected(event, now_us, "quota", 403, "permission_error", "tenant_not_found", message)
        return Verdict(outputs=(to_token_log(refusal),))
    limits = limits_of(tenant)
    ledger = ledger or full_ledger(limits, now_us=event.at_us)
    found = resolve_tokenized(
        event.model, event.tokenized_for, catalog, tenant=event.tenant, sticky=event.end_user or event.request_id,
        can_serve=lambda model: check_engine(event, model.engine, model.model_version) is None,
    )  # fmt: skip
    if not isinstance(found, Resolution):
        refusal = _rejected(
            event, now_us, "route", 404, "not_found_error", "model_not_found", found.message, param="model"
        )  # fmt: skip
        return _store(event, Entry(refusal, None, offset, ledger))
    tokens = len(event.prompt_token_ids) + event.max_output_tokens
    ledger, refused = reserve(ledger, limits, tokens=tokens, now_us=event.at_us)
    if refused is not None:
        return _store(event, Entry(_over_quota(event, refused, limits, tokens, now_us), None, offset, ledger))
    return _store(event, Entry(_admitted(event, ledger, limits, tokens, now_us), _placement(found), offset, ledger))


def decide_settlement(
    event: GenerationFinished | GenerationFailed,
    offset: int,
    *,
    entry: Entry | None,
    ledger: Ledger | None,
    tenant: TenantRegistered | None,
    now_us: int,
) -> Verdict:
    """Replace the request's reservation by what it is charged. A request that was never admitted has none."""
    if entry is None or not isinstance(entry.decision, RequestAdmitted):
        return NOTHING
    reserved = entry.decision.reserved_tokens
    prompt_tokens, output_tokens = charged_tokens(event)
    used = prompt_tokens + output_tokens
    settled = QuotaSettled(
        request_id=event.request_id,
        tenant=event.tenant,
        at_us=entry.settled_at_us or now_us,
        reserved_tokens=reserved,
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        released_tokens=reserved - used,
    )
    outputs = (Output(lifecycle_topic(event.tenant), settled, event.request_id),)
    if entry.settled_at_offset is not None:
        return Verdict(outputs=outputs) if entry.settled_at_offset == offset else NOTHING
    if ledger is None or tenant is None:
        return NOTHING
    ledger = settle(ledger, limits_of(tenant), reserved=reserved, used=used, now_us=event.at_us)
    return Verdict(replace(entry, settled_at_offset=offset, settled_at_us=now_us, ledger=ledger), outputs)


def decide_cancel(event: RequestCancelled, *, entry: Entry | None) -> Verdict:
    """Send the cancel after the work order: same topic, and by the same key same partition. Only while it is open."""
    if entry is None or entry.placement is None or not entry.is_open:
        return NOTHING
    topic = work_topic(entry.placement.deployment, event.tenant)
    return Verdict(outputs=(Output(topic, event, event.request_id),))


def _store(event: RequestValidated, entry: Entry) -> Verdict:
    return Verdict(entry, _said(event, entry))


def _said(event: RequestValidated, entry: Entry) -> tuple[Output, ...]:
    """The events of a decision, from its entry alone: told again, they are the same."""
    decision, placement = entry.decision, entry.placement
    if placement is None:
        return (to_token_log(decision),)
    routed = RequestRouted(
        request_id=event.request_id,
        tenant=event.tenant,
        at_us=decision.at_us,
        admitted_at_us=decision.at_us,
        model=event.model,
        model_version=placement.model_version,
        deployment=placement.deployment,
        reason=placement.reason,
        prompt_token_ids=event.prompt_token_ids,
        max_output_tokens=event.max_output_tokens,
        temperature=event.temperature,
        top_p=event.top_p,
        top_k=event.top_k,
        seed=event.seed,
        stop=event.stop,
        deadline_at_us=event.deadline_at_us,
        min_p=event.min_p,
        repetition_penalty=event.repetition_penalty,
        presence_penalty=event.presence_penalty,
        frequency_penalty=event.frequency_penalty,
        logit_bias=event.logit_bias,
        top_logprobs=event.top_logprobs,
        json_schema=event.json_schema,
        adapter=placement.adapter,
        adapter_registered_at_us=placement.adapter_registered_at_us,
        adapter_location=placement.adapter_location,
    )
    work = Output(work_topic(placement.deployment, event.tenant), routed, event.request_id)
    return (to_token_log(decision), work)


def _placement(found: Resolution) -> Placement:
    model, registration = found.model, found.registration
    if registration is None:
        return Placement(model.model_version, model.deployment, found.reason)
    return Placement(
        model.model_version, model.deployment, found.reason,
        registration.adapter, registration.at_us, registration.location,
    )  # fmt: skip


def _admitted(event: RequestValidated, ledger: Ledger, limits: Limits, tokens: int, now_us: int) -> RequestAdmitted:
    requests_left, tokens_left = remaining_requests(ledger, limits), remaining_tokens(ledger, limits)
    return RequestAdmitted(
        request_id=event.request_id,
        tenant=event.tenant,
        at_us=now_us,
        reserved_tokens=tokens,
        limit_requests=limits.requests_per_minute,
        remaining_requests=requests_left.units,
        reset_requests_ms=requests_left.reset_ms,
        limit_tokens=limits.tokens_per_minute,
        remaining_tokens=tokens_left.units,
        reset_tokens_ms=tokens_left.reset_ms,
    )


def _over_quota(event: RequestValidated, refused: Refused, limits: Limits, tokens: int, now_us: int) -> RequestRejected:
    need = f"prompt {len(event.prompt_token_ids)} plus max_output_tokens {event.max_output_tokens}"
    wait = f"try again in {refused.retry_after_ms} ms"
    match refused.code:
        case "quota_is_zero":
            message = "the tenant's quota allows no requests; ask for a quota"
        case "request_exceeds_quota":
            message = (
                f"the request can need {tokens} tokens ({need}) and the quota is {limits.tokens_per_minute} tokens a "
                "minute, so it can never be admitted; shorten it or lower max_output_tokens"
            )
        case "concurrency_exceeded":
            message = f"{limits.max_concurrent_requests} requests are open, as many as the quota allows; {wait}"
        case "request_rate_exceeded":
            message = f"the quota of {limits.requests_per_minute} requests a minute is used up; {wait}"
        case "token_rate_exceeded":
            message = (
                f"the request can need {tokens} tokens ({need}), more than is left of the quota of "
                f"{limits.tokens_per_minute} tokens a minute; {wait}"
            )
    if refused.retry_after_ms is None:
        return _rejected(event, now_us, "quota", 422, "invalid_request_error", refused.code, message)
    return _rejected(
        event, now_us, "quota", 429, "rate_limit_error", refused.code, message, retry_after_ms=refused.retry_after_ms
    )


def _rejected(
    event: RequestValidated,
    now_us: int,
    stage: str,
    status: int,
    error_type: str,
    code: str,
    message: str,
    *,
    param: str | None = None,
    retry_after_ms: int | None = None,
) -> RequestRejected:
    return RequestRejected(
        request_id=event.request_id,
        tenant=event.tenant,
        at_us=now_us,
        stage=stage,
        status=status,
        error_type=error_type,
        code=code,
        message=message,
        param=param,
        retry_after_ms=retry_after_ms,
    )
