"""Cancels that stand in a paused partition, behind orders that there is no room for.

A second reader goes over what is queued up there, by assignment and from where the group's consumer stopped, for
nothing but cancels. Each stretch is read ahead once, however often the partition is paused.
"""

from __future__ import annotations

from collections.abc import Iterator

from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.record import OnUnreadable
from gpu_consumers.partition import HeldPartition
from schemas.errors import ContractError
from schemas.events import RequestCancelled

_CANCEL_TYPE = b"headrace.v1.RequestCancelled"


class Lookahead:
    """Owned by the intake's thread; nothing here waits."""

    def __init__(self, profile: BrokerProfile, *, client_id: str, unreadable: OnUnreadable) -> None:
        self._reader = LogReader(profile, client_id=f"{client_id}-ahead")
        self._unreadable = unreadable
        self._partitions: dict[tuple[str, int], HeldPartition] = {}

    def begin(self, partition: HeldPartition) -> None:
        """The partition was paused."""
        position = partition.topic, partition.partition
        self._partitions[position] = partition
        self._reader.assign(*position, max(partition.ahead_offset, partition.next_offset or 0))

    def end(self, partition: HeldPartition) -> None:
        """The partition goes on, or is gone. One that was not begun is none."""
        position = partition.topic, partition.partition
        if self._partitions.pop(position, None) is not None:
            self._reader.unassign(*position)

    def cancels(self) -> Iterator[tuple[HeldPartition, RequestCancelled]]:
        """Those that were found since the last call."""
        for record in self._reader.poll(0.0).records:
            partition = self._partitions.get((record.topic, record.partition))
            if partition is None:
                continue
            partition.ahead_offset = record.offset + 1
            if record.header("ce_type") != _CANCEL_TYPE:
                continue
            try:
                event = record.event()
            except ContractError as error:
                self._unreadable(error)
                continue  # the group's consumer comes to it
            if isinstance(event, RequestCancelled):
                yield partition, event

    def close(self) -> None:
        self._reader.close()
