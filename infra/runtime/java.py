"""Finding a Java that is new enough."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from infra.errors import JavaMissing, JavaUnusable

MINIMUM_JAVA = 17
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


def find_java(java_home: str | None, minimum: int = MINIMUM_JAVA) -> Path:
    """The `java` of `java_home` if given, else the one in PATH.

    Raises JavaMissing, and JavaUnusable for one that is too old or does not start.
    """
    java = _locate(java_home, minimum)
    try:
        answer = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=30, check=False, stdin=subprocess.DEVNULL
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise JavaUnusable(str(java), f"a program that does not start ({error})", minimum) from error
    version = java_version(answer.stderr + answer.stdout)
    if version is None:
        raise JavaUnusable(str(java), "of a version that it does not tell", minimum)
    if version < minimum:
        raise JavaUnusable(str(java), f"Java {version}", minimum)
    return java


def java_version(banner: str) -> int | None:
    """The feature release in what `java -version` prints: 17 for "17.0.15", 8 for "1.8.0_442"."""
    match = _VERSION.search(banner)
    if match is None:
        return None
    first, second = int(match[1]), match[2]
    return int(second) if first == 1 and second is not None else first


def _locate(java_home: str | None, minimum: int) -> Path:
    if java_home:
        java = Path(java_home, "bin", "java")
        if not java.is_file():
            raise JavaUnusable(str(java), "not there, though JAVA_HOME names it", minimum)
        return java
    found = shutil.which("java")
    if found is None:
        raise JavaMissing(minimum)
    return Path(found)
