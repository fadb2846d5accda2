"""Events of one request, from its submission to the delivery of its answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Message:
    """One turn of the conversation."""

    role: str
    content: str


@dataclass(frozen=True, kw_only=True)
class LogitBias:
    """What is added to the logit of one token."""

    token_id: int
    bias: float


@dataclass(frozen=True, kw_only=True)
class TokenLogprob:
    """A token that was likely in this place."""

    token_id: int
    utf8: bytes
    logprob: float


@dataclass(frozen=True, kw_only=True)
class TokenLogprobs:
    """How likely a token of the output was, and which would have been likelier."""

    logprob: float
    utf8: bytes
    top: tuple[TokenLogprob, ...]


@dataclass(frozen=True, kw_only=True)
class RequestSubmitted:
    """A client asked for a response. Written by the gateway or by any other service."""

    request_id: str
    tenant: str
    at_us: int
    received_at_us: int
    source: str
    endpoint: str = "events"
    model: str
    messages: tuple[Message, ...]
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    deadline_at_us: int | None = None
    end_user: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: tuple[LogitBias, ...] = ()
    top_logprobs: int | None = None
    json_schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class RequestCancelled:
    """A client no longer wants the response."""

    request_id: str
    tenant: str
    at_us: int
    reason: str


@dataclass(frozen=True, kw_only=True)
class RequestValidated:
    """The request is well-formed and the model can serve it; its prompt is tokenized."""

    request_id: str
    tenant: str
    at_us: int
    started_at_us: int
    received_at_us: int
    submitted_at_us: int
    model: str
    tokenized_for: str
    prompt_token_ids: tuple[int, ...]
    max_output_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int
    stop: tuple[str, ...]
    deadline_at_us: int | None = None
    end_user: str | None = None
    endpoint: str = "events"
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[LogitBias, ...] = ()
    top_logprobs: int | None = None
    json_schema: str | None = None


@dataclass(frozen=True, kw_only=True)
class RequestRejected:
    """The request ends here, with the reason that its client sees."""

    request_id: str
    tenant: str
    at_us: int
    stage: str
    status: int
    error_type: str
    code: str
    message: str
    param: str | None = None
    retry_after_ms: int | None = None


@dataclass(frozen=True, kw_only=True)
class RequestAdmitted:
    """The tenant's quota has room; prompt and most output are reserved."""

    request_id: str
    tenant: str
    at_us: int
    reserved_tokens: int
    limit_requests: int
    remaining_requests: int
    reset_requests_ms: int
    limit_tokens: int
    remaining_tokens: int
    reset_tokens_ms: int


@dataclass(frozen=True, kw_only=True)
class RequestRouted:
    """The work order: all that a GPU consumer needs to make the answer."""

    request_id: str
    tenant: str
    at_us: int
    admitted_at_us: int
    model: str
    model_version: str
    deployment: str
    reason: str
    prompt_token_ids: tuple[int, ...]
    max_output_tokens: int
    temperature: float
    top_p: float
    top_k: int
    seed: int
    stop: tuple[str, ...]
    deadline_at_us: int | None = None
    priority: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: tuple[LogitBias, ...] = ()
    top_logprobs: int | None = None
    json_schema: str | None = None
    adapter: str | None = None
    adapter_registered_at_us: int | None = None
    adapter_location: str | None = None


@dataclass(frozen=True, kw_only=True)
class GenerationStarted:
    """A worker gave the request a place in its batch."""

    request_id: str
    tenant: str
    attempt: int
    at_us: int
    pulled_at_us: int
    worker: str
    deployment: str
    model_version: str
    prompt_tokens: int
    resumed_output_tokens: int = 0
    cached_prompt_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class TokensGenerated:
    """Tokens of one request, of one or more steps, with the text that they complete."""

    request_id: str
    tenant: str
    attempt: int
    at_us: int
    index: int
    token_ids: tuple[int, ...]
    text_offset_chars: int
    text: str
    logprobs: tuple[TokenLogprobs, ...] = ()


@dataclass(frozen=True, kw_only=True)
class GenerationFinished:
    """The answer is whole (or was cut by a limit or a cancel). Terminal."""

    request_id: str
    tenant: str
    attempt: int
    at_us: int
    worker: str
    deployment: str
    model_version: str
    finish_reason: str
    prompt_tokens: int
    output_tokens: int
    first_token_at_us: int | None = None
    cached_prompt_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class GenerationFailed:
    """The request can't be answered. Terminal."""

    request_id: str
    tenant: str
    attempt: int
    at_us: int
    worker: str
    deployment: str
    model_version: str
    status: int
    error_type: str
    code: str
    message: str
    prompt_tokens: int
    output_tokens: int
    first_token_at_us: int | None = None


@dataclass(frozen=True, kw_only=True)
class QuotaSettled:
    """The reservation was replaced by what was used."""

    request_id: str
    tenant: str
    at_us: int
    reserved_tokens: int
    prompt_tokens: int
    output_tokens: int
    released_tokens: int


@dataclass(frozen=True, kw_only=True)
class ResponseDelivered:
    """The last byte of the response was handed to the client's connection."""

    request_id: str
    tenant: str
    at_us: int
    gateway: str
    transport: str
    first_delta_at_us: int | None = None
    events: int
    resumed_after: int = -1
