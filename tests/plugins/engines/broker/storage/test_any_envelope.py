"""Every envelope that is accepted is on the disk, whichever protocol it came by; what is not accepted is refused."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.message import Envelope, batch_of
from kernel.contracts.timestamp import Timestamp
from plugins.engines.broker.broker import Broker
from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.storage.envelopes import Codecs, Envelopes
from plugins.engines.broker.storage.opening import OpenStore
from plugins.engines.broker.storage.recovery import CannotOpen
from plugins.engines.broker.storage.store_options import StoreOptions
from plugins.protocols.amqp091.content import ContentProperties, envelope_of
from tests.plugins.engines.broker.storage.durable import CODECS, DurableBroker
from tests.plugins.engines.broker.storage.test_format_1 import CLOCK, FOLDERS

ENVELOPES: dict[str, dict[str, Any]] = {
    "a long property": {"properties": {"content_type": "x" * 300}},
    "a long key": {"key": "k" * 70_000},
    "octets": {"properties": {"correlation_id": b"\x00\xff", "data": bytearray(b"\xff")}},
    "ordered pairs": {"properties": {"user_properties": [("a", "1"), ("b", "2"), ("a", "3")]}},
    "names of other protocols": {"properties": {"topic_alias": 3, "receipt": "r-1"}},
    "nested headers": {"properties": {"headers": {"a": {"b": [None, {"c": [True, 1.5, -1, (), []]}]}}}},
    "nothing": {"properties": {"headers": None, "type": None}},
    "large numbers": {"properties": {"headers": {"n": 1 << 64, "m": -(1 << 100)}}, "priority": 1 << 70},
    "negative numbers": {"priority": -3, "expiration": 1 << 65},
    "times": {
        "properties": {
            "headers": {
                "aware": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
                "elsewhere": datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=5, minutes=30))),
                "naive": datetime(1, 1, 1),
                "last": datetime.max,
            }
        }
    },
    "surrogates": {
        "key": "\udcff",
        "reply_to": "\ud800",
        "properties": {"\udc80": "\udfff", "a": ["\ud912"]},
    },
    "names that are no text": {
        "properties": {"headers": {1: "one", None: "none", (1, "a"): "both", b"b": 2}}
    },
    "decimals": {"properties": {"headers": {"d": Decimal("1E-300"), "nan": Decimal("sNaN")}}},
    "a frozen mapping": {"properties": MappingProxyType({"headers": MappingProxyType({"a": 1})})},
}


def as_plain(value: Any) -> Any:
    """Return a value with its types, to be compared: 1, True and 1.0 are equal, and so are bytes and bytearrays."""
    if isinstance(value, Mapping):
        return dict, [(as_plain(name), as_plain(one)) for name, one in value.items()]
    if isinstance(value, list | tuple):
        return type(value), [as_plain(one) for one in value]
    if isinstance(value, datetime):
        return datetime, value.isoformat()
    return type(value), repr(value)


def fields_of(envelope: Envelope) -> dict[str, Any]:
    return {name: as_plain(getattr(envelope, name)) for name in envelope.__struct_fields__}


@pytest.mark.parametrize("what", ENVELOPES)
def test_what_no_protocol_of_ours_can_say_survives_a_restart(what: str) -> None:
    fields: dict[str, Any] = {"key": "q", **ENVELOPES[what]}
    envelope = Envelope(persistent=True, exchange="in", **fields)
    before = DurableBroker()
    before.vhost.declare_exchange("in", "fanout", durable=True)
    before.vhost.bind("in", before.declare())
    assert before.vhost.publish(batch_of([b"body"], envelope), 0.0) == 1
    before.process()
    assert before.store.safe == before.store.mark
    after = before.reopened()
    taken = after.client.receiver.take_one(after.queue(), 0.0, auto_ack=True)
    assert taken is not None
    assert bytes(taken[1].as_batch().bodies[0]) == b"body"
    assert fields_of(taken[1].envelope) == fields_of(envelope)
    assert before.reports == after.reports == []


def test_what_the_store_cannot_write_is_refused_before_any_queue_has_it() -> None:
    broker = DurableBroker()
    queue = broker.declare()
    broker.process()
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    for value in (
        object(),
        {1, 2},
        date(2026, 1, 2),
        {"a": [uuid4()]},
        deep,
        Unreadable(),
        {memoryview(b"a"): 1},
    ):
        envelope = Envelope(key="q", persistent=True, properties={"headers": {"a": value}})
        with pytest.raises(PreconditionFailed, match="cannot be stored"):
            broker.vhost.publish(batch_of([b"body"], envelope), 0.0)
        # A transient one would have to be written when the queue is long.
        with pytest.raises(PreconditionFailed, match="cannot be stored"):
            broker.vhost.publish(batch_of([b"body"], Envelope(key="q", properties={"a": value})), 0.0)
    assert (queue.backlog.count, broker.store.mark) == (0, broker.store.safe)


def test_definitions_with_arguments_that_cannot_be_written_are_refused_and_not_made() -> None:
    broker = DurableBroker()
    vhost = broker.vhost
    vhost.declare_exchange("e", durable=True)
    queue = broker.declare()
    with pytest.raises(PreconditionFailed, match="cannot be stored"):
        vhost.declare_exchange("f", durable=True, arguments={"a": object()})
    with pytest.raises(PreconditionFailed, match="cannot be stored"):
        vhost.declare_queue("r", None, 0.0, durable=True, arguments={"a": object()})
    with pytest.raises(PreconditionFailed, match="cannot be stored"):
        vhost.bind("e", queue, "k", {"a": object()})
    assert ("f" in vhost.exchanges, "r" in vhost.queues, len(queue.incoming)) == (False, False, 0)


def test_arguments_of_any_types_survive() -> None:
    arguments = {name: one.get("properties") for name, one in ENVELOPES.items()}
    before = DurableBroker()
    before.vhost.declare_exchange("\ud800", durable=True, arguments=arguments)
    before.process()
    assert as_plain(before.reopened().vhost.exchanges["\ud800"].arguments) == as_plain(arguments)


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.binary()
    | st.binary().map(bytearray)
    | st.datetimes(timezones=st.none() | st.just(UTC) | st.just(timezone(timedelta(hours=-3))))
    | st.decimals()
    | st.integers(0, 1 << 64).map(Timestamp),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(st.text(st.characters()) | st.integers() | st.binary(), inner, max_size=4)
    ),
    max_leaves=20,
)
TEXTS = st.text(st.characters(), max_size=300)


@pytest.mark.slow
@settings(deadline=None)
@given(
    st.builds(
        Envelope,
        key=TEXTS,
        exchange=TEXTS,
        reply_to=TEXTS,
        persistent=st.booleans(),
        priority=st.integers(),
        expiration=st.none() | st.integers(),
        properties=st.dictionaries(TEXTS, VALUES, max_size=5),
    )
)
def test_any_envelope_comes_back_equal(envelope: Envelope) -> None:
    octets = Envelopes(CODECS).encode(envelope)
    assert fields_of(Envelopes(CODECS).decode(octets)) == fields_of(envelope)


@settings(deadline=None)
@given(
    raw=st.sampled_from(
        [b"\0\0", b"\x10\0\2", ContentProperties.of({"headers": {"a": 1}, "priority": 9}).raw]
    ),
    key=TEXTS,
    priority=st.integers(),
    expiration=st.none() | st.integers(),
)
def test_octets_of_amqp_are_kept_with_whatever_the_envelope_says_besides(
    raw: bytes, key: str, priority: int, expiration: int | None
) -> None:
    envelope = Envelope(key=key, priority=priority, expiration=expiration, properties=ContentProperties(raw))
    found = Envelopes(CODECS).decode(Envelopes(CODECS).encode(envelope))
    assert isinstance(found.properties, ContentProperties)
    assert found.properties.raw == raw
    assert fields_of(found) | {"properties": None} == fields_of(envelope) | {"properties": None}


def test_a_number_of_a_time_beyond_datetime_stays_a_time_in_dead_letters() -> None:
    before = DurableBroker()
    before.declare("q", dead_letter_exchange="", dead_letter_routing_key="dead")
    before.declare("dead")
    raw = ContentProperties.of({"headers": {"t": Timestamp(1 << 50)}, "delivery_mode": 2}).raw
    before.vhost.publish(batch_of([b"body"], envelope_of("", "q", raw)), 0.0)
    taken = before.client.receiver.take_one(before.queue(), 0.0, auto_ack=False)
    assert taken is not None
    before.client.receiver.reject(taken[0], taken[0], multiple=False, requeue=False, now=0.0)
    before.process()
    after = before.reopened()
    dead = after.client.receiver.take_one(after.queue("dead"), 0.0, auto_ack=True)
    assert dead is not None
    assert type(dead[1].envelope.properties["headers"]["t"]) is Timestamp


def test_a_store_without_the_codec_of_its_messages_says_so_and_loses_nothing() -> None:
    before = DurableBroker()
    before.declare()
    raw = ContentProperties.of({"delivery_mode": 2}).raw
    before.vhost.publish(batch_of([b"body"], envelope_of("", "q", raw)), 0.0)
    before.process()
    disk = before.disk.after_kill()
    with pytest.raises(CannotOpen, match=r"\.log: the codec 'amqp091' is missing"):
        DurableBroker(disk, codecs=Codecs())
    assert DurableBroker(disk).take_all() == [b"body"]


def test_a_folder_of_format_1_wants_the_codec_that_reads_it(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(FOLDERS / "closed", tmp_path / "data"))
    octets = {path.name: path.read_bytes() for path in directory.glob("*.log")}
    opened = OpenStore(
        directory,
        StoreOptions(),
        Codecs(),
        now=0.0,
        time_of_day=CLOCK,
        post=lambda _: None,
        on_done=lambda: None,
        report=lambda what, detail: None,
    )
    with pytest.raises(CannotOpen, match="'amqp091' is missing"):
        opened.restore(Broker(store=opened.store), 0.0)
    assert {path.name: path.read_bytes() for path in directory.glob("*.log")} == octets


class Unreadable(Mapping[str, Any]):
    """A mapping that cannot be read."""

    def __getitem__(self, name: str) -> Any:
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        raise RuntimeError("the connection to the database is gone")

    def __len__(self) -> int:
        return 1
