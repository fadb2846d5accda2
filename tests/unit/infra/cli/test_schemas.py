"""`headrace schemas` on a small contract of its own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import infra.cli.schemas
from infra.cli import run
from schemas.events import EVENT_TYPES
from schemas.releases import Contract, altered_releases, packaged_contract
from schemas.topics import TOPIC_KINDS
from tests.compatibility_cases import field, record

EVENT = record(field("a", "int"))
GROWN = record(field("a", "int"), field("b", "int", default=0))
BROKEN = record(field("a", "string"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one event and no release."""
    root = tmp_path / "checkout"
    (root / "schemas" / "avro").mkdir(parents=True)
    (root / "schemas" / "released").mkdir()
    (root / "schemas" / "released" / "DIGESTS").touch()
    (root / "pyproject.toml").touch()
    change(root / "schemas", EVENT)
    monkeypatch.setattr(infra.cli.schemas, "packaged_contract", lambda: Contract(root / "schemas"))
    return root / "schemas"


def change(folder: Path, schema: dict[str, Any]) -> None:
    (folder / "avro" / "Event.avsc").write_text(json.dumps(schema), "utf-8")


def test_the_list_has_every_event_with_its_topics_and_its_release(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schemas", "list"]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert rows[0] == ["event", "topic", "key", "fingerprint", "since"]
    assert {row[0] for row in rows[1:]} == {event_type.__name__ for event_type in EVENT_TYPES}
    assert len(rows) - 1 == sum(len(kind.events) for kind in TOPIC_KINDS)
    assert ["RequestRouted", "work.<deployment>.<tenant>", "request_id"] in [row[:3] for row in rows]
    assert {row[4] for row in rows if row[0] == "RequestSubmitted"} == {"0.1.0"}


def test_the_repository_passes_its_own_check(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schemas", "check"]) == 0
    assert ", ".join(packaged_contract().versions()) in capsys.readouterr().err


def test_a_release_is_kept_with_its_digest(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schemas", "release", "1.0.0"]) == 0
    assert "Release 1.0.0 has 1 events" in capsys.readouterr().out
    contract = Contract(folder)
    assert contract.release("1.0.0") == contract.working_tree()
    assert altered_releases(contract) == ()


def test_the_check_shows_what_changed_since_the_newest_release(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["schemas", "release", "1.0.0"])
    change(folder, GROWN)
    capsys.readouterr()
    assert run(["schemas", "check"]) == 0
    shown = capsys.readouterr()
    assert shown.out == "changed since 1.0.0\twhat\nEvent.b\tnew field: int = 0\n"
    assert shown.err == "Nothing breaks with any release: 1.0.0.\n"


@pytest.mark.parametrize("command", [["check"], ["release", "1.1.0"]])
def test_a_break_is_shown_and_refused(command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["schemas", "release", "1.0.0"])
    change(folder, BROKEN)
    assert run(["schemas", *command]) == 1
    shown = capsys.readouterr()
    assert "1.0.0\tEvent.a\ttype_changed\told readers can't read new events\t" in shown.out
    assert "Error: 2 breaks" in shown.err
    assert Contract(folder).versions() == ("1.0.0",)


@pytest.mark.parametrize("command", [["check"], ["release", "1.1.0"]])
def test_a_release_that_was_changed_is_named(
    command: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(["schemas", "release", "1.0.0"])
    (folder / "released" / "1.0.0" / "Event.avsc").write_text(json.dumps(GROWN), "utf-8")
    assert run(["schemas", *command]) == 1
    assert "release 1.0.0 is not what it was" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["1.0.0", "0.9.9"])
def test_a_version_that_is_not_newer_is_refused(version: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(["schemas", "release", "1.0.0"])
    assert run(["schemas", "release", version]) == 2
    assert f"{version} is not newer than release 1.0.0" in capsys.readouterr().err


def test_a_draft_is_not_released(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["schemas", "release", "1.0.0.dev0"]) == 2
    assert "'1.0.0.dev0' is no version of a release" in capsys.readouterr().err


def test_an_installed_package_is_not_released(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder.parent / "pyproject.toml").unlink()
    assert run(["schemas", "release", "1.0.0"]) == 1
    assert "a release is made in a checkout of the source" in capsys.readouterr().err
    assert not (folder / "released" / "1.0.0").exists()


def test_a_file_that_is_no_schema_is_one_sentence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(folder, record(field("x", "Unknown")))
    assert run(["schemas", "check"]) == 1
    assert capsys.readouterr().err == (
        "Error: Event.avsc: no type 'headrace.v1.Unknown' is defined before it is named\n"
    )
