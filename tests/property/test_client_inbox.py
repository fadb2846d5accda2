"""However the log repeats itself and whenever the reader looks, he reads what the log's own fold says, once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace_client.contract.events import TokenLogEvent
from headrace_client.contract.token_log import TokenLog
from headrace_client.inbox import Inbox
from headrace_client.results import Finished, Result, TextDelta
from headrace_client.submission import Submission
from tests.client_log import admitted, finished, started, submission, tokens

WORDS = ["a", "", "bc", "d ", "é"]


def story(of: Submission) -> list[TokenLogEvent]:
    """Two workers, of whom the second takes over."""
    return [
        admitted(of), started(of), *tokens(of, WORDS[:3]), started(of, 2), *tokens(of, WORDS, 2),
        finished(of, len(WORDS), attempt=2),
    ]  # fmt: skip


STEPS = st.tuples(st.integers(0, 2), st.sampled_from(("next", "next", "next", "again", "read", "claim", "release")))


@given(steps=st.lists(STEPS, max_size=60), most_unread=st.integers(0, 20))
def test_what_is_read_is_what_the_log_says(steps: list[tuple[int, str]], most_unread: int) -> None:
    submissions = [submission(number, f"t-{number % 2}") for number in range(3)]
    inbox, logs = Inbox(most_unread), {each.request_id: TokenLog() for each in submissions}
    read: dict[str, list[Result]] = {each.request_id: [] for each in submissions}
    stories = [story(each) for each in submissions]
    written = [0, 0, 0]
    for each in submissions:
        inbox.follow(each)

    def write(which: int, place: int) -> None:
        event = stories[which][place]
        inbox.apply(event)
        logs[event.request_id].apply(event)

    for which, step in steps:
        each, open_ = submissions[which], submissions[which].request_id.encode() in inbox
        if step == "next" and written[which] < len(stories[which]):
            write(which, written[which])
            written[which] += 1
        elif step == "again" and written[which]:
            write(which, written[which] // 2)
        elif step == "read" and (result := inbox.take(each.tenant)) is not None:
            read[result.submission.request_id].append(result)
        elif step == "claim" and open_:
            inbox.claim(each)
        elif step == "release":
            inbox.release(each)
    for which, each in enumerate(submissions):
        for place in range(written[which], len(stories[which])):
            write(which, place)
        inbox.release(each)
    while (result := inbox.take(None)) is not None:
        read[result.submission.request_id].append(result)

    assert len(inbox) == 0
    assert all(inbox.drained(each.tenant) and not inbox.full(each.tenant) for each in submissions)
    for each in submissions:
        *deltas, end = read[each.request_id]
        log, place, chars = logs[each.request_id], 0, 0
        for delta in deltas:
            assert isinstance(delta, TextDelta)
            assert (delta.index, delta.text_offset_chars) == (place, chars)
            place, chars = place + len(delta.token_ids), chars + len(delta.text)
        assert isinstance(end, Finished)
        assert end.text == log.text == "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
