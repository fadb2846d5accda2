"""What the streams need to know. Read from nowhere: whoever starts them passes it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from eventlog.profile import BrokerProfile
from schemas.topics import Topics

DAY_US = 24 * 60 * 60 * 1_000_000


@dataclass(frozen=True, slots=True)
class StreamsSettings:
    """profile, topics: the broker, and the shape of its topics.

    data_dir: Faust wants a directory; nothing that counts is kept there, tables are rebuilt from the log.
    group: consumer groups are `<group>-validate` and `<group>-decide`, and the quota table's changelog is
        `<group>-decide-quota-changelog`. Another name starts with empty ledgers and reads the topics anew.
    decisions_kept_us, decisions_kept: for how long, and for how many requests of a tenant, a decision is known to a
        duplicate of its request. Open requests are always known.
    max_in_flight: records of a stage whose outputs may be on their way at once; past it the stage waits.
    stuck_after_s: a partition with records waiting, none of which was taken for so long, ends the process.
    uncommitted_after_s: a partition whose committed offset stood still for so long, while more and more of it was done,
        ends the process.
    metrics_port: of Prometheus' text format on loopback; None: no port.
    """

    profile: BrokerProfile
    topics: Topics
    data_dir: Path
    group: str = "headrace"
    decisions_kept_us: int = DAY_US
    decisions_kept: int = 50_000
    max_in_flight: int = 2_000
    stuck_after_s: float = 30.0
    uncommitted_after_s: float = 60.0
    metrics_port: int | None = None
