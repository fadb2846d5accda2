"""`headrace workers`: who serves, and how busy they are."""

from __future__ import annotations

from collections.abc import Iterator

import click

from eventlog.clock import now_us
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from infra.cli.context import settings_with_warnings
from infra.cli.tables import show_table
from infra.fleet import Member, members
from infra.seed import read_registry
from infra.wiring import broker_profile, connected
from schemas.errors import ContractError
from schemas.events import Event
from schemas.topics import TELEMETRY

MOST_RECORDS = 50_000  # read of a log that can't be asked for a time

_COLUMNS = ("name", "deployment", "model", "state", "tokens/s", "running", "waiting", "KV use", "last report")


@click.command()
@click.option("--minutes", type=click.IntRange(1, 24 * 60), default=5, show_default=True, help="How far to look back.")
def workers(minutes: int) -> None:
    """Show the workers and gateways that were heard of lately.

    Each reports every HEADRACE_TELEMETRY_SECONDS; one that has missed three reports is silent.
    """
    profile = broker_profile(connected(settings_with_warnings()))
    read_registry(profile, "headrace-workers")  # teaches the profile the schema ids that reports may be framed with
    now = now_us()
    since_us = now - minutes * 60_000_000
    known = [m for m in members(_reports(profile, since_us), now_us=now) if m.seconds_ago <= minutes * 60]
    show_table(_COLUMNS, [_row(member) for member in known], f"Nobody has reported in the last {minutes} min.")


def _reports(profile: BrokerProfile, since_us: int) -> Iterator[Event]:
    """What the telemetry topic has since then. Raises LogUnreachable."""
    with LogReader(profile, client_id="headrace-workers") as reader:
        low, high = reader.bounds(TELEMETRY.name, 0)
        start = reader.offset_at(TELEMETRY.name, 0, since_us // 1000)
        for record in reader.read_to_end({(TELEMETRY.name, 0): max(low, start, high - MOST_RECORDS)}):
            try:
                yield record.event()
            except ContractError:  # of another release, or nothing of ours
                continue


def _row(member: Member) -> tuple[str, ...]:
    return (
        member.name,
        member.deployment or "-",
        member.model_version or "(gateway)",
        member.state,
        "-" if member.tokens_per_second is None else f"{member.tokens_per_second:.1f}",
        str(member.running),
        "-" if member.waiting is None else str(member.waiting),
        "-" if member.kv_share is None else f"{member.kv_share:.1%}",
        f"{member.seconds_ago:.0f} s ago",
    )
