"""Names that become parts of topic names: tenants, deployments, models."""

from __future__ import annotations

import re

from .errors import InvalidName

_PART = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
_MODEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_RULE = "1 to 63 lower-case letters, digits and inner dashes"


def check_tenant(name: str) -> str:
    """The name itself. Raises InvalidName: a dot in it would make the topic name ambiguous."""
    if not _PART.fullmatch(name):
        raise InvalidName(f"{name!r} is not a tenant name: use {_RULE}")
    return name


def check_deployment(name: str) -> str:
    """The name itself. Raises InvalidName."""
    if not _PART.fullmatch(name):
        raise InvalidName(f"{name!r} is not a deployment name: use {_RULE}")
    return name


def split_model_version(text: str) -> tuple[str, str]:
    """`chat@v3` -> (`chat`, `v3`). Raises InvalidName."""
    name, at, version = text.partition("@")
    if not (at and _MODEL.fullmatch(name) and _MODEL.fullmatch(version)):
        raise InvalidName(f"{text!r} is not a pinned version: write it as name@version, such as chat@v3")
    return name, version


def deployment_for(model_version: str) -> str:
    """The usual deployment of a version: `SmolLM2@v1` -> `smollm2-v1`."""
    name, version = split_model_version(model_version)
    return check_deployment(re.sub(r"[^a-z0-9]+", "-", f"{name}-{version}".lower()).strip("-")[:63].strip("-"))
