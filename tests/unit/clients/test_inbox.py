from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from headrace_client.contract.events import TokenLogEvent, TokenLogprob, TokenLogprobs, TokensGenerated
from headrace_client.errors import DeliveryFailed
from headrace_client.inbox import Inbox
from headrace_client.results import Failed, Finished, NotDelivered, Rejected, Result, TextDelta
from tests.client_log import admitted, failed, finished, rejected, started, submission, tokens


def read_all(inbox: Inbox, tenant: str | None = None) -> list[Result]:
    found: list[Result] = []
    while (result := inbox.take(tenant)) is not None:
        found.append(result)
    return found


def apply_all(inbox: Inbox, events: Iterable[TokenLogEvent]) -> None:
    for event in events:
        inbox.apply(event)


def inbox_with(*numbers: int, most_unread: int = 1000) -> Inbox:
    inbox = Inbox(most_unread)
    for number in numbers:
        inbox.follow(submission(number))
    return inbox


def test_tokens_come_as_they_are_made_and_the_end_behind_them() -> None:
    inbox, mine = Inbox(1000), submission()
    inbox.follow(mine)
    first, second = tokens(mine, ["one ", "two"])
    found: list[Result] = []
    log: list[TokenLogEvent] = [admitted(mine), started(mine), first, second, finished(mine, 2)]
    for event in log:
        inbox.apply(event)
        found += read_all(inbox)

    assert found == [
        TextDelta(mine, "one ", (0,), 0, 0),
        TextDelta(mine, "two", (1,), 1, 4),
        Finished(mine, "one two", finished(mine, 2)),
    ]
    assert len(inbox) == 0


def test_a_reader_who_falls_behind_gets_one_long_piece() -> None:
    inbox, mine = Inbox(1000), submission()
    inbox.follow(mine)
    apply_all(inbox, (*tokens(mine, ["a", "", "b"]), finished(mine, 3)))

    assert read_all(inbox) == [TextDelta(mine, "ab", (0, 1, 2), 0, 0), Finished(mine, "ab", finished(mine, 3))]


def told(events: Iterable[TokensGenerated]) -> list[TokensGenerated]:
    """With the log probability of each token, minus its place, and one likelier token."""
    likelier = (TokenLogprob(token_id=9, utf8=b"x", logprob=-0.1),)
    return [
        replace(event, logprobs=(TokenLogprobs(logprob=-float(event.index), utf8=event.text.encode(), top=likelier),))
        for event in events
    ]


def test_log_probabilities_come_with_their_tokens_each_once() -> None:
    inbox, mine = Inbox(1000), submission()
    inbox.follow(mine)
    apply_all(inbox, told(tokens(mine, ["a", "b"])))
    first = read_all(inbox)
    apply_all(inbox, (*told(tokens(mine, ["a", "b", "c"], attempt=2)), finished(mine, 3, attempt=2)))
    delta, end = read_all(inbox)

    assert isinstance(first[0], TextDelta)
    assert [entry.logprob for entry in first[0].logprobs] == [0.0, -1.0]
    assert isinstance(delta, TextDelta)
    assert (delta.text, [entry.logprob for entry in delta.logprobs]) == ("c", [-2.0])
    assert isinstance(end, Finished)
    assert [entry.utf8 for entry in end.logprobs] == [b"a", b"b", b"c"]


def test_log_probabilities_count_for_what_waits() -> None:
    plain, costly = inbox_with(1, most_unread=7), inbox_with(1, most_unread=7)
    apply_all(plain, tokens(submission(1), ["a", "b"]))
    apply_all(costly, told(tokens(submission(1), ["a", "b"])))

    assert not plain.full("acme")
    assert costly.full("acme")
    read_all(costly)
    assert costly.drained("acme")


def test_a_worker_that_takes_over_repeats_nothing() -> None:
    inbox, mine = Inbox(1000), submission()
    inbox.follow(mine)
    apply_all(
        inbox, (*tokens(mine, ["a", "b"]), *tokens(mine, ["a", "b", "c"], attempt=2), finished(mine, 3, attempt=2))
    )
    text = "".join(result.text for result in read_all(inbox) if isinstance(result, TextDelta))

    assert text == "abc"


def test_requests_of_others_are_not_looked_at() -> None:
    inbox, other = inbox_with(1), submission(2)

    assert other.request_id.encode() not in inbox
    assert inbox.apply(tokens(other, ["x"])[0]) is None
    assert read_all(inbox) == []


@pytest.mark.parametrize("end", [Rejected, Failed, NotDelivered])
def test_every_way_to_end_is_a_result(end: type[Result]) -> None:
    inbox, mine = Inbox(1000), submission()
    inbox.follow(mine)
    if end is Rejected:
        inbox.apply(rejected(mine))
    elif end is Failed:
        inbox.apply(failed(mine))
    else:
        assert inbox.fail(mine, DeliveryFailed("gone"))
        assert not inbox.fail(mine, DeliveryFailed("again"))

    (result,) = read_all(inbox)

    assert type(result) is end
    assert inbox.open_count(None) == 0


def test_what_somebody_waits_for_is_not_handed_to_others() -> None:
    inbox, mine = Inbox(1000), submission()
    inbox.follow(mine)
    inbox.apply(tokens(mine, ["early "])[0])
    inbox.claim(mine)
    apply_all(inbox, (*tokens(mine, ["early ", "late"]), finished(mine, 2)))

    assert inbox.take(None) is None
    assert inbox.open_count("acme") == 0
    ending = inbox.take_ending(mine)
    assert isinstance(ending, Finished)
    assert ending.text == "early late"
    with pytest.raises(KeyError):
        inbox.take_ending(mine)


def test_what_nobody_waits_for_any_more_is_handed_to_readers_again() -> None:
    inbox, mine = Inbox(1000), submission()
    inbox.follow(mine)
    inbox.claim(mine)
    apply_all(inbox, (*tokens(mine, ["a", "b"]), finished(mine, 2)))
    inbox.release(mine)

    assert [type(result) for result in read_all(inbox)] == [TextDelta, Finished]


def test_a_tenant_is_full_until_half_of_it_is_read() -> None:
    inbox, mine = Inbox(most_unread=10), submission()
    inbox.follow(mine)
    for event in tokens(mine, ["abcd"] * 2):
        inbox.apply(event)
    assert not inbox.full("acme")
    inbox.apply(tokens(mine, ["abcd"] * 3)[2])

    assert inbox.full("acme")
    assert not inbox.drained("acme")
    assert not inbox.full("another")
    read_all(inbox)
    assert inbox.drained("acme")


def test_what_is_claimed_or_forgotten_does_not_fill_the_buffer() -> None:
    inbox, claimed, forgotten = Inbox(most_unread=1), submission(1), submission(2)
    for each in (claimed, forgotten):
        inbox.follow(each)
        inbox.apply(tokens(each, ["long enough"])[0])
    assert inbox.full("acme")

    inbox.claim(claimed)
    inbox.forget(forgotten)

    assert inbox.drained("acme")
    assert len(inbox) == 1
    assert inbox.take(None) is None


def test_results_of_one_tenant_or_of_all() -> None:
    inbox, mine, theirs = Inbox(1000), submission(1, "acme"), submission(2, "umbrella")
    for each in (mine, theirs):
        inbox.follow(each)
        inbox.apply(rejected(each))

    assert [result.submission for result in read_all(inbox, "umbrella")] == [theirs]
    assert inbox.open_count("umbrella") == 0
    assert [result.submission for result in read_all(inbox)] == [mine]
    assert inbox.take("nobody") is None
