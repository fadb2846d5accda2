"""`headrace dead-letters`: messages that nobody could read, and their way back."""

from __future__ import annotations

import getpass
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import click

from eventlog.clock import now_us
from eventlog.dead_letter_log import DeadLetterLog
from eventlog.errors import EventLogError
from eventlog.letters import Letter, Origin, Reading, read_now, refusal, select
from infra.cli.context import RegistryAccess, registry_access
from infra.cli.durations import Duration
from infra.cli.tables import show_table
from infra.dead_letters import SHOWN_BYTES, event_lines, guess, hex_dump, printable, printable_bytes
from schemas.errors import InvalidName
from schemas.events import DeadLettered
from schemas.headers import rfc3339
from schemas.topics import DEAD_LETTERS, dead_letters_topic, kind_of

_tenant = click.option("--tenant", help="Whose letters; _system has those of topics that no tenant has.")
_reason = click.option("--reason", help="Only these, such as unknown_schema.")


@click.group("dead-letters")
def dead_letters() -> None:
    """Show messages that nobody could read, and write them to their topics again.

    A letter's ID is where its message stood: topic/partition/offset.
    """


@dead_letters.command("list")
@_tenant
@_reason
@click.option("--since", type=Duration(), metavar="DURATION", help="Only those of the last 90s, 15m, 1h, 7d.")
@click.option("--all", "everything", is_flag=True, help="Those that were requeued, too.")
def list_letters(tenant: str | None, reason: str | None, since: int | None, everything: bool) -> None:
    """Every letter that is open, oldest first."""
    since_us = None if since is None else now_us() - since * 1_000_000
    with _access() as access:
        letters = select(access.all_of(tenant), reason=reason, since_us=since_us, with_requeued=everything)
    rows = [
        (
            letter.origin, rfc3339(letter.at_us)[:19] + "Z", letter.origin.tenant, printable(letter.reason),
            printable(letter.consumer), letter.state, printable(letter.message),
        )
        for letter in letters
    ]  # fmt: skip
    columns = ("id", "when", "tenant", "reason", "consumer", "state", "message")
    show_table(columns, rows, "There are no such dead letters.")


@dead_letters.command("show")
@click.argument("letter_id", metavar="ID")
@click.option("--raw", is_flag=True, help="Its value as it is, for a file or a pipe, and nothing else.")
def show_letter(letter_id: str, raw: bool) -> None:
    """All about one letter: what was wrong, and its bytes with a guess at what they are."""
    with _access() as access:
        (letter,) = access.named([letter_id])
        contents = next(access.contents([letter]), None)
        if contents is None:
            raise click.BadParameter(f"{letter_id} is gone: dead letters are kept for a while only")
        if raw:
            sys.stdout.buffer.write(contents[1].value)
            return
        for line in _description(letter, contents[1], access.reading(contents[1])):
            click.echo(line)


@dead_letters.command("requeue")
@click.argument("letter_ids", metavar="[ID]...", nargs=-1)
@_tenant
@_reason
@click.option("--dry-run", is_flag=True, help="Only say what would happen to each.")
@click.option("--force", is_flag=True, help="Also what was requeued before, or still can't be read.")
@click.pass_context
def requeue_letters(
    context: click.Context, letter_ids: tuple[str, ...], tenant: str | None, reason: str | None, dry_run: bool,
    force: bool,
) -> None:  # fmt: skip
    """Write messages to the partitions that they came from, as they were: named ones, or all open ones of a tenant or
    with a reason. Exits with 1 if one of them was not.
    """
    if bool(letter_ids) == bool(tenant or reason):
        raise click.UsageError("Name the letters, or say which with --tenant and --reason.")
    with _access() as access:
        letters = access.named(letter_ids) if letter_ids else select(access.all_of(tenant), reason=reason)
        done = _requeue(access, letters, dry_run=dry_run, force=force)
    left = len(letters) - done
    said = "would be requeued" if dry_run else "requeued"
    click.echo(f"{done} {said}, {left} not." if letters else "There are no such dead letters.", err=True)
    if left:
        context.exit(1)


def _requeue(access: _Letters, letters: Sequence[Letter], *, dry_run: bool, force: bool) -> int:
    """Says of each letter what became of it; how many went the whole way."""
    done = 0
    gone = {letter.origin for letter in letters}
    for letter, contents in access.contents(letters):
        gone.discard(letter.origin)
        reading = access.reading(contents)
        why_not = refusal(letter, reading)
        topic, partition, _ = letter.origin
        if why_not is not None and not force:
            outcome = f"refused: it {why_not}"
        elif dry_run:
            what = "unreadable" if reading.event is None else type(reading.event).__name__
            outcome = f"would go to {topic}/{partition}: {what}{f' (forced: it {why_not})' if why_not else ''}"
            done += 1
        else:
            try:
                offset = access.log.requeue(letter, contents, operator=_operator(), now_us=now_us())
            except EventLogError as error:
                outcome = f"failed: {error}"
            else:
                outcome = f"requeued as {topic}/{partition}/{offset}"
                done += 1
        click.echo(f"{letter.origin}\t{printable(outcome)}")
    for origin in sorted(gone):
        click.echo(f"{origin}\tfailed: it is gone, dead letters are kept for a while only")
    return done


@dataclass(frozen=True, slots=True)
class _Letters:
    """The dead letters of the log at hand."""

    registry: RegistryAccess
    log: DeadLetterLog
    topics: frozenset[str]

    def all_of(self, tenant: str | None) -> list[Letter]:
        """Raises BadParameter for a tenant that there is not."""
        wanted = self.topics if tenant is None else {dead_letters_topic(tenant)}
        if not wanted <= self.topics:
            raise click.BadParameter(f"there is no tenant {tenant!r}: headrace tenants list", param_hint="--tenant")
        return self._found(wanted)

    def named(self, letter_ids: Sequence[str]) -> list[Letter]:
        """In the order of the names, each once. Raises BadParameter for one that there is not."""
        try:
            origins = list(dict.fromkeys(map(Origin.parse, letter_ids)))
        except InvalidName as error:
            raise click.BadParameter(str(error)) from error
        wanted = {dead_letters_topic(origin.tenant) for origin in origins}
        letters = {letter.origin: letter for letter in self._found(wanted & self.topics)}
        for origin in origins:
            if origin not in letters:
                raise click.BadParameter(f"there is no dead letter {origin}: headrace dead-letters list --all")
        return [letters[origin] for origin in origins]

    def contents(self, letters: Iterable[Letter]) -> Iterator[tuple[Letter, DeadLettered]]:
        return self.log.contents(letters)

    def reading(self, contents: DeadLettered) -> Reading:
        return read_now(contents, self.registry.profile.codec, token_partitions=self.registry.admin.topics.tokens)

    def _found(self, topics: Iterable[str]) -> list[Letter]:
        found = self.log.find(topics)
        if found.unreadable:
            click.echo(f"Warning: {found.unreadable} records among the dead letters are none.", err=True)
        return list(found.letters.values())


@contextmanager
def _access() -> Iterator[_Letters]:
    """Raises NothingRuns, EventLogError."""
    with registry_access() as registry, DeadLetterLog(registry.profile, client_id="headrace-dead-letters") as log:
        topics = frozenset(topic for topic in registry.admin.topic_names() if kind_of(topic) is DEAD_LETTERS)
        yield _Letters(registry, log, topics)


def _description(letter: Letter, contents: DeadLettered, reading: Reading) -> Iterator[str]:
    requeued = letter.requeued
    facts = {
        "id": str(letter.origin),
        "when": rfc3339(letter.at_us) + (f" ({letter.times} times)" if letter.times > 1 else ""),
        "consumer": letter.consumer,
        "reason": f"{letter.reason}: {letter.message}",
        "state": letter.state
        if requeued is None
        else f"requeued at {rfc3339(requeued.at_us)} by {requeued.operator}, "
        f"as {letter.origin.topic}/{letter.origin.partition}/{requeued.requeued_offset}",
        "schema": contents.schema_fingerprint or contents.schema_id,
        "key": None if contents.key is None else printable_bytes(contents.key),
    }
    facts |= {f"header {name}": printable_bytes(value) for name, value in contents.headers.items()}
    facts["value"] = f"{len(contents.value)} bytes"
    shown = {printable(name): printable(str(fact)) for name, fact in facts.items() if fact is not None}
    width = max(map(len, shown))
    yield from (f"{name:<{width}}  {fact}" for name, fact in shown.items())
    yield from hex_dump(contents.value)
    if len(contents.value) > SHOWN_BYTES:
        yield f"    (all of it: headrace dead-letters show {letter.origin} --raw)"
    if reading.event is not None:
        problem = f", but {reading.problem}" if reading.problem else ""
        yield f"{'now':<{width}}  {type(reading.event).__name__}{printable(problem)}:"
        yield from event_lines(reading.event)
    else:
        what, lines = guess(contents.value)
        yield f"{'now':<{width}}  {printable(reading.problem or '')}; it looks like {what}{':' if lines else ''}"
        yield from lines[:200]


def _operator() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container without a user database
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
