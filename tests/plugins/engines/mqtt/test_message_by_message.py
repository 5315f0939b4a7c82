"""Clients that work message by message: their short ways do what the ordinary ones do.

The same octets go to two servers.  One of them has no short ways: it reads every chunk packet by packet, and ends a
turn for every read.  Both must write the same octets after each step, and be in the same state at the end.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plugins.engines.broker.host.engine import BrokerEngine
from plugins.engines.broker.unacked import Unacked
from plugins.protocols.mqtt.encoder import encode
from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import Acknowledgement, Packet, Pingreq, Pingresp, Subscribe
from plugins.protocols.mqtt.parser import Parser
from tests.plugins.engines.amqp.still_host import drained
from tests.plugins.engines.mqtt.raw_client import PUBACK, Message, RawClient, publish, subscription
from tests.plugins.engines.mqtt.still_server import StillServer
from tests.seeds import examples

VERSIONS = (4, 5)
"""Of the two clients."""


@contextmanager
def _the_long_way() -> Iterator[None]:
    """Have every step done in the ordinary way while this lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Parser, "read_publish", lambda *_: None)
        patch.setattr(Parser, "read_pubacks", lambda *_: ())
        patch.setattr(BrokerEngine, "has_nothing_for_others", lambda *_: False)
        patch.setattr(Unacked, "take_oldest", lambda *_: None)
        yield


class _World:
    """A server with two clients, which write octets as they are told."""

    def __init__(self, limits: dict[str, Any]) -> None:
        self.server = StillServer(limits, {})
        self.clients = []
        for at, version in enumerate(VERSIONS):
            client = self.server.client(version)
            client.connect(client_id=f"c{at}")
            client.wire.settimeout(0)
            self.clients.append(client)

    def write(self, who: int, octets: bytes) -> list[bytes]:
        """Write the octets in one piece, and return what all clients get for it."""
        try:
            self.clients[who].wire.send(octets)
        except OSError:  # the server has closed the connection, for what came before
            pass
        self.server.process()
        return [drained(client.wire) for client in self.clients]

    def state(self) -> list[Any]:
        """Return what an operator sees, and what each session has on its way."""
        found: list[Any] = [(each.name, each.statistics()) for each in self.server.vhost.queues.values()]
        found += [self.server.engine.inspect(what) for what in ("connections", "consumers")]
        for at in range(len(VERSIONS)):
            session = self.server.session(f"c{at}")
            if session is not None and session.outgoing is not None:
                outgoing = session.outgoing
                tables = (outgoing._qos1, outgoing._qos2, outgoing._released)
                found.append(([dict(table) for table in tables], len(outgoing._waiting)))
                receiver = outgoing.receiver
                found.append((receiver.outstanding, len(receiver.unacked), receiver.unacked.next_tag))
        return found

    def close(self) -> None:
        self.server.close()


_ids = st.integers(1, 5)
_topics = st.sampled_from(("a", "a", "a", "b", "$x"))
_publishes = st.builds(
    lambda topic, size, qos, number, retain: publish(topic, b"x" * size, qos, number, retain=retain),
    _topics,
    st.sampled_from((0, 1, 100, 100, 100, 200)),
    st.sampled_from((0, 1, 1, 1, 2)),
    _ids,
    st.sampled_from((False, False, False, True)),
)
_acknowledgements = st.builds(
    lambda kind, ids: Acknowledgement(kind, ids),
    st.sampled_from((4, 4, 4, 4, 5, 6, 7)).map(PacketType),
    st.lists(_ids, min_size=1, max_size=4),
)
_subscribes = st.builds(
    lambda name, qos, number: Subscribe(number, (subscription(name, qos),)),
    st.sampled_from(("a", "#", "b", "$share/s/a")),
    st.integers(0, 2),
    _ids,
)
_packets = st.one_of(
    _publishes, _publishes, _acknowledgements, _acknowledgements, _subscribes, st.just(Pingreq())
)


@st.composite
def _steps(draw: st.DrawFn) -> list[tuple[int, list[Packet], str]]:
    """What one of two clients writes at once: packets each by itself, together, or in two pieces."""
    how = st.sampled_from(("each", "each", "each", "together", "cut"))
    step = st.tuples(st.integers(0, 1), st.lists(_packets, min_size=1, max_size=4), how)
    return draw(st.lists(step, min_size=1, max_size=14))


def _chunks(steps: list[tuple[int, list[Packet], str]]) -> list[tuple[int, bytes]]:
    chunks: list[tuple[int, bytes]] = []
    for who, packets, how in steps:
        encoded = [encode(packet, VERSIONS[who]) for packet in packets]
        if how == "each":
            chunks += [(who, octets) for octets in encoded]
        else:
            octets = b"".join(encoded)
            cut = len(octets) // 2 if how == "cut" else len(octets)
            chunks += [(who, part) for part in (octets[:cut], octets[cut:]) if part]
    return chunks


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.sampled_from(({}, {"max_inflight": 1}, {"receive_maximum": 2})), _steps())
def test_the_short_ways_lead_to_the_same(
    limits: dict[str, Any], steps: list[tuple[int, list[Packet], str]]
) -> None:
    # Somebody receives with QoS 1, and the topic is known.
    begun: list[tuple[int, list[Packet], str]] = [
        (0, [Subscribe(1, (subscription("a", 1),))], "each"),
        (1, [publish("a", b"x" * 100, 1, 1)], "each"),
        (1, [publish("a", b"x" * 100, 1, 1)], "each"),
        (0, [Acknowledgement(PUBACK, (1,))], "each"),
    ]
    chunks = _chunks(begun + steps)
    short = _World(limits)
    outputs = [short.write(*chunk) for chunk in chunks]
    state = short.state()
    short.close()
    with _the_long_way():
        long = _World(limits)
        assert [long.write(*chunk) for chunk in chunks] == outputs
        assert long.state() == state
        long.close()


def _subscriber(server: StillServer, count: int, **connect: Any) -> tuple[RawClient, list[int]]:
    """Return a subscriber to which so many messages were published, and the identifiers of those it was sent."""
    client = server.connect(5, **connect)
    client.subscribe("t", qos=1)
    publisher = server.connect(5)
    for number in range(1, count + 1):
        publisher.publish("t", b"%d" % number, 1)
    return client, [
        client.expect(Message).id for _ in range(min(count, connect.get("receive_maximum", count)))
    ]


def test_an_acknowledgement_after_which_nothing_is_to_be_done_makes_no_turn(ends: list[float]) -> None:
    server = StillServer({}, {})
    client, ids = _subscriber(server, 3)
    ends.clear()
    client.ack(PUBACK, ids[0])
    client.ack(PUBACK, *ids[1:])
    assert not ends
    (row,) = [row for row in server.engine.inspect("queues") if row["consumers"]]
    assert (row["messages"], row["messages_unacknowledged"]) == (0, 0)
    server.close()


def test_an_acknowledgement_that_makes_room_brings_the_next_message(ends: list[float]) -> None:
    server = StillServer({}, {})
    client, ids = _subscriber(server, 2, receive_maximum=1)
    ends.clear()
    client.ack(PUBACK, *ids)
    assert ends
    client.expect_message("t", b"2", 1)
    server.close()


def test_an_acknowledgement_does_not_hold_up_who_waits_for_the_end_of_a_turn(ends: list[float]) -> None:
    """Another client was read in the same turn, whose end was put off."""
    server = StillServer({}, {})
    client, ids = _subscriber(server, 1)
    other = server.connect(5)
    ends.clear()
    other.wire.sendall(encode(Pingreq(), 5))
    client.wire.sendall(encode(Acknowledgement(PUBACK, ids), 5))
    server.process()
    assert ends
    other.expect(Pingresp)
    server.close()
