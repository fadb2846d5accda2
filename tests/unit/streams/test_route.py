"""Names to versions: pinned, alias, shares, and what is said when nothing answers."""

from __future__ import annotations

from collections import Counter

import pytest

from eventlog.registry import Registry
from streams.route import Resolution, Unresolved, resolve, resolve_tokenized
from tests.unit.streams.samples import model, registry


def version(found: Resolution | Unresolved) -> str:
    assert isinstance(found, Resolution)
    return found.model.model_version


def test_a_pinned_version_is_itself_even_when_an_alias_leads_elsewhere() -> None:
    catalog = registry(model("chat@v1"), model("chat@v2"), routes={"chat@v1": [("chat@v2", 100)]})

    found = resolve("chat@v1", catalog, sticky="ann")

    assert version(found) == "chat@v1"


def test_an_alias_leads_to_its_target_and_says_so() -> None:
    found = resolve("chat", registry(model("chat@v1"), routes={"chat": [("chat@v1", 100)]}), sticky="ann")

    assert isinstance(found, Resolution)
    assert (found.model.deployment, found.reason) == ("chat-v1", "alias chat")


@pytest.mark.parametrize("routes", [{}, {"chat": []}])
def test_a_name_that_leads_nowhere_is_unresolved(routes: dict[str, list[tuple[str, float]]]) -> None:
    assert isinstance(resolve("chat", registry(model("other@v1"), routes=routes), sticky="ann"), Unresolved)


def test_an_alias_to_a_version_that_is_not_registered_says_which() -> None:
    found = resolve("chat", registry(model("chat@v1"), routes={"chat": [("chat@v9", 100)]}), sticky="ann")

    assert isinstance(found, Unresolved)
    assert "'chat@v9'" in found.message


def test_without_any_model_the_message_says_so() -> None:
    found = resolve("chat", Registry(), sticky="ann")

    assert isinstance(found, Unresolved)
    assert "no model is registered yet" in found.message


def test_shares_are_kept_to_and_each_user_stays_with_one_version() -> None:
    catalog = registry(model("chat@v1"), model("chat@v2"), routes={"chat": [("chat@v1", 90), ("chat@v2", 10)]})
    users = [f"user-{number}" for number in range(4000)]

    first = [version(resolve("chat", catalog, sticky=user)) for user in users]

    assert first == [version(resolve("chat", catalog, sticky=user)) for user in users]
    assert 300 <= Counter(first)["chat@v2"] <= 500


def test_users_who_have_the_canary_keep_it_when_its_share_grows() -> None:
    users = [f"user-{number}" for number in range(500)]

    def on_canary(percent: float) -> set[str]:
        routes = {"chat": [("chat@v2", percent), ("chat@v1", 100 - percent)]}
        catalog = registry(model("chat@v1"), model("chat@v2"), routes=routes)
        return {user for user in users if version(resolve("chat", catalog, sticky=user)) == "chat@v2"}

    assert on_canary(5) < on_canary(50) < on_canary(100) == set(users)


def test_what_the_percentages_leave_open_falls_to_the_last_target() -> None:
    catalog = registry(model("chat@v1"), model("chat@v2"), routes={"chat": [("chat@v1", 0), ("chat@v2", 0)]})

    assert version(resolve("chat", catalog, sticky="ann")) == "chat@v2"


def test_a_route_that_changed_to_another_tokenizer_does_not_take_a_tokenized_prompt() -> None:
    routes = {"chat": [("chat@v2", 100.0)]}
    same = registry(model("chat@v1"), model("chat@v2"), routes=routes)
    other = registry(model("chat@v1"), model("chat@v2", tokenizer="/other"), routes=routes)

    assert version(resolve_tokenized("chat", "chat@v1", same, sticky="ann")) == "chat@v2"
    kept = resolve_tokenized("chat", "chat@v1", other, sticky="ann")
    assert version(kept) == "chat@v1"
    assert isinstance(kept, Resolution)
    assert "before the routes changed" in kept.reason


def test_a_route_that_is_gone_still_serves_what_was_validated_for_it() -> None:
    assert version(resolve_tokenized("chat", "chat@v1", registry(model("chat@v1")), sticky="ann")) == "chat@v1"


def test_a_version_that_is_gone_can_not_serve_what_was_validated_for_it() -> None:
    assert isinstance(resolve_tokenized("chat@v1", "chat@v1", registry(model("b@v1")), sticky="ann"), Unresolved)
