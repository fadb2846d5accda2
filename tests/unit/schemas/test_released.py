"""The schemas of this repository against every release. A failure here is a reader somewhere that stops reading."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from schemas.avro_defaults import unfit_defaults
from schemas.avro_types import parse
from schemas.events import EVENT_TYPES
from schemas.releases import altered_releases, breaks, packaged_contract, parsed

CONTRACT = packaged_contract()
ROOT = Path(__file__).resolve().parents[3]


def test_nothing_breaks_with_any_release() -> None:
    assert [str(found) for found in breaks(CONTRACT)] == []


def test_every_release_is_as_it_was() -> None:
    assert altered_releases(CONTRACT) == ()


def test_the_files_are_those_of_the_events() -> None:
    assert set(CONTRACT.working_tree()) == {event_type.__name__ for event_type in EVENT_TYPES}


@pytest.mark.parametrize(
    ("name", "schema"),
    [pytest.param(name, schema, id=name) for name, schema in parsed(CONTRACT.working_tree()).items()],
)
def test_defaults_fit_their_types(name: str, schema: Any) -> None:
    assert list(unfit_defaults(parse(schema))) == []


def test_a_version_that_is_no_draft_is_released_as_it_stands() -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    if re.fullmatch(r"[\d.]+", version):
        assert version in CONTRACT.versions(), f"headrace schemas release {version}"
        assert CONTRACT.release(version) == CONTRACT.working_tree(), "a change needs a version of its own"
    else:
        draft_of = re.sub(r"\.dev\d+$", "", version)
        assert draft_of not in CONTRACT.versions(), f"{draft_of} is released: its drafts are over"
