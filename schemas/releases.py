"""The contract through time: the working tree's schemas, and those of every release, which never change again.

`schemas/avro` becomes the next release; `schemas/released/<version>` is what a release had, and
`schemas/released/DIGESTS` says so: for each version, what `sha256sum *.avsc | sha256sum` gives in its folder.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from importlib.resources.abc import Traversable
from typing import Any

from .avro_types import InvalidSchema
from .compatibility import Break, Breaks, Rule, full_incompatibilities
from .errors import InvalidName

SUFFIX = ".avsc"


@dataclass(frozen=True, slots=True)
class Contract:
    """The schemas in a folder that is laid out like the package `schemas`."""

    folder: Traversable

    def working_tree(self) -> dict[str, bytes]:
        """The files of the next release, by event name."""
        return _files(self.folder.joinpath("avro"))

    def versions(self) -> tuple[str, ...]:
        """Every release, oldest first. Raises InvalidName for a folder that is no version."""
        names = [entry.name for entry in self.folder.joinpath("released").iterdir() if entry.is_dir()]
        return tuple(sorted(names, key=version_key))

    def release(self, version: str) -> dict[str, bytes]:
        """The files of a release, by event name."""
        return _files(self.folder.joinpath("released", version))

    def recorded_digests(self) -> dict[str, str]:
        """What each release's digest was on the day."""
        lines = self.folder.joinpath("released", "DIGESTS").read_text("utf-8").splitlines()
        return {version: digest for digest, _, version in (line.partition("  ") for line in lines)}


@dataclass(frozen=True, slots=True)
class ReleaseBreak:
    """release: the version that the working tree breaks with; empty for what is wrong by itself."""

    release: str
    event: str
    found: Break

    def __str__(self) -> str:
        against = f" against release {self.release}" if self.release else ""
        return f"{self.event}{SUFFIX}{against}: {self.found}"


def packaged_contract() -> Contract:
    """The one of this installation."""
    return Contract(resources.files(__package__))


def version_key(version: str) -> tuple[int, int, int]:
    """Sorts versions by age. Raises InvalidName for anything but MAJOR.MINOR.PATCH: drafts are not released."""
    match = re.fullmatch(r"(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)", version)
    if match is None:
        raise InvalidName(f"{version!r} is no version of a release: MAJOR.MINOR.PATCH, such as 1.4.0")
    major, minor, patch = (int(part) for part in match.groups())
    return major, minor, patch


def digest_of(files: Mapping[str, bytes]) -> str:
    """What `sha256sum *.avsc | sha256sum` says in the folder of these files, in the order of their bytes."""
    lines = (f"{hashlib.sha256(files[name]).hexdigest()}  {name}{SUFFIX}\n" for name in sorted(files))
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def digest_lines(digests: Mapping[str, str]) -> str:
    """The file DIGESTS."""
    return "".join(f"{digests[version]}  {version}\n" for version in sorted(digests, key=version_key))


def altered_releases(contract: Contract) -> tuple[str, ...]:
    """Releases that are not what they were, are gone, or have no digest; empty is how it must be."""
    digests, versions = contract.recorded_digests(), set(contract.versions())
    return tuple(
        version
        for version in sorted(digests.keys() | versions, key=version_key)
        if version not in versions or digests.get(version) != digest_of(contract.release(version))
    )


def parsed(files: Mapping[str, bytes]) -> dict[str, Any]:
    """The files' JSON by event name. Raises InvalidSchema if a file is none, or names another event."""
    found: dict[str, Any] = {}
    for name, content in files.items():
        try:
            schema = json.loads(content)
        except ValueError as error:
            raise InvalidSchema(f"{name}{SUFFIX} is no JSON: {error}") from error
        if not isinstance(schema, dict) or schema.get("name") != name:
            raise InvalidSchema(f"{name}{SUFFIX} does not define {name}")
        found[name] = schema
    return found


def breaks(contract: Contract) -> tuple[ReleaseBreak, ...]:
    """Everything in the working tree that breaks with any release (Avro's FULL_TRANSITIVE, and rules of our own).

    Raises InvalidSchema.
    """
    new = parsed(contract.working_tree())
    releases = {version: parsed(contract.release(version)) for version in contract.versions()}
    return tuple(breaks_with(new, releases))


def breaks_with(new: Mapping[str, Any], releases: Mapping[str, Mapping[str, Any]]) -> Iterator[ReleaseBreak]:
    """The same for parsed JSON, by event name, and by release and event name."""
    for version, old in releases.items():
        for name in old:
            if name in new:
                for found in _compared(name, new[name], old[name]):
                    yield ReleaseBreak(version, name, found)
            else:
                gone = Break(name, Rule.EVENT_REMOVED, "a log may hold it for years", Breaks.NEW_READERS)
                yield ReleaseBreak(version, name, gone)
    for name in new:
        if not any(name in old for old in releases.values()):
            for found in _compared(name, new[name], new[name]):  # a default of its own may be wrong
                if found.breaks is Breaks.NEW_READERS:
                    yield ReleaseBreak("", name, found)


def _compared(name: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> tuple[Break, ...]:
    try:
        return (*full_incompatibilities(new, old), *_moved(name, new, old))
    except InvalidSchema as error:
        raise InvalidSchema(f"{name}{SUFFIX}: {error}") from error


def _moved(name: str, new: Mapping[str, Any], old: Mapping[str, Any]) -> Iterator[Break]:
    """What a release says of the whole event, beside its fields: where it stands, by which key, what makes it one."""
    topics = new.get("topics", {})
    for topic, key in old.get("topics", {}).items():
        if topic not in topics:
            yield Break(name, Rule.TOPIC_REMOVED, f"they look for it on {topic}", Breaks.OLD_READERS)
        elif topics[topic] != key:
            message = f"its key on {topic} was {key} and is {topics[topic]}"
            yield Break(name, Rule.KEY_CHANGED, message, Breaks.MEANING)
    was, now = old.get("identity"), new.get("identity")
    if was is not None and was != now:
        message = f"one event was told from another by {', '.join(was)}, now by {', '.join(now or ['nothing'])}"
        yield Break(name, Rule.IDENTITY_CHANGED, message, Breaks.MEANING)


def _files(folder: Traversable) -> dict[str, bytes]:
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    return {entry.name.removesuffix(SUFFIX): entry.read_bytes() for entry in entries if entry.name.endswith(SUFFIX)}
