"""Letters as a fold: whatever was repeated and in whatever order letters of different records came, each is one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from eventlog.letters import Letter, Origin, Place, apply, select
from schemas.events import DeadLettered, DeadLetterRequeued

offsets = st.integers(0, 4)
letters = st.builds(
    DeadLettered, at_us=st.integers(1, 100), consumer=st.sampled_from(["validate", "sink"]), reason=st.just("contract"),
    message=st.text(max_size=5), origin_topic=st.just("requests.acme"), origin_partition=st.just(0),
    origin_offset=offsets, value=st.just(b"v"),
)  # fmt: skip
requeues = st.builds(
    DeadLetterRequeued, at_us=st.integers(1, 100), origin_topic=st.just("requests.acme"), origin_partition=st.just(0),
    origin_offset=offsets, requeued_offset=st.integers(0, 100), operator=st.just("ann"),
)  # fmt: skip
events = st.lists(letters | requeues, max_size=40)


def folded(history: list[DeadLettered | DeadLetterRequeued]) -> dict[Origin, Letter]:
    found: dict[Origin, Letter] = {}
    for offset, event in enumerate(history):
        apply(found, event, Place("dead-letters.acme", offset))
    return found


@given(events)
def test_each_record_is_one_letter_that_points_to_its_bytes(history: list[DeadLettered | DeadLetterRequeued]) -> None:
    found = folded(history)
    written = [event for event in history if isinstance(event, DeadLettered)]
    assert set(found) == {Origin.of(event) for event in written}
    assert sum(letter.times for letter in found.values()) == len(written)
    for origin, letter in found.items():
        newest = history[letter.place.offset]
        assert isinstance(newest, DeadLettered)
        assert Origin.of(newest) == origin
        assert (letter.message, letter.consumer) == (newest.message, newest.consumer)


@given(events)
def test_a_letter_is_open_until_the_first_requeue_behind_it(history: list[DeadLettered | DeadLetterRequeued]) -> None:
    for origin, letter in folded(history).items():
        mine = [event for event in history if Origin.of(event) == origin]
        first = next(number for number, event in enumerate(mine) if isinstance(event, DeadLettered))
        requeued = [event for event in mine[first:] if isinstance(event, DeadLetterRequeued)]
        assert letter.requeued == (requeued[-1] if requeued else None)


@given(events)
def test_a_history_read_twice_changes_no_letters_state(history: list[DeadLettered | DeadLetterRequeued]) -> None:
    once, twice = folded(history), folded([*history, *history])
    assert set(once) == set(twice)
    for origin, letter in once.items():
        if letter.requeued is not None:
            assert twice[origin].state == "requeued"
        assert twice[origin].at_us == letter.at_us


@given(events, st.booleans())
def test_what_is_picked_is_in_the_order_of_time(
    history: list[DeadLettered | DeadLetterRequeued], with_requeued: bool
) -> None:
    picked = select(folded(history).values(), with_requeued=with_requeued)
    assert [letter.at_us for letter in picked] == sorted(letter.at_us for letter in picked)
    assert with_requeued or all(letter.state == "open" for letter in picked)


@given(st.from_regex(r"[a-z.]{1,20}", fullmatch=True), st.integers(0, 10**9 - 1), st.integers(0, 10**18 - 1))
def test_a_name_leads_back_to_its_origin(topic: str, partition: int, offset: int) -> None:
    origin = Origin(topic, partition, offset)
    assert Origin.parse(str(origin)) == origin
