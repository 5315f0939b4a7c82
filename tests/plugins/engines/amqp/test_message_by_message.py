"""Consumers that work message by message: their short ways do what the ordinary ones do.

The same octets go to two servers.  One of them has no short ways: it reads every chunk frame by frame, looks for
every tag, and encodes every delivery as a batch.  Both must write the same octets after each step, and be in the
same state at the end.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel.contracts.message import Envelope, batch_of
from plugins.engines.broker.host.engine import BrokerEngine
from plugins.engines.broker.queue import Queue
from plugins.engines.broker.unacked import Unacked
from plugins.protocols.amqp091.connection import ServerConnection
from plugins.protocols.amqp091.events import Published
from plugins.protocols.amqp091.frames import method_frame
from plugins.protocols.amqp091.message_encoder import MessageEncoder
from plugins.protocols.amqp091.methods import basic, queue, tx
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ServerOptions
from tests.plugins.engines.amqp.still_host import StillServer, drained

CHANNELS = (1, 2)
QUEUE_ARGUMENTS: tuple[dict[str, Any], ...] = (
    {},
    {"x-max-priority": 3},
    {"x-max-length": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    {"x-single-active-consumer": True},
    {"x-queue-type": "quorum", "x-delivery-limit": 1},
)


@contextmanager
def _the_long_way() -> Iterator[None]:
    """Have every step done in the ordinary way while this lasts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerConnection, "receive_alone", lambda *_: None)
        patch.setattr(ServerConnection, "send_delivery", lambda *_: False)
        patch.setattr(Unacked, "take_oldest", lambda *_: None)
        patch.setattr(Queue, "_hand_over", lambda *_: False)
        patch.setattr(BrokerEngine, "has_nothing_for_others", lambda *_: False)
        yield


class _World:
    """A server with two clients, which write octets as they are told."""

    def __init__(self, arguments: dict[str, Any]) -> None:
        self.server = StillServer()
        self.clients = [self.server.connect() for _ in range(2)]
        for client in self.clients:
            client.open_channel(2)
            client.read()
        durable = "x-queue-type" in arguments
        self.write(0, _method(1, queue.Declare(queue="q", durable=durable, arguments=arguments)))
        self.write(0, _method(1, queue.Declare(queue="dead")))

    def write(self, who: int, octets: bytes) -> list[bytes]:
        """Write the octets in one piece, and return what all clients get for it."""
        try:
            self.clients[who].wire.send(octets)
        except OSError:  # the server has closed the connection, for what came before
            pass
        self.server.host.process()
        return [drained(client.wire) for client in self.clients]

    def state(self) -> list[Any]:
        """Return what an operator sees, and what each channel has not acknowledged."""
        vhost = self.server.engine.broker.vhost("/")
        found: list[Any] = [vhost.messages_in, vhost.messages_unrouted]
        found += [
            (each.name, each.statistics(), [consumer.tag for consumer in each.all_consumers()])
            for each in vhost.queues.values()
        ]
        for client in self.clients:
            found += [client.hosted.inspect(what) for what in ("connections", "channels", "consumers")]
            for channel in client.hosted.session.channels.values():
                receiver = channel.receiver
                tags = [(each.first_tag, len(each), each.span.first) for each in receiver.unacked]
                found.append((tags, len(receiver.unacked), receiver.unacked.next_tag, receiver.outstanding))
                found.append([(each.tag, each.outstanding) for each in receiver.consumers.values()])
        return found

    def close(self) -> None:
        self.server.close()


def _method(channel: int, method: Method) -> bytes:
    return method_frame(channel, method.encode())


def _published(channel: int, sizes: list[int], priority: int, key: str) -> bytes:
    out: list[Any] = []
    envelope = Envelope(key=key, priority=priority)
    encoder = MessageEncoder(out, 131072)
    encoder.publish(channel, batch_of([b"x" * size for size in sizes], envelope), mandatory=False)
    return b"".join(out)


def _acknowledgement(channel: int, tag: int, *, multiple: bool) -> bytes:
    return _method(channel, basic.Ack(delivery_tag=tag, multiple=multiple))


_channel = st.sampled_from(CHANNELS)
_consumes = st.builds(
    lambda channel, prefetch, tag, no_ack: (
        _method(channel, basic.Qos(prefetch_count=prefetch))
        + _method(channel, basic.Consume(queue="q", consumer_tag=tag, no_ack=no_ack))
    ),
    _channel,
    st.sampled_from((0, 1, 1, 1, 2)),
    st.sampled_from("abc"),
    st.sampled_from((False, False, False, True)),
)
_publishes = st.builds(
    _published,
    _channel,
    st.lists(st.sampled_from((0, 1, 100, 5000)), min_size=1, max_size=4),
    st.integers(0, 4),
    st.sampled_from(("q", "q", "q", "dead")),
)
_tag = st.sampled_from((1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 0, 1 << 40))
_acknowledges = st.builds(
    lambda channel, tag, multiple: _acknowledgement(channel, tag, multiple=multiple),
    _channel,
    _tag,
    st.sampled_from((False, False, False, True)),
)
_nacks = st.builds(
    lambda channel, kind, tag, requeue: _method(channel, kind(delivery_tag=tag, requeue=requeue)),
    _channel,
    st.sampled_from((basic.Nack, basic.Reject)),
    _tag,
    st.booleans(),
)
_others = st.builds(
    lambda channel, method: _method(channel, method),
    _channel,
    st.sampled_from(
        (
            basic.Get(queue="q"),
            basic.Recover(requeue=True),
            basic.Qos(prefetch_count=1, global_=True),
            basic.Cancel(consumer_tag="a"),
            tx.Select(),
            tx.Commit(),
            tx.Rollback(),
        )
    ),
)
_begins = st.builds(
    # A publish that stops behind its method: what comes next on this channel is no method.
    lambda channel: _method(channel, basic.Publish(routing_key="q")),
    _channel,
)


def _answer(tag: int, accepted: bool) -> bytes:
    if accepted:
        return _acknowledgement(1, tag, multiple=False)
    return _method(1, basic.Nack(delivery_tag=tag, requeue=True))


_answers_in_order = st.lists(st.sampled_from((True, True, False)), min_size=1, max_size=6).map(
    lambda answers: [_answer(tag, accepted) for tag, accepted in enumerate(answers, 1)]
)


@st.composite
def _chunks(draw: st.DrawFn) -> list[tuple[int, bytes]]:
    """Octets that one of two clients writes at once: whole frames, several together, or frames in two pieces."""
    chunks: list[tuple[int, bytes]] = []
    for _ in range(draw(st.integers(1, 14))):
        who = draw(st.integers(0, 1))
        frames = draw(
            st.one_of(
                _answers_in_order,
                st.lists(_publishes, min_size=2, max_size=3),
                st.one_of(_publishes, _publishes, _consumes, _acknowledges, _nacks, _others, _begins).map(
                    lambda frame: [frame]
                ),
            )
        )
        how = draw(st.sampled_from(("each", "each", "each", "together", "cut")))
        if how == "each":
            chunks += [(who, frame) for frame in frames]
            continue
        octets = b"".join(frames)
        cut = draw(st.integers(1, len(octets) - 1)) if how == "cut" else len(octets)
        chunks += [(who, part) for part in (octets[:cut], octets[cut:]) if part]
    return chunks


@settings(deadline=None)
@given(st.sampled_from(QUEUE_ARGUMENTS), _chunks())
def test_the_short_ways_lead_to_the_same(arguments: dict[str, Any], chunks: list[tuple[int, bytes]]) -> None:
    # Something to acknowledge, in any case: a consumer that gets message by message.
    chunks = [
        (0, _method(1, basic.Qos(prefetch_count=1))),
        (0, _method(1, basic.Consume(queue="q", consumer_tag="first"))),
        (1, _published(1, [10, 10, 20, 0, 5000, 10], 0, "q")),
        *chunks,
    ]
    short = _World(arguments)
    outputs = [short.write(*chunk) for chunk in chunks]
    state = short.state()
    short.close()
    with _the_long_way():
        long = _World(arguments)
        assert [long.write(*chunk) for chunk in chunks] == outputs
        assert long.state() == state
        long.close()


def test_a_turn_with_one_message_makes_few_calls() -> None:
    """Each acknowledgement brings the next message: 48 calls of Python, 82 before there were short ways."""
    world = _World({})
    world.write(0, _method(1, basic.Qos(prefetch_count=1)))
    world.write(0, _method(1, basic.Consume(queue="q", consumer_tag="first")))
    world.write(1, _published(1, [100] * 50, 0, "q"))
    calls: Counter[str] = Counter()
    client = world.clients[0]

    def count(frame: FrameType, event: str, _: Any) -> None:
        if event == "call":
            calls[frame.f_code.co_name] += 1

    # The first deliveries fill caches.
    for tag in range(1, 11):
        world.write(0, _acknowledgement(1, tag, multiple=False))
    for tag in range(11, 21):
        client.wire.send(_acknowledgement(1, tag, multiple=False))
        sys.setprofile(count)
        try:
            world.server.host.turn()
        finally:
            sys.setprofile(None)
        assert drained(client.wire)
    world.close()
    assert calls.total() / 10 < 65, calls


@pytest.mark.parametrize(
    "method",
    [
        basic.Ack(delivery_tag=7),
        basic.Reject(delivery_tag=7, requeue=True),
        basic.Reject(delivery_tag=7, requeue=False),
        basic.Nack(delivery_tag=7, requeue=True),
        basic.Nack(delivery_tag=7, requeue=False),
    ],
)
def test_what_settles_a_message_alone_is_the_event_that_it_is_in_company(method: Method) -> None:
    server = StillServer()
    client = server.connect()
    conversation = client.hosted._conversation
    frame = _method(1, method)
    alone = conversation.receive_alone(frame, 0.0)
    assert alone is not None
    assert [alone] == conversation.receive_data(frame, 0.0)
    server.close()


@pytest.mark.parametrize(
    "chunk",
    [
        _acknowledgement(1, 7, multiple=True),
        _acknowledgement(1, 0, multiple=False),
        _method(1, basic.Nack(delivery_tag=7, multiple=True)),
        _method(1, basic.Reject(delivery_tag=0)),
        _method(1, basic.RecoverAsync(requeue=True)),
        _acknowledgement(2, 7, multiple=False),  # a channel that is not open
        _acknowledgement(1, 7, multiple=False)[:-1] + b"\x00",  # no frame end
        _acknowledgement(1, 7, multiple=False)[:-1],
        _acknowledgement(1, 7, multiple=False) * 2,
        b"",
    ],
)
def test_what_is_no_lone_acknowledgement_is_left_unread(chunk: bytes) -> None:
    server = StillServer()
    conversation = server.connect().hosted._conversation
    assert conversation.receive_alone(chunk, 0.0) is None
    server.close()


_MESSAGE = _published(1, [100], 0, "q")
_BODY_AT = len(_MESSAGE) - 101


def test_a_lone_message_is_the_event_that_it_is_in_company() -> None:
    server = StillServer()
    conversation = server.connect().hosted._conversation
    assert conversation.receive_alone(_MESSAGE, 0.0) is None, "its flow is not known yet"
    (first,) = conversation.receive_data(_MESSAGE, 0.0)
    for size in (100, 1, 5000):
        message = _published(1, [size], 0, "q")
        alone = conversation.receive_alone(message, 0.0)
        assert isinstance(alone, Published)
        assert [alone] == conversation.receive_data(message, 0.0)
        assert alone.batch.envelope is first.batch.envelope
    server.close()


@pytest.mark.parametrize(
    "chunk",
    [
        _MESSAGE[:-1],
        _MESSAGE[:30],
        _MESSAGE[:22],
        _MESSAGE * 2,
        _MESSAGE + _MESSAGE[:20],
        _MESSAGE[:-1] + b"\x00",  # no frame end
        _MESSAGE[: _BODY_AT - 1] + b"\x63" + _MESSAGE[_BODY_AT:],  # the frame is shorter than the body
        _published(1, [0], 0, "q"),
        _published(1, [100], 0, "another"),
        _published(1, [100], 3, "q"),  # more properties
        _MESSAGE.replace(b"\x02\x00\x01", b"\x02\x00\x02", 1),  # the header is on another channel
        _published(2, [100], 0, "q"),  # a channel that is not open
        _published(1, [200_000], 0, "q"),  # two body frames
    ],
)
def test_what_is_no_lone_message_of_the_flow_is_left_unread(chunk: bytes) -> None:
    server = StillServer()
    conversation = server.connect().hosted._conversation
    conversation.receive_data(_MESSAGE, 0.0)
    assert conversation.receive_alone(chunk, 0.0) is None
    server.close()


def test_other_properties_of_the_same_size_are_left_unread() -> None:
    server = StillServer()
    conversation = server.connect().hosted._conversation
    conversation.receive_data(_published(1, [100], 3, "q"), 0.0)
    assert conversation.receive_alone(_published(1, [100], 4, "q"), 0.0) is None
    assert conversation.receive_alone(_published(1, [100], 3, "q"), 0.0) is not None
    server.close()


@pytest.mark.parametrize("chunk", [_MESSAGE, _acknowledgement(1, 1, multiple=False)])
@pytest.mark.parametrize(
    "close", [lambda it: it.close_channel(1, 404, "gone", 0, 0), lambda it: it.close(320, "")]
)
def test_after_our_close_nothing_comes_any_more(
    chunk: bytes, close: Callable[[ServerConnection], None]
) -> None:
    server = StillServer()
    conversation = server.connect().hosted._conversation
    conversation.receive_data(_MESSAGE, 0.0)
    close(conversation)
    assert conversation.receive_alone(chunk, 0.0) is None
    server.close()


@pytest.mark.parametrize("chunk", [_MESSAGE, _acknowledgement(1, 1, multiple=False)])
def test_a_lone_chunk_is_a_sign_of_life(chunk: bytes) -> None:
    server = StillServer()
    conversation = server.connect().hosted._conversation
    conversation.receive_data(_MESSAGE, 1.0)
    assert conversation.receive_alone(chunk, 7.0) is not None
    assert conversation._heartbeats.last_received == 7.0
    server.close()


def test_what_comes_behind_a_method_that_was_begun_is_no_lone_message() -> None:
    """A message that interrupts another one on its channel is an error, which is found frame by frame."""
    server = StillServer()
    conversation = server.connect().hosted._conversation
    conversation.receive_data(_MESSAGE, 0.0)
    conversation.receive_data(_method(1, basic.Publish(routing_key="q")), 0.0)
    assert conversation.receive_alone(_MESSAGE, 0.0) is None
    server.close()


def test_a_message_that_is_too_large_is_no_lone_message() -> None:
    server = StillServer()
    conversation = server.connect().hosted._conversation
    conversation.receive_data(_MESSAGE, 0.0)
    conversation._published.maximum_body_size = 150
    assert conversation.receive_alone(_published(1, [150], 0, "q"), 0.0) is not None
    assert conversation.receive_alone(_published(1, [151], 0, "q"), 0.0) is None
    server.close()


@pytest.mark.parametrize("begun", [10, 22, 60])
def test_octets_in_the_middle_of_a_message_are_no_acknowledgement(begun: int) -> None:
    """Behind ``begun`` octets of a message, in its method, its header or its body, others may look like one."""
    server = StillServer()
    conversation = server.connect().hosted._conversation
    conversation.receive_data(_published(1, [100], 0, "q")[:begun], 0.0)
    assert conversation.receive_alone(_acknowledgement(1, 7, multiple=False), 0.0) is None
    server.close()


def test_before_open_ok_there_is_no_acknowledgement() -> None:
    conversation = ServerConnection(ServerOptions(), 0.0)
    assert conversation.receive_alone(_acknowledgement(1, 1, multiple=False), 0.0) is None
