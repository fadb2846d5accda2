"""`headrace schemas`: the event contract, and what may change in it."""

from __future__ import annotations

from pathlib import Path

import click

from infra.cli.schemas_register import register
from infra.cli.tables import show_table
from schemas.catalog import avro_fingerprint
from schemas.changes import changes
from schemas.errors import InvalidName
from schemas.releases import (
    SUFFIX,
    Contract,
    ReleaseBreak,
    altered_releases,
    breaks,
    digest_lines,
    digest_of,
    packaged_contract,
    parsed,
    version_key,
)

_UNRELEASED = "unreleased"


@click.group()
def schemas() -> None:
    """List the events, hold them against every release, release and register them."""


schemas.add_command(register)


@schemas.command("list")
def list_schemas() -> None:
    """Every event: where it stands, its key, its schema's fingerprint, and the first release that has it."""
    contract = packaged_contract()
    tree = parsed(contract.working_tree())
    since = {name: version for version in reversed(contract.versions()) for name in contract.release(version)}
    rows = [
        (name, topic, key, avro_fingerprint(schema), since.get(name, _UNRELEASED))
        for name, schema in tree.items()
        for topic, key in schema.get("topics", {}).items()
    ]
    show_table(("event", "topic", "key", "fingerprint", "since"), rows, "There are no events.")


@schemas.command("check")
@click.pass_context
def check_schemas(context: click.Context) -> None:
    """Show what changed since the newest release, and what breaks with any release. Breaks exit with 1."""
    contract = packaged_contract()
    versions = contract.versions()
    if versions:
        changed = changes(parsed(contract.working_tree()), parsed(contract.release(versions[-1])))
        show_table(
            (f"changed since {versions[-1]}", "what"),
            [(change.path, change.what) for change in changed],
            f"Nothing changed since release {versions[-1]}.",
        )
    if _show_faults(contract):
        context.exit(1)
    click.echo(f"Nothing breaks with any release: {', '.join(versions) or 'there is none yet'}.", err=True)


@schemas.command("release")
@click.argument("version")
@click.pass_context
def release_schemas(context: click.Context, version: str) -> None:
    """Keep the schemas as those of VERSION, for good. Only in a checkout of the source."""
    contract = packaged_contract()
    folder = _checked_out(contract)
    _check_newer(version, contract.versions())
    if _show_faults(contract):
        context.exit(1)
    files = contract.working_tree()
    target = folder / "released" / version
    target.mkdir()
    for name, content in files.items():
        (target / f"{name}{SUFFIX}").write_bytes(content)
    digests = {**contract.recorded_digests(), version: digest_of(files)}
    (folder / "released" / "DIGESTS").write_text(digest_lines(digests), "utf-8")
    click.echo(f"Release {version} has {len(files)} events: commit it together with that version in pyproject.toml.")


def _checked_out(contract: Contract) -> Path:
    folder = contract.folder
    if isinstance(folder, Path) and (folder.parent / "pyproject.toml").is_file():
        return folder
    raise click.ClickException(
        f"{folder} is an installed package, and a release is made in a checkout of the source: "
        f"clone the repository and run `make setup` there."
    )


def _check_newer(version: str, versions: tuple[str, ...]) -> None:
    try:
        key = version_key(version)
    except InvalidName as error:
        raise click.BadParameter(str(error)) from error
    if versions and key <= version_key(versions[-1]):
        raise click.BadParameter(f"{version} is not newer than release {versions[-1]}; a release never changes.")


def _show_faults(contract: Contract) -> bool:
    """Everything for which there must be no release; False if there is nothing."""
    for version in (altered := altered_releases(contract)):
        click.echo(f"Error: release {version} is not what it was: restore schemas/released from git.", err=True)
    found = breaks(contract)
    if found:
        show_table(("release", "where", "rule", "who is hurt", "why"), [_row(one) for one in found], "")
        count = f"{len(found)} break{'s' if len(found) > 1 else ''}"
        click.echo(f"Error: {count}: docs/evolution.md says how to change a schema instead.", err=True)
    return bool(altered or found)


def _row(one: ReleaseBreak) -> tuple[str, ...]:
    return one.release or _UNRELEASED, one.found.path, one.found.rule, one.found.breaks, one.found.message
