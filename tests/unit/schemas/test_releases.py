from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from schemas.avro_types import InvalidSchema
from schemas.compatibility import Rule
from schemas.errors import InvalidName
from schemas.releases import (
    Contract,
    altered_releases,
    breaks,
    breaks_with,
    digest_lines,
    digest_of,
    packaged_contract,
    parsed,
    version_key,
)
from tests.compatibility_cases import field, record


def write(folder: Path, *events: dict[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for event in events:
        (folder / f"{event['name']}.avsc").write_text(json.dumps(event), "utf-8")


def found_between(new: dict[str, bytes], old: dict[str, bytes]) -> set[tuple[str, Rule, str]]:
    broken = breaks_with(parsed(new), {"1.0.0": parsed(old)})
    return {(one.found.path, one.found.rule, one.found.message) for one in broken}


@pytest.fixture
def contract(tmp_path: Path) -> Contract:
    """Two releases, 0.9.0 and 0.10.0, and a working tree that is the newer one."""
    old, new = record(field("a", "int")), record(field("a", "int"), field("b", "int", default=0))
    write(tmp_path / "released/0.9.0", old)
    write(tmp_path / "released/0.10.0", new)
    write(tmp_path / "avro", new)
    made = Contract(tmp_path)
    digests = {version: digest_of(made.release(version)) for version in made.versions()}
    (tmp_path / "released/DIGESTS").write_text(digest_lines(digests), "utf-8")
    return made


def test_releases_stand_in_the_order_of_their_numbers(contract: Contract) -> None:
    assert contract.versions() == ("0.9.0", "0.10.0")
    assert list(contract.recorded_digests()) == ["0.9.0", "0.10.0"]


@pytest.mark.parametrize("version", ["1.2", "1.2.3.4", "v1.2.3", "1.2.3-rc1", "1.2.3.dev0", "01.2.3", "", "../1.2.3"])
def test_what_is_no_final_version_is_refused(version: str) -> None:
    with pytest.raises(InvalidName, match="is no version of a release"):
        version_key(version)


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_a_digest_can_be_made_by_hand() -> None:
    contract = packaged_contract()
    version = contract.versions()[0]
    made = subprocess.run(
        "LC_ALL=C; sha256sum *.avsc | sha256sum", shell=True, check=True, capture_output=True, text=True,
        cwd=str(contract.folder.joinpath("released", version)),
    )  # fmt: skip
    assert made.stdout.split()[0] == digest_of(contract.release(version))


def test_releases_that_are_as_they_were_are_not_altered(contract: Contract) -> None:
    assert altered_releases(contract) == ()


def test_a_release_that_changed_is_found(contract: Contract, tmp_path: Path) -> None:
    file = tmp_path / "released/0.9.0/Event.avsc"
    file.write_text(file.read_text("utf-8") + " ", "utf-8")
    assert altered_releases(contract) == ("0.9.0",)


def test_a_release_that_is_gone_is_found(contract: Contract, tmp_path: Path) -> None:
    shutil.rmtree(tmp_path / "released/0.10.0")
    assert altered_releases(contract) == ("0.10.0",)


def test_a_release_that_nobody_wrote_down_is_found(contract: Contract, tmp_path: Path) -> None:
    write(tmp_path / "released/0.11.0", record())
    assert altered_releases(contract) == ("0.11.0",)


def test_a_working_tree_that_goes_with_every_release_has_no_breaks(contract: Contract, tmp_path: Path) -> None:
    write(tmp_path / "avro", record(name="Another"))
    assert breaks(contract) == ()


def test_a_break_with_an_older_release_counts_although_the_newest_lets_it_pass(
    contract: Contract, tmp_path: Path
) -> None:
    """What 0.10.0 gave a default was not there in 0.9.0: without the default its events can't be read."""
    write(tmp_path / "avro", record(field("a", "int"), field("b", "int")))
    assert [str(found) for found in breaks(contract)] == [
        "Event.avsc against release 0.9.0: Event.b: field_without_default: new readers can't read old events: "
        "the writer does not send it and the reader has no default"
    ]


def test_an_event_that_was_released_must_stay(contract: Contract, tmp_path: Path) -> None:
    (tmp_path / "avro/Event.avsc").unlink()
    assert [(one.release, one.event, one.found.rule) for one in breaks(contract)] == [
        ("0.9.0", "Event", Rule.EVENT_REMOVED),
        ("0.10.0", "Event", Rule.EVENT_REMOVED),
    ]


def test_an_event_must_stay_where_its_readers_look_for_it() -> None:
    def event(**about: Any) -> dict[str, bytes]:
        return {"Event": json.dumps(record(**about)).encode()}

    old = event(topics={"tokens.<tenant>": "request_id", "validated": "tenant"}, identity=["request_id", "index"])
    kept = event(
        topics={"tokens.<tenant>": "request_id", "validated": "tenant", "audit": "tenant"},
        identity=["request_id", "index"],
    )
    moved = event(topics={"tokens.<tenant>": "tenant"}, identity=["request_id"])
    assert found_between(kept, old) == set()
    assert found_between(moved, old) == {
        ("Event", Rule.KEY_CHANGED, "its key on tokens.<tenant> was request_id and is tenant"),
        ("Event", Rule.TOPIC_REMOVED, "they look for it on validated"),
        ("Event", Rule.IDENTITY_CHANGED, "one event was told from another by request_id, index, now by request_id"),
    }
    assert found_between(old, event()) == set(), "a release that said nothing of it binds nobody"


def test_a_default_of_a_new_event_that_does_not_fit_is_found(contract: Contract, tmp_path: Path) -> None:
    write(tmp_path / "avro", record(field("x", ["string", "null"], default=None), name="Another"))
    (found,) = breaks(contract)
    assert str(found).startswith("Another.avsc: Another.x: default_unfit: ")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "Event.avsc is no JSON"),
        (b"\xff", "Event.avsc is no JSON"),
        (b"[]", "Event.avsc does not define Event"),
        (b'{"type": "record", "name": "Other", "fields": []}', "Event.avsc does not define Event"),
    ],
)
def test_a_file_that_is_not_its_event_is_a_typed_error(content: bytes, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parsed({"Event": content})


def test_a_file_that_is_no_schema_is_named(contract: Contract, tmp_path: Path) -> None:
    write(tmp_path / "avro", record(field("x", "Unknown")))
    with pytest.raises(InvalidSchema, match=r"^Event\.avsc: no type 'headrace\.v1\.Unknown'"):
        breaks(contract)
