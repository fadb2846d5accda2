"""Documents name what is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = "schemas|eventlog|models|gateway|streams|gpu_consumers|infra|clients|tests|docs"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_file_that_a_document_names_is_there(document: Path) -> None:
    named = re.findall(rf"`((?:{FOLDERS})/[\w./-]*)`", document.read_text("utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_relative_link_of_a_document_leads_somewhere(document: Path) -> None:
    links = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", document.read_text("utf-8"))
    local = [link for link in links if "://" not in link]
    assert [link for link in local if not (document.parent / link).exists()] == []


def test_the_architecture_names_the_files_of_each_folder_that_a_request_passes() -> None:
    named = re.findall(r"`([\w/]+\.py)`", (ROOT / "ARCHITECTURE.md").read_text("utf-8"))
    for folder in ("schemas", "eventlog", "models", "gateway", "streams", "streams/sink", "gpu_consumers", "infra"):
        assert [name for name in named if name.rpartition("/")[0] == folder], folder
