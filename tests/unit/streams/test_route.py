"""Names to versions: pinned, alias, shares, and what is said when nothing answers."""

from __future__ import annotations

from collections import Counter

import pytest

from eventlog.registry import Registry
from schemas.events import AdapterRegistered, ModelRegistered
from streams.route import Resolution, Unresolved, resolve, resolve_tokenized
from tests.unit.streams.samples import NOW_US, model, registry


def any_engine(_model: ModelRegistered) -> bool:
    return True


def version(found: Resolution | Unresolved) -> str:
    assert isinstance(found, Resolution)
    return found.model.model_version


def test_a_pinned_version_is_itself_even_when_an_alias_leads_elsewhere() -> None:
    catalog = registry(model("chat@v1"), model("chat@v2"), routes={"chat@v1": [("chat@v2", 100)]})

    found = resolve("chat@v1", catalog, tenant="acme", sticky="ann")

    assert version(found) == "chat@v1"


def test_an_alias_leads_to_its_target_and_says_so() -> None:
    found = resolve(
        "chat", registry(model("chat@v1"), routes={"chat": [("chat@v1", 100)]}), tenant="acme", sticky="ann"
    )

    assert isinstance(found, Resolution)
    assert (found.model.deployment, found.reason) == ("chat-v1", "alias chat")


@pytest.mark.parametrize("routes", [{}, {"chat": []}])
def test_a_name_that_leads_nowhere_is_unresolved(routes: dict[str, list[tuple[str, float]]]) -> None:
    assert isinstance(
        resolve("chat", registry(model("other@v1"), routes=routes), tenant="acme", sticky="ann"), Unresolved
    )


def test_an_alias_to_a_version_that_is_not_registered_says_which() -> None:
    found = resolve(
        "chat", registry(model("chat@v1"), routes={"chat": [("chat@v9", 100)]}), tenant="acme", sticky="ann"
    )

    assert isinstance(found, Unresolved)
    assert "'chat@v9'" in found.message


def test_without_any_model_the_message_says_so() -> None:
    found = resolve("chat", Registry(), tenant="acme", sticky="ann")

    assert isinstance(found, Unresolved)
    assert "no model is registered yet" in found.message


def adapter(name: str, *, of: str = "chat@v1", tenant: str | None = None) -> AdapterRegistered:
    return AdapterRegistered(adapter=name, at_us=NOW_US, model_version=of, location="/a", tenant=tenant)


def not_found(name: str, catalog: Registry) -> str:
    """What a tenant `acme` is told who asks for it."""
    found = resolve(name, catalog, tenant="acme", sticky="ann")
    assert isinstance(found, Unresolved)
    return found.message


def test_who_asks_for_what_is_not_there_hears_of_all_that_can_be_asked_for() -> None:
    routes = {"talk": [("chat@v1", 100.0)], "code": [("code@v1", 100.0)]}
    catalog = registry(model("chat@v1"), model("code@v1"), routes=routes)
    for registered in (adapter("tone@v1"), adapter("mine@v1", tenant="acme"), adapter("theirs@v1", tenant="bolt")):
        catalog = catalog.apply(registered)

    assert not_found("chat", catalog) == (
        "the model 'chat' does not exist; ask for one of: code, talk; chat@v1, code@v1; mine@v1, tone@v1"
    )


def test_what_leads_nowhere_is_not_offered() -> None:
    routes: dict[str, list[tuple[str, float]]] = {"gone": [("chat@v9", 100.0)], "empty": [], "half": [
        ("chat@v1", 50.0), ("chat@v9", 50.0)]}  # fmt: skip
    catalog = registry(model("chat@v1"), routes=routes).apply(adapter("tone@v1", of="chat@v9"))

    assert not_found("chat", catalog) == "the model 'chat' does not exist; ask for one of: chat@v1"


def test_however_much_there_is_the_message_stays_short_and_says_that_there_is_more() -> None:
    versions = [f"chat@v{number:02}" for number in range(30)]
    routes = {f"alias-{number:02}": [("chat@v00", 100.0)] for number in range(8)}
    catalog = registry(*map(model, versions), routes=routes)
    for number in range(6):
        catalog = catalog.apply(adapter(f"tone@v{number}", of="chat@v00"))

    assert not_found("x" * 10_000, catalog) == (
        f"the model '{'x' * 129}' does not exist; ask for one of: "
        "alias-00, alias-01, alias-02, alias-03, alias-04 and 3 more; "
        "chat@v00, chat@v01, chat@v02, chat@v03, chat@v04 and 25 more; "
        "tone@v0, tone@v1, tone@v2, tone@v3, tone@v4 and 1 more"
    )


def test_shares_are_kept_to_and_each_user_stays_with_one_version() -> None:
    catalog = registry(model("chat@v1"), model("chat@v2"), routes={"chat": [("chat@v1", 90), ("chat@v2", 10)]})
    users = [f"user-{number}" for number in range(4000)]

    first = [version(resolve("chat", catalog, tenant="acme", sticky=user)) for user in users]

    assert first == [version(resolve("chat", catalog, tenant="acme", sticky=user)) for user in users]
    assert 300 <= Counter(first)["chat@v2"] <= 500


def test_users_who_have_the_canary_keep_it_when_its_share_grows() -> None:
    users = [f"user-{number}" for number in range(500)]

    def on_canary(percent: float) -> set[str]:
        routes = {"chat": [("chat@v2", percent), ("chat@v1", 100 - percent)]}
        catalog = registry(model("chat@v1"), model("chat@v2"), routes=routes)
        return {user for user in users if version(resolve("chat", catalog, tenant="acme", sticky=user)) == "chat@v2"}

    assert on_canary(5) < on_canary(50) < on_canary(100) == set(users)


def test_what_the_percentages_leave_open_falls_to_the_last_target() -> None:
    catalog = registry(model("chat@v1"), model("chat@v2"), routes={"chat": [("chat@v1", 0), ("chat@v2", 0)]})

    assert version(resolve("chat", catalog, tenant="acme", sticky="ann")) == "chat@v2"


def test_a_route_that_changed_to_another_tokenizer_does_not_take_a_tokenized_prompt() -> None:
    routes = {"chat": [("chat@v2", 100.0)]}
    same = registry(model("chat@v1"), model("chat@v2"), routes=routes)
    other = registry(model("chat@v1"), model("chat@v2", tokenizer="/other"), routes=routes)

    assert (
        version(resolve_tokenized("chat", "chat@v1", same, tenant="acme", sticky="ann", can_serve=any_engine))
        == "chat@v2"
    )
    kept = resolve_tokenized("chat", "chat@v1", other, tenant="acme", sticky="ann", can_serve=any_engine)
    assert version(kept) == "chat@v1"
    assert isinstance(kept, Resolution)
    assert "before the routes changed" in kept.reason


def test_a_route_that_is_gone_still_serves_what_was_validated_for_it() -> None:
    assert (
        version(
            resolve_tokenized(
                "chat", "chat@v1", registry(model("chat@v1")), tenant="acme", sticky="ann", can_serve=any_engine
            )
        )
        == "chat@v1"
    )


def test_a_version_that_is_gone_can_not_serve_what_was_validated_for_it() -> None:
    assert isinstance(
        resolve_tokenized(
            "chat@v1", "chat@v1", registry(model("b@v1")), tenant="acme", sticky="ann", can_serve=any_engine
        ),
        Unresolved,
    )


def with_adapters(catalog: Registry, *adapters: tuple[str, str, str | None]) -> Registry:
    """(name, base version, tenant)."""
    for name, base, tenant in adapters:
        catalog = catalog.apply(
            AdapterRegistered(adapter=name, at_us=NOW_US, model_version=base, location="/a", tenant=tenant)
        )
    return catalog


def test_an_adapter_is_answered_by_its_base_version_in_the_base_versions_deployment() -> None:
    catalog = with_adapters(registry(model("chat@v1"), model("chat@v2")), ("tone@v1", "chat@v2", None))

    found = resolve("tone@v1", catalog, tenant="acme", sticky="ann")

    assert isinstance(found, Resolution)
    assert (found.model.model_version, found.model.deployment, found.adapter) == ("chat@v2", "chat-v2", "tone@v1")
    assert found.registration == catalog.adapters["tone@v1"]
    assert found.reason == "adapter tone@v1 of chat@v2"


def test_a_tenants_adapter_is_for_nobody_else_and_nobody_else_hears_of_it() -> None:
    catalog = with_adapters(registry(), ("tone@v1", "chat@v1", "acme"))

    assert version(resolve("tone@v1", catalog, tenant="acme", sticky="ann")) == "chat@v1"
    theirs = resolve("tone@v1", catalog, tenant="bolt", sticky="ann")
    none = resolve("tone@v1", registry(), tenant="bolt", sticky="ann")
    assert isinstance(theirs, Unresolved)
    assert theirs == none


def test_an_adapter_whose_base_is_not_registered_says_so() -> None:
    found = resolve("tone@v1", with_adapters(registry(), ("tone@v1", "gone@v1", None)), tenant="acme", sticky="ann")

    assert isinstance(found, Unresolved)
    assert "'gone@v1', which is not registered" in found.message


def test_no_plain_model_stands_in_for_an_adapter_that_was_taken_from_the_tenant() -> None:
    catalog = with_adapters(registry(), ("tone@v1", "chat@v1", "bolt"))

    found = resolve_tokenized(
        "tone@v1", "chat@v1", catalog, tenant="acme", sticky="ann", can_serve=any_engine
    )  # fmt: skip
    assert isinstance(found, Unresolved)


def test_a_route_that_changed_to_a_version_that_cant_serve_the_request_does_not_take_it() -> None:
    routes = {"chat": [("chat@v2", 100.0)]}
    catalog = registry(model("chat@v1", engine="torch"), model("chat@v2"), routes=routes)

    found = resolve_tokenized(
        "chat", "chat@v1", catalog, tenant="acme", sticky="ann", can_serve=lambda model: model.engine == "torch"
    )
    assert version(found) == "chat@v1"
