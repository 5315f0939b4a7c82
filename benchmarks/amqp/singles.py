"""Single messages: a bare client that does one thing after another, and waits for what comes of each.

A call ends when its answer is whole.  Answers to one kind of call have the same size, so that their octets are
counted and not read: the time is the broker's.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from struct import Struct

from benchmarks.amqp.bare import CHANNEL, READ_BYTES, BareClient
from benchmarks.processes import WARM, time_calls
from kernel.contracts.message import Envelope, batch_of
from plugins.protocols.amqp091.events import Delivered, Event, Got
from plugins.protocols.amqp091.frames import METHOD
from plugins.protocols.amqp091.methods import basic, confirm, queue

BODY = b"x" * 100
_REPLY_TO = "amq.rabbitmq.reply-to"
_END = 0xCE
"""The octet at the end of a frame."""
_ACK_OCTETS = 21
"""A frame with basic.ack: header, class and method, tag, ``multiple`` and the end."""
_REJECT = Struct(">BHIHHQBB")
"""A frame with basic.reject: one message, which is not to be queued again."""

Call = Callable[[], None]


def rpc(address: str, name: str, count: int) -> Call:
    """Ask, with direct reply-to, and answer on another connection."""
    asking, answering = BareClient(address), BareClient(address)
    answering.call(queue.Declare(queue=name, auto_delete=True), queue.DeclareOk)
    answering.consume(name)
    asking.consume(_REPLY_TO)
    question = _encoded(asking, Envelope(key=name, reply_to=_REPLY_TO))
    asking.socket.sendall(question)
    answer = _encoded(answering, Envelope(key=_delivered(answering).reply_to))
    answering.socket.sendall(answer)
    answered = _Answers(asking)
    # The first question was read by the codec; this one says how large it is.
    asking.socket.sendall(question)
    asked = _Answers(answering)
    answering.socket.sendall(answer)
    answered.wait()

    def ask() -> None:
        asking.socket.sendall(question)
        asked.wait()
        answering.socket.sendall(answer)
        answered.wait()

    return ask


def confirmed(address: str, name: str, count: int) -> Call:
    """Publish to a queue that nobody reads, and wait for the confirm."""
    client = BareClient(address)
    client.call(queue.Declare(queue=name, exclusive=True), queue.DeclareOk)
    client.call(confirm.Select(), confirm.SelectOk)
    message = client.encoded([BODY], name)
    answers = _Answers(client, _ACK_OCTETS)

    def publish() -> None:
        client.socket.sendall(message)
        answers.wait()

    return publish


def fetched(address: str, name: str, count: int) -> Call:
    """Get messages of a queue with basic.get."""
    client = BareClient(address)
    _fill(client, name, count, {})
    client.connection.send_method(CHANNEL, basic.Get(queue=name, no_ack=True))
    frame = b"".join(client.connection.data_to_send())
    client.socket.sendall(frame)
    answers = _Answers(client)

    def get() -> None:
        client.socket.sendall(frame)
        answers.wait()

    return get


def dead_lettered(address: str, name: str, count: int) -> Call:
    """Reject the only message that a consumer has, and wait for it in the queue of dead letters."""
    client, mourner = BareClient(address), BareClient(address)
    dead = f"{name}-dead"
    mourner.call(queue.Declare(queue=dead, exclusive=True), queue.DeclareOk)
    mourner.consume(dead)
    _fill(client, name, count, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    client.call(basic.Qos(prefetch_count=1), basic.QosOk)
    client.connection.send_method(CHANNEL, basic.Consume(queue=name, consumer_tag="c"))
    client.socket.sendall(b"".join(client.connection.data_to_send()))
    deliveries = _Answers(client, besides=_CONSUME_OK_OCTETS)
    tag = 1

    client.socket.sendall(_reject(tag))
    letters = _Answers(mourner)
    deliveries.wait()

    def reject() -> None:
        nonlocal tag
        tag += 1
        client.socket.sendall(_reject(tag))
        letters.wait()
        deliveries.wait()

    return reject


_CONSUME_OK_OCTETS = 7 + 4 + 1 + len("c") + 1

KINDS: dict[str, Callable[[str, str, int], Call]] = {
    "rpc": rpc,
    "confirm": confirmed,
    "get": fetched,
    "dead_letter": dead_lettered,
}


def reject_stream(link: Connection, address: str, prefetch: int, count: int) -> None:
    """Reject ``count`` messages, each with a frame of its own; say how many dead letters came a second."""
    client, mourner, name = BareClient(address), BareClient(address), f"stream-{os.getpid()}"
    letters = _Letters(mourner, f"{name}-dead", count)
    _fill(client, name, count, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"})
    client.call(basic.Qos(prefetch_count=prefetch), basic.QosOk)
    client.connection.send_method(CHANNEL, basic.Consume(queue=name, consumer_tag="c"))
    start = time.perf_counter()
    rejected = 0
    while rejected < count:
        for event in client.turn():
            if isinstance(event, Delivered):
                tags = range(rejected + 1, rejected + len(event.batch.bodies) + 1)
                client.socket.sendall(b"".join([_reject(tag) for tag in tags]))
                rejected = tags[-1]
    letters.join()
    link.send(count / (time.perf_counter() - start))
    link.recv()


class _Letters(threading.Thread):
    """Reads dead letters until all have come."""

    def __init__(self, client: BareClient, queue_name: str, count: int) -> None:
        super().__init__(daemon=True)
        self._client, self._left = client, count
        client.call(queue.Declare(queue=queue_name, exclusive=True), queue.DeclareOk)
        client.consume(queue_name)
        self.start()

    def run(self) -> None:
        while self._left > 0:
            self._left -= sum(len(e.batch.bodies) for e in self._client.turn() if isinstance(e, Delivered))


def one_by_one(link: Connection, address: str, kind: str, count: int) -> None:
    """Say how many nanoseconds each call took."""
    link.send(time_calls(KINDS[kind](address, f"{kind}-{os.getpid()}", count + WARM + 2), count))
    link.recv()


class _Answers:
    """What comes on a connection: always as many octets as the first time."""

    def __init__(self, client: BareClient, octets: int = 0, besides: int = 0) -> None:
        """Wait for the first, if its size is not known; so many octets before it are something else."""
        self._client = client
        self._octets = octets - besides
        read = bool(octets)
        while not read:
            data = client.socket.recv(READ_BYTES)
            self._octets += len(data)
            # A broker may write one message in several pieces.
            read = any(map(_brings, client.connection.receive_data(data, time.monotonic())))

    def wait(self) -> None:
        """Wait for the next."""
        left = self._octets
        while left:
            left -= self._client.count()


def _reject(tag: int) -> bytes:
    return _REJECT.pack(METHOD, CHANNEL, 13, 60, 90, tag, 0, _END)


def _encoded(client: BareClient, envelope: Envelope) -> bytes:
    client.connection.publish(CHANNEL, batch_of([BODY], envelope))
    return b"".join(client.connection.data_to_send())


def _brings(event: Event) -> bool:
    return isinstance(event, Delivered | Got)


def _delivered(client: BareClient) -> Envelope:
    while True:
        for event in client.turn():
            if isinstance(event, Delivered):
                return event.batch.envelope


def _fill(client: BareClient, name: str, count: int, arguments: dict[str, object]) -> None:
    declare = queue.Declare(queue=name, exclusive=True, arguments=arguments)
    client.call(declare, queue.DeclareOk)
    client.socket.sendall(client.encoded([BODY] * count, name))
    # An answer to this comes after all of them are in the queue.
    while client.call(queue.Declare(queue=name, passive=True), queue.DeclareOk).message_count < count:
        pass
