"""Which pinned version answers a request: its name as asked, held against the models, the adapters and the route
table. Pure.

A route table is one value: whoever resolves sees all of an update or nothing of it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Protocol

from schemas.events import AdapterRegistered, ModelRegistered, Route, RouteTarget

_BUCKETS = 1_000_000
_CHOICES = 5  # of each kind that a refusal names
_NAME_CHARS = 129  # of the longest name@version


class Catalog(Protocol):
    """The part of the registry that routing looks at: models and adapters by pinned version, routes by alias."""

    @property
    def models(self) -> Mapping[str, ModelRegistered]: ...

    @property
    def adapters(self) -> Mapping[str, AdapterRegistered]: ...

    @property
    def routes(self) -> Mapping[str, Route]: ...


@dataclass(frozen=True, slots=True)
class Resolution:
    """The version that answers, with the reason for `headrace explain`.

    registration: of the LoRA adapter that it answers with; None: the model itself.
    """

    model: ModelRegistered
    reason: str
    registration: AdapterRegistered | None = None

    @property
    def adapter(self) -> str | None:
        """Its name."""
        return None if self.registration is None else self.registration.adapter


@dataclass(frozen=True, slots=True)
class Unresolved:
    """Nothing answers under this name; `message` says why, and what to ask for instead."""

    message: str


def resolve(name: str, catalog: Catalog, *, tenant: str, sticky: str) -> Resolution | Unresolved:
    """The version behind a name: a pinned version is itself, an adapter is its base version, an alias is its target.

    Of several targets each gets its percentage, and `sticky` (the end user, or else the request id) always gets the
    same one while the route stays as it is. An adapter of another tenant is as if it did not exist.
    """
    pinned = catalog.models.get(name)
    if pinned is not None:
        return Resolution(pinned, "pinned version")
    adapter = catalog.adapters.get(name)
    if adapter is not None and adapter.tenant in (None, tenant):
        return _base_of(adapter, catalog)
    route = catalog.routes.get(name)
    if route is None or not route.targets:
        return Unresolved(f"the model {name[:_NAME_CHARS]!r} does not exist{_choices(catalog, tenant)}")
    target = _pick(route, sticky)
    model = catalog.models.get(target.model_version)
    if model is None:
        return Unresolved(
            f"the model {name!r} leads to {target.model_version!r}, which is not registered{_choices(catalog, tenant)}"
        )
    if len(route.targets) == 1:
        return Resolution(model, f"alias {name}")
    return Resolution(model, f"alias {name}, {target.percent:g}% share")


def resolve_tokenized(
    name: str,
    tokenized_for: str,
    catalog: Catalog,
    *,
    tenant: str,
    sticky: str,
    can_serve: Callable[[ModelRegistered], bool],
) -> Resolution | Unresolved:
    """`resolve` for a prompt that is tokenized already: only a version that reads the same tokens may answer, and one
    that `can_serve` what else was asked for.

    When the route table changed between validation and here and the new target is none of that, the version for which
    the request was validated still answers. An adapter has no such stand-in: it answers itself, or nobody does.
    """
    found = resolve(name, catalog, tenant=tenant, sticky=sticky)
    validated = catalog.models.get(tokenized_for)
    if validated is None or name in catalog.adapters:
        return found
    if isinstance(found, Resolution) and found.model.tokenizer == validated.tokenizer and can_serve(found.model):
        return found
    return Resolution(validated, f"it was validated for {tokenized_for} before the routes changed")


def _base_of(adapter: AdapterRegistered, catalog: Catalog) -> Resolution | Unresolved:
    base = catalog.models.get(adapter.model_version)
    if base is None:
        return Unresolved(f"the adapter {adapter.adapter!r} is for {adapter.model_version!r}, which is not registered")
    return Resolution(base, f"adapter {adapter.adapter} of {adapter.model_version}", adapter)


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


def _choices(catalog: Catalog, tenant: str) -> str:
    """What this tenant can ask for instead: aliases, versions, adapters, a few of each."""
    aliases = [
        alias
        for alias, route in catalog.routes.items()
        if route.targets and all(target.model_version in catalog.models for target in route.targets)
    ]
    adapters = [
        name
        for name, adapter in catalog.adapters.items()
        if adapter.tenant in (None, tenant) and adapter.model_version in catalog.models
    ]
    named = [_some(names) for names in (aliases, catalog.models, adapters) if names]
    return f"; ask for one of: {'; '.join(named)}" if named else "; no model is registered yet"


def _some(names: Collection[str]) -> str:
    more = len(names) - _CHOICES
    return ", ".join(sorted(names)[:_CHOICES]) + (f" and {more} more" if more > 0 else "")
