"""Publishing ids: what a publisher has numbered reaches the queues once, whatever was lost in between."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest

from kernel.contracts.message import Batch
from plugins.engines.broker import publishing_ids
from plugins.engines.broker.errors import PreconditionFailed
from plugins.engines.broker.host.transaction import Transaction
from plugins.engines.broker.publishing_ids import REPEATED
from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import make_vhost, ready, run
from tests.plugins.engines.broker.storage.durable import DurableBroker
from tests.plugins.engines.broker.storage.test_stored_sets import churn
from tests.seeds import in_groups, many


def numbered(number: Any, *bodies: bytes, publisher: Any = "p", **fields: Any) -> Batch:
    """Return messages that all have this number; one with the number as its body if none is given."""
    headers = {"x-publisher": publisher, "x-publishing-id": number, "mine": 1, **fields.pop("headers", {})}
    return run(*(bodies or (b"%d" % int(number),)), headers=headers, **fields)


@pytest.fixture
def vhost() -> VirtualHost:
    vhost = make_vhost()
    vhost.declare_queue("q", None, 0.0)
    return vhost


def test_a_number_is_taken_once_for_each_publisher(vhost: VirtualHost) -> None:
    queue = vhost.queues["q"]
    # Gaps are allowed, a lower number is a repeated one, and a protocol of texts has numbers in digits.
    for batch, taken in (
        (numbered(0), 1),
        (numbered(0), REPEATED),
        (numbered(7), 1),
        (numbered(3), REPEATED),
        (numbered(3, publisher="another"), 1),
        (numbered("8"), 1),
        (numbered(8), REPEATED),
        (numbered(9, b"9", b"again"), 2),
    ):
        assert vhost.publish(batch, 0.0) == taken
    assert ready(queue) == [b"0", b"7", b"3", b"8", b"9"]
    assert vhost.statistics()["messages_repeated"] == 4
    assert vhost.statistics()["messages_in"] == 5


def test_consumers_do_not_see_the_number_and_may_pass_the_message_on(vhost: VirtualHost) -> None:
    vhost.publish(numbered(1, headers={"BCC": ["nobody"]}), 0.0)
    span = vhost.queues["q"].take(0.0)
    assert span is not None
    assert span.envelope.properties["headers"] == {"mine": 1}
    vhost.publish(span.as_batch(), 0.0)
    assert ready(vhost.queues["q"]) == [b"1"]


def test_a_name_without_a_number_is_a_header_like_any_other(vhost: VirtualHost) -> None:
    for _ in range(2):
        vhost.publish(run(b"1", headers={"x-publisher": "p"}), 0.0)
    span = vhost.queues["q"].take(0.0)
    assert span is not None
    assert span.envelope.properties["headers"] == {"x-publisher": "p"}
    assert ready(vhost.queues["q"]) == [b"1"]


@pytest.mark.parametrize(
    "headers, words",
    [
        ({"x-publishing-id": 1}, "needs there the name"),
        ({"x-publishing-id": 1, "x-publisher": ""}, "needs there the name"),
        ({"x-publishing-id": 1, "x-publisher": "é" * 128}, "1 to 255 octets"),
        ({"x-publishing-id": 1, "x-publisher": 5}, "needs there the name"),
        ({"x-publishing-id": -1, "x-publisher": "p"}, "whole number"),
        ({"x-publishing-id": 1 << 62, "x-publisher": "p"}, "whole number"),
        ({"x-publishing-id": True, "x-publisher": "p"}, "whole number"),
        ({"x-publishing-id": 1.0, "x-publisher": "p"}, "whole number"),
        ({"x-publishing-id": "²", "x-publisher": "p"}, "whole number"),
        ({"x-publishing-id": "9" * 30, "x-publisher": "p"}, "whole number"),
        ({"x-publishing-id": None, "x-publisher": "p"}, "whole number"),
    ],
)
def test_what_is_no_publishing_id_is_refused(vhost: VirtualHost, headers: dict[str, Any], words: str) -> None:
    with pytest.raises(PreconditionFailed, match=words):
        vhost.publish(run(b"1", headers=headers), 0.0)
    assert ready(vhost.queues["q"]) == []


def test_what_no_queue_has_taken_may_come_again(vhost: VirtualHost) -> None:
    assert vhost.publish(numbered(1, key="later"), 0.0) is None
    vhost.declare_queue("later", None, 0.0)
    assert vhost.publish(numbered(1, key="later"), 0.0) == 1
    full = vhost.declare_queue(
        "full", None, 0.0, arguments={"x-max-length": 1, "x-overflow": "reject-publish"}
    )
    assert vhost.publish(numbered(2, key="full"), 0.0) == 1
    assert vhost.publish(numbered(3, key="full"), 0.0) == 0
    assert full.take(0.0) is not None
    assert vhost.publish(numbered(3, key="full"), 0.0) == 1


def test_a_transaction_publishes_a_number_once(vhost: VirtualHost) -> None:
    class Channel:
        def __init__(self) -> None:
            self.vhost = vhost

        def publish(self, batch: Batch, now: float, *, mandatory: bool, route: Any = None) -> None:
            vhost.publish(batch, now, route)

    transaction = Transaction(routes_at_once=True)
    for number in (1, 2, 1, 2):
        transaction.publish(Channel(), numbered(number), mandatory=False)
    transaction.commit(Channel(), 0.0)
    assert ready(vhost.queues["q"]) == [b"1", b"2"]


def test_the_names_that_were_used_last_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing_ids, "MOST_PUBLISHERS", 3)
    before = DurableBroker()
    before.declare()
    for publisher, number in (("a", 1), ("b", 1), ("c", 1), ("a", 2), ("d", 1)):
        before.vhost.publish(numbered(number, publisher=publisher, persistent=True), 0.0)
        before.process()
    assert sorted(before.vhost.stored_sets) == ["publisher.a", "publisher.c", "publisher.d"]
    after = before.reopened()
    repeats = {name: after.vhost.publish(numbered(1, publisher=name), 0.0) for name in "acd"}
    assert repeats == dict.fromkeys("acd", REPEATED)
    assert after.vhost.publish(numbered(1, publisher="b"), 0.0) == 1
    for _ in after.vhost.removal(lambda: 0.0):
        pass
    assert not after.vhost.stored_sets


def test_no_message_stays_on_the_disk_for_its_number() -> None:
    broker = DurableBroker(segment_bytes=4096)
    broker.declare()
    for number in range(10):
        broker.vhost.publish(numbered(number, b"x" * 1000, persistent=True), 0.0)
        broker.process()
    assert len(broker.take_all()) == 10
    broker.process()
    assert broker.vhost.stored_sets["publisher.p"].numbers() == []
    # Also when the segments with all its records are gone, and after a second start.
    churn(broker, 400)
    assert broker.disk.used() < 4 * 4096
    again = broker.reopened(segment_bytes=4096).reopened(segment_bytes=4096)
    assert again.vhost.publish(numbered(9, persistent=True), 0.0) == REPEATED
    assert again.vhost.publish(numbered(10, persistent=True), 0.0) == 1


def test_a_number_without_a_message_on_the_disk_is_gone_with_it() -> None:
    before = DurableBroker()
    before.declare()
    before.vhost.publish(numbered(1, persistent=True), 0.0)
    before.vhost.publish(numbered(2), 0.0)
    before.process()
    after = before.reopened()
    assert after.take_all() == [b"1"]
    assert after.vhost.publish(numbered(1), 0.0) == REPEATED
    assert after.vhost.publish(numbered(2), 0.0) == 1


@pytest.mark.parametrize("seeds", in_groups(many(0, 16), 8))
def test_whatever_a_crash_leaves_a_publisher_that_goes_on_loses_and_doubles_nothing(seeds: range) -> None:
    for seed in seeds:
        publish_through_crashes(Random(seed), total=40)


def publish_through_crashes(random: Random, total: int) -> None:
    broker = DurableBroker(at_once=False, segment_bytes=2048)
    broker.declare()
    broker.declare("copy")
    broker.vhost.bind("amq.fanout", broker.queue("q"))
    broker.vhost.bind("amq.fanout", broker.queue("copy"))
    broker.drain()
    confirmed = dict.fromkeys("ab", -1)
    waiting: list[tuple[int, str, int]] = []
    following = dict.fromkeys("ab", 0)
    while min(confirmed.values()) < total - 1:
        step = random.random()
        name = random.choice("ab")
        if step < 0.7 and following[name] < total:
            number = following[name]
            body = f"{name}{number}".encode() + b"." * random.choice((0, 200))
            batch = numbered(number, body, publisher=name, key="", exchange="amq.fanout", persistent=True)
            broker.vhost.publish(batch, 0.0)
            waiting.append((broker.store.mark, name, number))
            following[name] += 1
        elif step < 0.9:
            random.choice((broker.process, broker.writer.step))()
            for mark, publisher, number in waiting:
                if mark <= broker.store.safe:
                    confirmed[publisher] = max(confirmed[publisher], number)
            waiting = [each for each in waiting if each[0] > broker.store.safe]
        else:
            # Killed in the middle of a write, at any octet, if it is one that deletes no segment behind it.
            sizes = {name: len(octets) for name, octets in broker.disk.contents.items()}
            broker.process()
            if broker.writer.work:
                broker.writer.work.pop(0)()
            if sizes.keys() <= broker.disk.contents.keys():
                for name, octets in broker.disk.contents.items():
                    del octets[random.randint(sizes.get(name, 0), len(octets)) :]
            broker = broker.reopened(at_once=False, segment_bytes=2048)
            waiting = []
            # A publisher does not know more than its confirmations.
            following = {publisher: number + 1 for publisher, number in confirmed.items()}
    broker = broker.reopened()
    for queue in ("q", "copy"):
        found = Counter(body.rstrip(b".") for body in broker.take_all(queue))
        assert found == Counter(f"{name}{number}".encode() for name in "ab" for number in range(total))
