"""Records that are ready to be sent: the only place where the client makes events, ids and headers."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from headrace_client.clock import now_us
from headrace_client.contract.codec import Codec
from headrace_client.contract.errors import ContractError
from headrace_client.contract.events import RequestCancelled, RequestSubmitted
from headrace_client.contract.headers import Headers, continued_traceparent, headers_of
from headrace_client.contract.ids import RANDOM_BITS, new_request_id
from headrace_client.errors import DeliveryFailed, InvalidRequest
from headrace_client.log_tail import Place
from headrace_client.requests import RequestFields, build_request
from headrace_client.submission import DeliveryWaiter, Submission

OnDelivery = Callable[[Submission, DeliveryFailed | None], None]


class Draft(NamedTuple):
    """A record that is ready to be sent, as often as it takes."""

    submission: Submission
    topic: str
    value: bytes
    headers: Headers
    on_delivery: OnDelivery | None
    is_request: bool


class Drafts:
    """Threads may share it. source: the service's name, in events and headers."""

    def __init__(self, source: str, codec: Codec) -> None:
        self._source = source
        self._codec = codec

    def request(
        self,
        fields: RequestFields,
        place: Place,
        waiter: DeliveryWaiter,
        *,
        traceparent: str | None,
        on_delivery: OnDelivery | None,
    ) -> Draft:
        """Of a new request. Raises InvalidRequest."""
        now = now_us()
        request = build_request(fields, request_id=_new_id(place, now), now_us=now, source=self._source)
        return self._draft(request, place, waiter, traceparent, on_delivery)

    def again(self, submission: Submission, place: Place, waiter: DeliveryWaiter) -> Draft:
        """Of the same request under a new id."""
        now = now_us()
        fields = {**submission.request.__dict__, "request_id": _new_id(place, now), "at_us": now}
        return self._draft(RequestSubmitted(**fields), place, waiter, None, None)

    def cancel(self, submission: Submission, place: Place, reason: str) -> Draft:
        """Of the cancel of a request: the same key on the same topic, so behind it. Raises InvalidRequest."""
        event = RequestCancelled(
            request_id=submission.request_id, tenant=submission.tenant, at_us=now_us(), reason=reason
        )  # fmt: skip
        headers = headers_of(event, source=self._source)
        return Draft(submission, place.requests_topic, self._encoded(event), headers, None, False)

    def _draft(
        self,
        request: RequestSubmitted,
        place: Place,
        waiter: DeliveryWaiter,
        traceparent: str | None,
        on_delivery: OnDelivery | None,
    ) -> Draft:
        trace = None if traceparent is None else continued_traceparent(traceparent, request.request_id)
        value = self._encoded(request)
        headers = headers_of(request, source=self._source, traceparent=trace)
        submission = Submission(request.request_id, place.tenant, place.partition, value, self._codec, waiter)
        return Draft(submission, place.requests_topic, value, headers, on_delivery, True)

    def _encoded(self, event: RequestSubmitted | RequestCancelled) -> bytes:
        try:
            return self._codec.encode(event)
        except ContractError as error:
            raise InvalidRequest(str(error)) from error


def _new_id(place: Place, now: int) -> str:
    return new_request_id(now_ms=now // 1000, partition=place.partition, entropy=secrets.randbits(RANDOM_BITS))
