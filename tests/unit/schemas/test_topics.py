"""The topic table and the names made from it."""

from __future__ import annotations

import pytest

from schemas.errors import InvalidName
from schemas.events import EVENT_TYPES
from schemas.names import deployment_for, split_model_version
from schemas.topics import TOKENS, TOPIC_KINDS, Topics, kind_of, requests_topic, tenant_of, work_topic


def test_every_event_has_a_topic() -> None:
    assert {event for kind in TOPIC_KINDS for event in kind.events} == set(EVENT_TYPES)


def test_a_tenants_topics_are_named_sized_and_kept_as_the_table_says() -> None:
    specs = {spec.name: spec for spec in Topics(tokens=12).of_tenant("acme", {"chat-v1", "chat-v2"})}
    assert set(specs) == {
        "requests.acme", "tokens.acme", "lifecycle.acme", "dead-letters.acme", "work.chat-v1.acme", "work.chat-v2.acme",
    }  # fmt: skip
    assert specs["tokens.acme"].partitions == 12
    assert specs["tokens.acme"].retention_ms == TOKENS.retention_ms
    assert specs["dead-letters.acme"].partitions == 1


def test_shared_topics_hold_the_control_topics_compacted() -> None:
    specs = {spec.name: spec for spec in Topics().shared()}
    assert specs["control.tenants"].retention_ms is None
    assert specs["control.tenants"].partitions == 1
    assert "dead-letters._system" in specs


@pytest.mark.parametrize(
    ("topic", "kind", "tenant"),
    [
        ("requests.acme", "requests", "acme"),
        ("work.chat-v1.acme", "work", "acme"),
        ("validated", "validated", None),
        ("control.models", "control.models", None),
        ("dead-letters._system", "dead-letters", None),
        ("dead-letters.acme", "dead-letters", "acme"),
    ],
)
def test_a_topic_tells_its_kind_and_tenant(topic: str, kind: str, tenant: str | None) -> None:
    found = kind_of(topic)
    assert found is not None
    assert found.name == kind
    assert tenant_of(topic) == tenant


def test_a_strange_topic_is_not_ours() -> None:
    assert kind_of("__consumer_offsets") is None
    assert tenant_of("__consumer_offsets") is None


@pytest.mark.parametrize("name", ["", "Acme", "a.b", "-a", "a-", "a" * 64, "a b", "a/b"])
def test_a_tenant_name_that_would_break_a_topic_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidName, match="is not a tenant name"):
        Topics().of_tenant(name, set())


def test_work_topics_name_deployment_and_tenant() -> None:
    assert work_topic("chat-v1", "acme") == "work.chat-v1.acme"
    assert requests_topic("acme") == "requests.acme"
    with pytest.raises(InvalidName, match="is not a deployment name"):
        work_topic("chat.v1", "acme")


def test_a_pinned_version_splits_and_names_its_deployment() -> None:
    assert split_model_version("SmolLM2@v1.5") == ("SmolLM2", "v1.5")
    assert deployment_for("SmolLM2@v1.5") == "smollm2-v1-5"
    for wrong in ("chat", "chat@", "@v1", "a@b@c"):
        with pytest.raises(InvalidName, match="pinned version"):
            split_model_version(wrong)
