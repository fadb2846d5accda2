"""One submitted request, as its caller holds it."""

from __future__ import annotations

from typing import Protocol, cast

from headrace_client.contract.codec import Codec
from headrace_client.contract.events import RequestSubmitted
from headrace_client.contract.ids import response_id_of
from headrace_client.errors import DeliveryFailed


class DeliveryWaiter(Protocol):
    """Who can wait for a delivery report."""

    def wait_delivered(self, submission: Submission, timeout: float | None) -> None: ...


class Submission:
    """A request on its way. Compared by identity: two submissions are never the same request.

    request_id: as in every event of this request. partition: of the tenant's token log, where the answer will be.
    delivered: the broker has acknowledged the request. failure: it has not, and will not.

    The request itself is kept as the bytes that were written: one object for the garbage collector to look at, where
    the event would be six, for each of perhaps a hundred thousand that are open.
    """

    __slots__ = ("_codec", "_value", "_waiter", "delivered", "failure", "partition", "request_id", "tenant")

    def __init__(
        self, request_id: str, tenant: str, partition: int, value: bytes, codec: Codec, waiter: DeliveryWaiter
    ) -> None:
        self.request_id = request_id
        self.tenant = tenant
        self.partition = partition
        self.delivered = False
        self.failure: DeliveryFailed | None = None
        self._value = value
        self._codec = codec
        self._waiter = waiter

    @property
    def request(self) -> RequestSubmitted:
        """The event that was written."""
        return cast(RequestSubmitted, self._codec.decode(self._value))

    @property
    def response_id(self) -> str:
        """As in the HTTP and WebSocket API: `resp_...`; gateways find the response by it."""
        return response_id_of(self.request_id)

    def wait_delivered(self, timeout: float | None = None) -> None:
        """Block until the broker has acknowledged the request (asyncio: `await producer.delivered(submission)`).

        timeout: seconds; None: as long as it takes, which the delivery time-out bounds (30 s).

        Raises DeliveryFailed and ResultTimeout.
        """
        self._waiter.wait_delivered(self, timeout)

    def __repr__(self) -> str:
        state = "failed" if self.failure else "delivered" if self.delivered else "on its way"
        return f"<Submission {self.request_id} of {self.tenant}, {state}>"
