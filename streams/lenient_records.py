"""Header names that are no UTF-8, for aiokafka: it would end the consumer over one, again after each restart.

Kafka's brokers take such records from any client. Names are decoded as they can be; nothing of ours depends on one.
aiokafka's fast reader is used until a batch trips over it, then that fetch goes through aiokafka's Python reader.
"""

from __future__ import annotations

from typing import Any

from aiokafka.consumer import fetcher
from aiokafka.record.default_records import _DefaultRecordBatchPy
from aiokafka.record.memory_records import MemoryRecords, _MemoryRecordsPy

_MAGIC_OFFSET = 16


def install() -> None:
    """From now on every consumer of this process reads so."""
    fetcher.MemoryRecords = _KeptRecords
    fetcher.PartitionRecords = LenientPartitionRecords


class _KeptRecords(MemoryRecords):  # type: ignore[misc]
    """What a fetch brought for a partition, with the bytes that it was made of."""

    def __init__(self, data: bytes) -> None:
        super().__init__(data)
        self.data = data


class LenientPartitionRecords(fetcher.PartitionRecords):  # type: ignore[misc]
    """Goes on with the record that could not be read, by other means."""

    _records: Any

    def __next__(self) -> Any:
        try:
            return super().__next__()
        except UnicodeDecodeError:
            if isinstance(self._records, _LenientRecords):
                raise
            # Records before next_fetch_offset were given already, and are skipped.
            self._records = _LenientRecords(self._records.data)
            self._records_iterator = self._unpack_records()
            return super().__next__()


class _LenientRecords(_MemoryRecordsPy):  # type: ignore[misc]
    def next_batch(self) -> Any:
        data = self._next_slice
        batch = super().next_batch()
        return _LenientBatch(data) if data[_MAGIC_OFFSET] >= 2 else batch  # older ones have no headers


class _LenientBatch(_DefaultRecordBatchPy):  # type: ignore[misc]
    _buffer: Any

    def _maybe_uncompress(self) -> None:
        super()._maybe_uncompress()
        if not isinstance(self._buffer, _LenientBytes):
            self._buffer = _LenientBytes(self._buffer)


class _LenientBytes(bytearray):
    """Of which only header names are ever decoded."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(index)
        return _LenientBytes(found) if isinstance(index, slice) else found

    def decode(self, encoding: str = "utf-8", errors: str = "backslashreplace") -> str:
        return super().decode(encoding, errors)
