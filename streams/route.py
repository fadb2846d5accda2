"""Which pinned version answers a request: its name as asked, held against the models and the route table. Pure.

A route table is one value: whoever resolves sees all of an update or nothing of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from schemas.events import ModelRegistered, Route, RouteTarget

_BUCKETS = 1_000_000


class Catalog(Protocol):
    """The part of the registry that routing looks at: models by pinned version, routes by alias."""

    @property
    def models(self) -> Mapping[str, ModelRegistered]: ...

    @property
    def routes(self) -> Mapping[str, Route]: ...


@dataclass(frozen=True, slots=True)
class Resolution:
    """The version that answers, with the reason for `headrace explain`."""

    model: ModelRegistered
    reason: str


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Nothing answers under this name; `message` says why, and what to ask for instead."""

    message: str


def resolve(name: str, catalog: Catalog, *, sticky: str) -> Resolution | Unresolved:
    """The version behind a name: a pinned version is itself, an alias is its target.

    Of several targets each gets its percentage, and `sticky` (the end user, or else the request id) always gets the
    same one while the route stays as it is.
    """
    pinned = catalog.models.get(name)
    if pinned is not None:
        return Resolution(pinned, "pinned version")
    route = catalog.routes.get(name)
    if route is None or not route.targets:
        return Unresolved(f"the model {name!r} does not exist{_choices(catalog)}")
    target = _pick(route, sticky)
    model = catalog.models.get(target.model_version)
    if model is None:
        return Unresolved(
            f"the model {name!r} leads to {target.model_version!r}, which is not registered{_choices(catalog)}"
        )
    if len(route.targets) == 1:
        return Resolution(model, f"alias {name}")
    return Resolution(model, f"alias {name}, {target.percent:g}% share")


def resolve_tokenized(name: str, tokenized_for: str, catalog: Catalog, *, sticky: str) -> Resolution | Unresolved:
    """`resolve` for a prompt that is tokenized already: only a version that reads the same tokens may answer.

    When the route table changed between validation and here and the new target has another tokenizer, the version
    whose tokens they are still answers.
    """
    found = resolve(name, catalog, sticky=sticky)
    validated = catalog.models.get(tokenized_for)
    if validated is None or (isinstance(found, Resolution) and found.model.tokenizer == validated.tokenizer):
        return found
    return Resolution(validated, f"its prompt was tokenized for {tokenized_for} before the routes changed")


def _pick(route: Route, sticky: str) -> RouteTarget:
    """By cumulative shares; what the percentages leave open falls to the last target."""
    digest = hashlib.blake2b(f"{route.alias}\0{sticky}".encode(errors="surrogatepass"), digest_size=8).digest()
    point = int.from_bytes(digest) % _BUCKETS * 100 / _BUCKETS
    passed = 0.0
    for target in route.targets:
        passed += target.percent
        if point < passed:
            return target
    return route.targets[-1]


def _choices(catalog: Catalog) -> str:
    names: Sequence[str] = sorted(catalog.routes) or sorted(catalog.models)
    return f"; ask for one of: {', '.join(names[:8])}" if names else "; no model is registered yet"
