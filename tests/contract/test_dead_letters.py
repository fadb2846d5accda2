"""`headrace dead-letters` against a broker: what nobody could read is found again, shown, and written back."""

from __future__ import annotations

from pathlib import Path

import pytest

from eventlog.admin import LogAdmin
from eventlog.clock import now_us
from eventlog.dead_letters import send_dead_letter
from eventlog.producer import EventProducer
from eventlog.profile import BrokerProfile
from eventlog.reader import LogReader
from eventlog.record import Record
from eventlog.registry import Registry
from infra.cli import run
from schemas.codec import encode
from schemas.errors import ContractError
from schemas.events import DeadLetterRequeued, RequestCancelled, TenantRegistered
from schemas.topics import dead_letters_topic, requests_topic
from tests.brokers import Broker
from tests.timing import within

REQUEST_ID = "01a22b05-26c0-71f8-819e-55df79420000"


@pytest.fixture(autouse=True)
def _settings_of_the_broker(broker: Broker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HEADRACE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HEADRACE_KAFKA_BOOTSTRAP_SERVERS", broker.bootstrap_servers)
    monkeypatch.setenv("HEADRACE_BROKER", broker.profile.kind)


@pytest.fixture
def tenant(admin: LogAdmin, tenant_name: str) -> str:
    event = TenantRegistered(
        tenant=tenant_name, at_us=now_us(), requests_per_minute=60, tokens_per_minute=1000, max_concurrent_requests=4
    )
    admin.register_tenant(event, Registry())
    return tenant_name


class Command:
    """`headrace dead-letters`, in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        status = run(["dead-letters", *arguments])
        self.out, self.err = self._capsys.readouterr()
        return status

    def rows(self, *arguments: str) -> dict[str, list[str]]:
        """What `list` shows, by id."""
        assert self("list", *arguments) == 0
        return {line.split("\t")[0]: line.split("\t")[1:] for line in self.out.splitlines()[1:]}


@pytest.fixture
def letters(capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(capsys)


def write(producer: EventProducer, topic: str, value: bytes, partition: int = 2) -> int:
    return producer.write(topic, partition, value, key=b"k", headers=[("colour", b"blue"), ("raw", b"\xff")])


def record_at(profile: BrokerProfile, topic: str, partition: int, offset: int) -> Record:
    with LogReader(profile, client_id="test") as reader:
        return next(iter(reader.read_to_end({(topic, partition): offset})))


def dead_letter(profile: BrokerProfile, producer: EventProducer, topic: str, value: bytes) -> str:
    """A record of this topic that a consumer could not read, whatever its bytes; the letter's id."""
    offset = write(producer, topic, value)
    record = record_at(profile, topic, 2, offset)
    try:
        record.event()
    except ContractError as error:
        problem = error
    else:
        problem = ContractError("a consumer of long ago did not know it")
    send_dead_letter(producer, record, problem, consumer="test", now_us=now_us())
    assert producer.flush(within(10)) == 0
    return f"{topic}/2/{offset}"


def cancelled(tenant: str) -> bytes:
    return encode(RequestCancelled(request_id=REQUEST_ID, tenant=tenant, at_us=7, reason="client"))


def test_a_letter_is_listed_shown_and_written_back_as_it_was(
    profile: BrokerProfile, producer: EventProducer, tenant: str, letters: Command
) -> None:
    topic = requests_topic(tenant)
    name = dead_letter(profile, producer, topic, cancelled(tenant))

    (row,) = letters.rows("--tenant", tenant).values()
    assert row[1:] == [tenant, "contract", "test", "open", "a consumer of long ago did not know it"]
    assert letters("show", name) == 0
    assert "header colour  blue" in letters.out
    assert "header raw     0xff" in letters.out
    assert "now            RequestCancelled:" in letters.out
    assert '"reason": "client"' in letters.out

    assert letters("requeue", name, "--dry-run") == 0
    assert letters.out == f"{name}\twould go to {topic}/2: RequestCancelled\n"
    assert letters.rows("--tenant", tenant).keys() == {name}, "a dry run changes nothing"

    assert letters("requeue", name) == 0
    assert letters.out == f"{name}\trequeued as {topic}/2/1\n"
    record = record_at(profile, topic, 2, 1)
    assert (record.value, record.key) == (cancelled(tenant), b"k")
    assert dict(record.headers) == {"colour": b"blue", "raw": b"\xff", "headrace_requeued_from": name.encode()}

    assert letters.rows("--tenant", tenant) == {}
    assert letters.rows("--tenant", tenant, "--all")[name][4] == "requeued"
    assert letters("show", name) == 0
    assert f"as {topic}/2/1" in letters.out
    fact = record_at(profile, dead_letters_topic(tenant), 0, 1).event()
    assert isinstance(fact, DeadLetterRequeued)
    assert (fact.origin_topic, fact.origin_partition, fact.origin_offset, fact.requeued_offset) == (topic, 2, 0, 1)


def test_what_still_cant_be_read_or_went_back_before_is_refused_unless_forced(
    profile: BrokerProfile, producer: EventProducer, tenant: str, letters: Command
) -> None:
    topic = requests_topic(tenant)
    garbage = dead_letter(profile, producer, topic, b"\x1b[31mgarbage")
    good = dead_letter(profile, producer, topic, cancelled(tenant))
    strange = dead_letter(profile, producer, topic, cancelled("somebody-else"))

    assert letters("requeue", "--tenant", tenant) == 1
    outcomes = dict(line.split("\t") for line in letters.out.splitlines())
    assert outcomes[good] == f"requeued as {topic}/2/3"
    assert outcomes[garbage].startswith("refused: it still cannot be read: neither an Avro single-object header")
    assert outcomes[strange] == f"refused: it would not be taken: an event of another tenant is in {topic}"
    assert letters.err == "1 requeued, 2 not.\n"

    assert letters("show", garbage) == 0
    assert "\x1b" not in letters.out
    assert "1b 5b 33 31 6d" in letters.out
    assert letters("requeue", garbage, good) == 1
    assert f"{good}\trefused: it was requeued already, as {topic}/2/3" in letters.out
    assert letters("requeue", garbage, good, "--force") == 0
    assert letters.out == f"{garbage}\trequeued as {topic}/2/4\n{good}\trequeued as {topic}/2/5\n"


def test_the_same_record_read_twice_is_one_letter(
    profile: BrokerProfile, producer: EventProducer, tenant: str, letters: Command
) -> None:
    topic = requests_topic(tenant)
    name = dead_letter(profile, producer, topic, b"garbage")
    again = record_at(profile, topic, 2, 0)
    send_dead_letter(producer, again, ContractError("again"), consumer="another", now_us=now_us())
    assert producer.flush(within(10)) == 0
    assert letters.rows("--tenant", tenant)[name][3:] == ["another", "open", "again"]
    assert letters("show", name) == 0
    assert "(2 times)" in letters.out


def test_letters_are_picked_by_reason_and_age(
    profile: BrokerProfile, producer: EventProducer, tenant: str, letters: Command
) -> None:
    topic = requests_topic(tenant)
    garbage = dead_letter(profile, producer, topic, b"garbage")
    unknown = dead_letter(profile, producer, topic, b"\xc3\x01unknown!body")
    assert letters.rows("--tenant", tenant, "--reason", "undecodable").keys() == {garbage}
    assert letters.rows("--tenant", tenant, "--since", "1h").keys() == {garbage, unknown}
    assert letters("requeue", "--tenant", tenant, "--reason", "unknown_schema", "--dry-run", "--force") == 0
    assert letters.out.startswith(f"{unknown}\twould go to {topic}/2: unreadable (forced: it still cannot be read")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["list", "--tenant", "nobody-at-all"], "there is no tenant 'nobody-at-all'"),
        (["list", "--since", "yesterday"], "is no duration such as"),
        (["show", "requests.nobody-at-all/0/1"], "there is no dead letter requests.nobody-at-all/0/1"),
        (["show", "12"], "names no dead letter"),
        (["requeue"], "Name the letters, or say which"),
        (["requeue", "requests.a/0/1", "--tenant", "a"], "Name the letters, or say which"),
    ],
)
def test_what_cannot_be_is_refused_with_the_reason(letters: Command, arguments: list[str], problem: str) -> None:
    assert letters(*arguments) == 2
    assert problem in letters.err
