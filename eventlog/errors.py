"""What can go wrong between us and the log."""

from __future__ import annotations


class EventLogError(Exception):
    """Base of all; `code` is stable, the message says what to do."""

    code = "event_log"


class LogBusy(EventLogError):
    """The producer's bounded buffer is full: the broker is slower than we are. Shed load or wait; nothing was sent."""

    code = "log_busy"


class DeliveryFailed(EventLogError):
    """The broker did not acknowledge the record within the delivery time-out: it may or may not be in the log."""

    code = "delivery_failed"


class RecordRefused(DeliveryFailed):
    """The broker takes this record neither now nor later: it is too large, or there is no such topic, or no right to
    write to it.
    """

    code = "record_refused"


class LogUnreachable(EventLogError):
    """No broker answered."""

    code = "log_unreachable"


class TopicError(EventLogError):
    """A topic could not be created or has another shape than the topic table says."""

    code = "topic"
