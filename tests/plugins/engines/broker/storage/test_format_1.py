"""Data folders of format 1: what an older version has written is read, written on, and read again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from plugins.engines.broker.broker import Broker
from plugins.engines.broker.host.users_file import UsersFile
from plugins.engines.broker.storage.opening import OpenStore
from plugins.engines.broker.storage.store_options import StoreOptions
from plugins.protocols.amqp091.field_tables import Timestamp
from tests.plugins.engines.broker.client import Client, run
from tests.plugins.engines.broker.storage.durable import CODECS

FOLDERS = Path(__file__).parents[4] / "data" / "stores" / "format_1"
CLOCK = 1_700_000_000.0
"""The time of day when the folders were written."""
ARGUMENTS: dict[str, Any] = {
    "text": "ä",
    "octets": b"\xff\x00",
    "array of bytes": bytearray(b"\x00ab"),
    "yes": True,
    "small": -3,
    "large": 1 << 40,
    "float": 1.5,
    "decimal": Decimal("3.14"),
    "time": datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    "late": Timestamp(1 << 60),
    "nothing": None,
    "list": [1, "two", {"three": 3}],
    "table": {"deep": {"deeper": []}},
}
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "headers": {"x": [1, {"y": b"\xfe"}], "t": Timestamp(1 << 50)},
    "delivery_mode": 2,
    "priority": 3,
    "correlation_id": "\udcff",
    "reply_to": "there",
    "expiration": "60000000",
    "message_id": "m",
    "timestamp": datetime(2026, 1, 2, tzinfo=UTC),
    "app_id": "a",
}
ORDERS = [b"order %d" % number for number in range(20)]
UNROUTED = [b"%04d" % number + b"-" * 96 for number in range(693, 700)]
LONG = [b"%03d" % number + b"." * 97 for number in range(60)]
RANKED = [
    b"rank %d" % number for rank in (5, 4, 3, 2, 1, 0) for number in range(12) if min(number % 7, 5) == rank
]


class Opened:
    """A broker on a copy of a folder; this thread is the broker's."""

    def __init__(self, directory: Path) -> None:
        self.posted: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self.reports: list[tuple[str, str]] = []
        self.kept = OpenStore(
            directory,
            StoreOptions(segment_bytes=8192, lazy_bytes=1000),
            CODECS,
            now=0.0,
            time_of_day=CLOCK,
            post=self.posted.put,
            on_done=lambda: None,
            report=lambda what, detail: self.reports.append((what, detail)),
        )
        self.broker = Broker(store=self.kept.store, clock=CLOCK)
        self.kept.restore(self.broker, 0.0)
        self.vhost = self.broker.vhost("/")
        self.client = Client(self.vhost)

    def turn(self) -> None:
        self.broker.process(0.0)
        store = self.kept.store
        while store.safe < store.mark:
            self.posted.get(timeout=60)()

    def close(self) -> None:
        self.client.receiver.recover()
        self.kept.close(self.broker)

    def messages(self, queue: str, vhost: str = "/") -> list[tuple[bytes, bool]]:
        """Return bodies, and whether they are redelivered; they go back to the queue."""
        receiver = Client(self.broker.vhost(vhost)).receiver
        found: list[tuple[bytes, bool]] = []
        while (
            taken := receiver.take_one(self.broker.vhost(vhost).queues[queue], 0.0, auto_ack=False)
        ) is not None:
            span = taken[1]
            found.append((bytes(span.as_batch().bodies[0]), span.redelivered))
        receiver.recover()
        return found

    def bodies(self, queue: str, vhost: str = "/") -> list[bytes]:
        """Return the bodies alone."""
        return [body for body, _ in self.messages(queue, vhost)]


@pytest.fixture(params=["closed", "killed"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(FOLDERS / request.param, tmp_path / request.param))


@pytest.fixture
def opened() -> Iterator[Callable[[Path], Opened]]:
    all_opened: list[Opened] = []

    def make(directory: Path) -> Opened:
        all_opened.append(Opened(directory))
        return all_opened[-1]

    yield make
    for one in all_opened:
        one.close()


def test_a_folder_is_read(folder: Path, opened: Callable[[Path], Opened]) -> None:
    check_everything(opened(folder), closed=folder.name == "closed")


def test_it_is_written_on_and_read_again(folder: Path, opened: Callable[[Path], Opened]) -> None:
    first = opened(folder)
    first.vhost.publish(run(b"new", key="k\udcff", persistent=True), 0.0)
    first.vhost.declare_queue("new", None, 0.0, durable=True)
    first.turn()
    first.close()
    again = opened(folder)
    assert "new" in again.vhost.queues
    assert again.bodies("k\udcff") == [b"all of it", b"new"]
    check_definitions(again)
    check_messages(again, but="k\udcff")


def test_nothing_is_lost_when_its_segments_are_cleaned_away(
    folder: Path, opened: Callable[[Path], Opened]
) -> None:
    old = {path.name for path in folder.glob("*.log")}
    first = opened(folder)
    churn = first.vhost.declare_queue("churn", None, 0.0, durable=True)
    for number in range(3000):
        first.vhost.publish(run(b"%d" % number + bytes(200), key="churn", persistent=True), 0.0)
        first.turn()
        first.client.receiver.take_one(churn, 0.0, auto_ack=True)
        if number % 100 == 0 and not old & {path.name for path in folder.glob("*.log")}:
            break
    first.vhost.delete_queue("churn", None, 0.0)
    first.turn()
    first.close()
    assert not old & {path.name for path in folder.glob("*.log")}
    again = opened(folder)
    check_definitions(again)
    check_messages(again)


def check_everything(opened: Opened, *, closed: bool) -> None:
    assert not [report for report in opened.reports if report[0] != "cut"]
    check_definitions(opened)
    delivered = [redelivered for _, redelivered in opened.messages("plain")]
    assert delivered == ([True] * 4 + [False] * 10 if closed else [True] * 14)
    check_messages(opened)
    users = UsersFile(opened.kept.directory).read()
    assert [user.name for user in users.users] == ["ann"]
    assert [(one.user, one.vhost, one.configure) for one in users.permissions] == [("ann", "/other", "")]


def check_definitions(opened: Opened) -> None:
    exchanges = {
        exchange.name: (exchange.kind, exchange.internal, exchange.auto_delete)
        for exchange in opened.vhost.exchanges.values()
        if exchange.name and not exchange.name.startswith("amq.")
    }
    assert exchanges == {
        "orders": ("topic", False, False),
        "unrouted": ("fanout", False, False),
        "dead": ("direct", False, False),
        "inner": ("headers", True, True),
    }
    arguments = opened.vhost.exchanges["orders"].arguments
    assert arguments == {**ARGUMENTS, "alternate-exchange": "unrouted"}
    assert {name: type(arguments[name]) for name in ARGUMENTS} == {
        name: type(value) for name, value in ARGUMENTS.items()
    }
    assert set(opened.vhost.queues) - {"new"} == {
        "plain", "all", "unrouted", "graveyard", "mortal", "ranked", "long", "k\udcff", "transient messages"
    }  # fmt: skip
    bindings = {
        (binding.source.name, name, binding.key, tuple(binding.arguments))
        for name, destination in [*opened.vhost.queues.items(), *opened.vhost.exchanges.items()]
        for binding in destination.incoming.values()
    }
    assert bindings == {
        ("orders", "plain", "plain.#", tuple(ARGUMENTS)),
        ("orders", "all", "#", ()),
        ("orders", "inner", "inner.*", ()),
        ("inner", "all", "", ("x-match", "colour")),
        ("unrouted", "unrouted", "", ()),
        ("dead", "graveyard", "buried", ()),
    }
    policy = opened.vhost.queues["mortal"].policy
    assert (policy.message_ttl, policy.dead_letter_exchange, policy.dead_letter_key) == (
        60.0,
        "dead",
        "buried",
    )
    assert set(opened.broker.vhost("/other").queues) == {"there"}


def check_messages(opened: Opened, but: str = "") -> None:
    queues = opened.vhost.queues
    assert opened.bodies("plain") == [ORDERS[number] for number in (5, 6, 8, 9, *range(10, 20))]
    assert opened.bodies("all") == [*ORDERS, b"red"]
    assert opened.bodies("unrouted") == UNROUTED
    assert opened.bodies("ranked") == RANKED
    assert opened.bodies("long") == LONG
    assert opened.bodies("transient messages") == []
    assert opened.bodies("there", "/other") == [b"1", b"22", b""]
    if but != "k\udcff":
        taken = opened.client.receiver.take_one(queues["k\udcff"], 0.0, auto_ack=False)
        assert taken is not None
        envelope = taken[1].envelope
        assert dict(envelope.properties) == PROPERTIES
        assert (envelope.key, envelope.exchange, envelope.expiration, envelope.priority) == (
            "k\udcff",
            "",
            60_000_000,
            3,
        )
        assert (envelope.reply_to, envelope.persistent) == ("there", True)
    # What was rejected is in the graveyard; what has waited for longer than a minute follows.
    assert opened.bodies("mortal") == [b"waits", b"waits less"]
    opened.broker.handle_timeout(61.0)
    graveyard = opened.client.receiver.take_deliveries()
    assert not graveyard
    spans = []
    while (taken := opened.client.receiver.take_one(queues["graveyard"], 61.0, auto_ack=False)) is not None:
        spans.append(taken[1])
    assert [bytes(span.as_batch().bodies[0]) for span in spans] == [b"rejected", b"waits", b"waits less"]
    headers = [span.envelope.properties["headers"] for span in spans]
    assert [one["x-death"][0]["reason"] for one in headers] == ["rejected", "expired", "expired"]
    assert headers[0]["a"] == 1
    assert headers[0]["x-death"][0]["time"] == datetime.fromtimestamp(CLOCK, UTC)
