"""What can go wrong in the streams: what ends a message, and what ends the process."""

from __future__ import annotations

from schemas.errors import ContractError


class MisplacedEvent(ContractError):
    """A readable event in a topic where it must not be: another tenant's, or of a kind that the topic does not hold.

    It is dead-lettered with this code, like bytes that can't be read.
    """

    code = "misplaced_event"


class StreamsError(Exception):
    """Base of what ends the process; `code` is stable, the message says what happened."""

    code = "streams"


class StageFailed(StreamsError):
    """A stage stopped on its own. Its supervisor starts the process again; the log holds all that was not done."""

    code = "stage_failed"


class StageStuck(StreamsError):
    """A partition has records and none was taken for too long: Faust's consumer has died without saying so."""

    code = "stage_stuck"


class CommitStuck(StreamsError):
    """Records are done and their offsets are not committed: Faust's count of them has a gap, or its commits hang."""

    code = "commit_stuck"
