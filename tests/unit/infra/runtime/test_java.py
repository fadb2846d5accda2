from __future__ import annotations

from pathlib import Path

import pytest

from infra.errors import JavaMissing, JavaUnusable
from infra.runtime.java import find_java, java_version


def java_that_says(home: Path, banner: str) -> Path:
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '{banner}' >&2\n")
    java.chmod(0o755)
    return java


@pytest.mark.parametrize(
    ("banner", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_442"', 8),
        ('openjdk version "26" 2026-03-17', 26),
        ("no Java here", None),
    ],
)
def test_the_version_is_read_from_the_banner(banner: str, version: int | None) -> None:
    assert java_version(banner) == version


def test_a_java_that_is_new_enough_is_taken_from_java_home(tmp_path: Path) -> None:
    java = java_that_says(tmp_path, 'openjdk version "21.0.1"')

    assert find_java(str(tmp_path)) == java


def test_a_java_that_is_too_old_is_refused_with_its_version(tmp_path: Path) -> None:
    java_that_says(tmp_path, 'openjdk version "11.0.2"')

    with pytest.raises(JavaUnusable, match=r"is Java 11: point JAVA_HOME at a newer one"):
        find_java(str(tmp_path))


def test_a_java_that_does_not_start_is_refused(tmp_path: Path) -> None:
    java = java_that_says(tmp_path, "")
    java.write_bytes(b"\x7fELF no program")

    with pytest.raises(JavaUnusable, match="does not start"):
        find_java(str(tmp_path))


def test_a_java_home_without_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JavaUnusable, match="JAVA_HOME names it"):
        find_java(str(tmp_path))


def test_no_java_at_all_says_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(JavaMissing, match="install one, or unset KAFKA_HOME"):
        find_java(None)
