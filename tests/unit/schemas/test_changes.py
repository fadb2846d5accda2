from __future__ import annotations

from schemas.changes import Change, changes
from tests.compatibility_cases import TIME, array, field, fixed, map_of, record


def test_events_that_came_or_went_are_named() -> None:
    assert changes({"A": record(name="A")}, {"B": record(name="B")}) == (
        Change("A", "new event"),
        Change("B", "event removed"),
    )


def test_what_an_event_says_of_itself_is_told_in_one_line() -> None:
    old = record(topics={"requests.<tenant>": "request_id"})
    new = record(topics={"requests.<tenant>": "tenant"}, identity=["request_id"])
    assert changes({"Event": new}, {"Event": old}) == (Change("Event", "identity, topics"),)


def test_every_kind_of_change_of_a_field_is_told() -> None:
    message = field("messages", array(record(field("role", "string"), name="Message")))
    old = record(message, field("a", "int"), field("b", "int", default=0, doc="one"), field("c", "string"))
    new = record(
        message, field("a", TIME), field("b", "int", default=1, doc="two"), field("d", ["null", "int"], default=None),
        field("e", map_of(fixed(4))), doc="reworded",
    )  # fmt: skip
    assert changes({"Event": new}, {"Event": old}) == (
        Change("Event", "doc"),
        Change("Event.a", "type: int -> long (timestamp-micros)"),
        Change("Event.b", "default: 0 -> 1"),
        Change("Event.b", "doc"),
        Change("Event.d", "new field: null | int = null"),
        Change("Event.e", "new field: map of headrace.v1.Hash (fixed, 4 bytes)"),
        Change("Event.c", "field removed"),
    )


def test_changes_inside_arrays_maps_and_unions_have_a_path() -> None:
    def event(*fields: dict[str, object]) -> dict[str, dict[str, object]]:
        return {"Event": record(field("parts", ["null", array(map_of(record(*fields, name="Part")))]))}

    assert changes(event(field("x", "int", default=0)), event()) == (Change("Event.parts[]{}.x", "new field: int = 0"),)


def test_a_record_that_holds_itself_is_told_once() -> None:
    def node(doc: str) -> dict[str, dict[str, object]]:
        return {"Node": record(field("next", ["null", "Node"], default=None, doc=doc), name="Node")}

    assert changes(node("after"), node("before")) == (Change("Node.next", "doc"),)
    assert changes(node("same"), node("same")) == ()
