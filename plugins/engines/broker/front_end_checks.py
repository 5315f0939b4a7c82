"""Checks that every front end over a stream socket has to pass, on real sockets in a real kernel.

The test of a front end describes its listener and two conversations (``FrontEndSubject``), and calls each
check::

    @pytest.mark.parametrize("check", FRONT_END_CHECKS, ids=lambda check: check.__name__)
    def test_my_front_end_keeps_the_contract(check, kernel_factory):
        check(
            FrontEndSubject(
                listener={"protocol": "mine"},
                publish=b"...",
                published=b"...",
                take=b"...",
                kernels=kernel_factory,
            )
        )

``kernel_factory`` is a fixture of the kernel's pytest plugin.  The checks know nothing of the protocol.  They
cut and change the bytes of the conversations, and look at the broker as an operator or another client does.
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from kernel import EnginePlan, Kernel, PluginRegistry
from kernel.contracts.message import Envelope

if TYPE_CHECKING:
    from kernel.testing.fixtures import KernelFactory
    from plugins.engines.broker.local.client import BrokerClient

TIMEOUT = 60.0
"""Seconds that any step of a check may take.  Long, because a loaded machine must not fail a test."""


class FrontEndSubject(msgspec.Struct, kw_only=True):
    """The front end to check.  Both conversations begin with the login that the listener asks for, if any."""

    listener: dict[str, Any]
    """The options of the listener, with ``protocol`` and without ``address``."""
    publish: bytes
    """All bytes that a client sends to publish one message with the body ``hello``."""
    publish_again: bytes = b""
    """All bytes that it sends next to publish another one; empty: those of ``publish`` again."""
    published: bytes
    """Bytes that the answer to ``publish`` contains when the message is in the queue."""
    take: bytes
    """All bytes that another client sends to be delivered that message.  It must not acknowledge it."""
    kernels: KernelFactory
    """The fixture ``kernel_factory``."""
    registry: PluginRegistry | None = None
    """The plugins, with that of the front end if it is not installed; None: those that are installed."""
    queue: str = "hello"
    """The queue in which the message waits.  ``publish`` or ``take`` declares it, or ``options``."""
    options: dict[str, Any] = {}
    """More options of the broker, such as ``queues`` and ``bindings`` of a protocol whose
    clients declare none."""
    subprotocol: str = ""
    """The name of the protocol in the handshake of WebSocket; empty: it has none."""

    def open(self, address: str = "tcp://127.0.0.1:0", **options: Any) -> _Broker:
        """Start a broker with the listener."""
        listeners = [{**self.listener, "address": address}]
        everything = {"listeners": listeners, **self.options, **options}
        plan = EnginePlan(name="broker", kind="broker", options=everything)
        kernel = self.kernels(plan, registry=self.registry)
        return _Broker(kernel, int(kernel.address_of("broker").rpartition(":")[2]))


class _Broker(msgspec.Struct):
    """A running broker."""

    kernel: Kernel
    port: int

    @contextmanager
    def client(self) -> Iterator[socket.socket]:
        """Connect a client; close it at the end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT) as connected:
            # So that bytes that are sent one by one arrive one by one.
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connected

    def rows(self, what: str) -> list[dict[str, Any]]:
        """Return the rows of a table as an operator sees them."""
        return list(self.kernel.inspect(what).rows)

    def queue(self, name: str) -> dict[str, Any]:
        """Return the row of a queue; an empty queue if it does not exist."""
        found = [row for row in self.rows("queues") if row["name"] == name]
        return found[0] if found else {"messages_ready": 0, "messages_unacknowledged": 0}

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait until ``done`` returns True; ``what`` says in the error what has not happened."""
        deadline = time.monotonic() + TIMEOUT
        while not done():
            assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT} s"
            # A front end that raises ends the broker's engine.  The error of that says more than a timeout.
            assert self.kernel.engine_states()[0].state == "running", self.kernel.engine_states()[
                0
            ].last_failure
            time.sleep(0.005)

    def wait_empty(self) -> None:
        """Wait until no client is left; check that none has left a consumer."""
        self.wait(lambda: not self.rows("connections"), "no connection is listed after all clients have left")
        assert not self.rows("consumers"), "a client that has left is still listed as a consumer"


def _answer(connected: socket.socket, wanted: bytes) -> bytes:
    """Read until the bytes ``wanted`` have come; return all that was read."""
    found = b""
    while wanted not in found:
        data = connected.recv(65536)
        assert data, f"the broker closed the connection after {found!r}, before it sent {wanted!r}"
        found += data
    return found


def publishes_and_delivers(subject: FrontEndSubject) -> None:
    """A message that one client publishes is delivered to another one."""
    broker = subject.open()
    with broker.client() as first, broker.client() as second:
        first.sendall(subject.publish)
        _answer(first, subject.published)
        second.sendall(subject.take)
        assert b"hello" in _answer(second, b"hello")


def takes_bytes_one_by_one(subject: FrontEndSubject) -> None:
    """A conversation that arrives in pieces of one byte has the same effect."""
    broker = subject.open()
    with broker.client() as client:
        for position in range(len(subject.publish)):
            client.sendall(subject.publish[position : position + 1])
        _answer(client, subject.published)
    assert broker.queue(subject.queue)["messages_ready"] == 1


def shares_queues_with_other_protocols(subject: FrontEndSubject) -> None:
    """An application of this process gets what a client has published."""
    broker = subject.open()
    with broker.client() as client:
        client.sendall(subject.publish)
        _answer(client, subject.published)
    with broker.kernel.open("app", "broker-client", broker="broker") as application:
        delivery = application.get(subject.queue)
        assert delivery is not None
        assert bytes(delivery.body) == b"hello"


def gives_back_what_a_lost_client_held(subject: FrontEndSubject) -> None:
    """A message that was delivered and not acknowledged is ready again when its client is lost."""
    broker = subject.open()
    with broker.client() as first:
        first.sendall(subject.publish)
        _answer(first, subject.published)
        with broker.client() as second:
            second.sendall(subject.take)
            _answer(second, b"hello")
            assert broker.queue(subject.queue)["messages_unacknowledged"] == 1
        broker.wait(
            lambda: broker.queue(subject.queue)["messages_ready"] == 1,
            "the unacknowledged message of a lost client is ready again",
        )


def lets_go_wherever_it_is_cut(subject: FrontEndSubject) -> None:
    """A client that is lost after any number of bytes leaves no connection and no consumer."""
    broker = subject.open()
    for conversation in (subject.publish, subject.take):
        # About twenty cuts, since each needs a connection.
        for length in range(0, len(conversation), max(1, len(conversation) // 20)):
            with broker.client() as client:
                client.sendall(conversation[:length])
    broker.wait_empty()


def survives_any_bytes(subject: FrontEndSubject) -> None:
    """Bytes that make no sense cost their sender at most its connection.  Other clients do not notice."""
    # A fixed seed: a front end that fails does so in each run.
    chance = random.Random(1)
    broker = subject.open()
    samples = [chance.randbytes(200) for _ in range(10)]
    samples += [b"\0" * 1000, b"\xff" * 1000, b"\r\n" * 100, b"A" * 100_000]
    # Random bytes are refused at the login.  Conversations with a few wrong bytes get further.
    for conversation in (subject.publish, subject.take):
        for _ in range(20):
            mutated = bytearray(conversation)
            for _ in range(chance.randint(1, 4)):
                mutated[chance.randrange(len(mutated))] = chance.randrange(256)
            samples.append(bytes(mutated))
    for sample in samples:
        with broker.client() as client:
            try:
                client.sendall(sample)
                # The broker may wait for more of a message.  The end of the stream makes it decide.
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            except OSError:
                # The broker has closed the connection before it had read everything.
                pass
    broker.wait_empty()
    with broker.client() as client:
        client.sendall(subject.publish)
        _answer(client, subject.published)


def is_seen_by_an_operator(subject: FrontEndSubject) -> None:
    """``kernel connections`` lists a client with its user, its virtual host and what it has published."""
    broker = subject.open()
    with broker.client() as client:
        client.sendall(subject.publish)
        _answer(client, subject.published)
        (row,) = broker.rows("connections")
        assert row["name"] == "{}:{}".format(*client.getsockname())
        assert row["messages_in"] == 1
        assert row["recv_oct"] == len(subject.publish)
        assert row["user"]
        assert row["vhost"]


def waits_for_an_alarm(subject: FrontEndSubject) -> None:
    """While an alarm is raised, a client that publishes is blocked."""
    # One byte in a queue raises this alarm.
    broker = subject.open(queued_limit=1)
    with (
        broker.client() as client,
        broker.kernel.open("app", "broker-client", broker="broker") as application,
    ):
        application.declare_queue("full")
        application.publish(b"more than the limit", Envelope(key="full"))
        application.wait_confirmed(TIMEOUT)
        broker.wait(lambda: _alarms_after_a_turn(broker, application) != "", "the alarm is raised")
        client.sendall(subject.publish + (subject.publish_again or subject.publish))
        broker.wait(
            lambda: any(row["state"] == "blocked" for row in broker.rows("connections")),
            "the publisher is blocked",
        )
        application.purge("full")
        # The first message of the client may have been read before it was blocked.
        if broker.queue(subject.queue)["messages_ready"]:
            application.purge(subject.queue)
        broker.wait(lambda: _alarms_after_a_turn(broker, application) == "", "the alarm is lifted")


def publishes_no_faster_than_it_may(subject: FrontEndSubject) -> None:
    """With ``publish_rate``, a client that has published too much is not read for a while."""
    # One message in a hundred seconds: the client waits until the end of the check.
    subject = msgspec.structs.replace(subject, listener={**subject.listener, "publish_rate": 0.01})
    broker = subject.open()
    with broker.client() as client:
        client.sendall(subject.publish + 2 * (subject.publish_again or subject.publish))
        broker.wait(
            lambda: [row["state"] for row in broker.rows("connections")] == ["flow"],
            "the client waits, in state flow",
        )
    broker.kernel.close(linger=0)


def speaks_over_web_socket(subject: FrontEndSubject) -> None:
    """The same bytes have the same effect in WebSocket messages, wherever these are cut.

    Skipped without the extra ``web``.
    """
    # Imported here: those who test over TCP alone need not have installed it.
    import pytest

    pytest.importorskip("wsproto")
    from wsproto import ConnectionType, WSConnection
    from wsproto.events import AcceptConnection, BytesMessage, Request

    broker = subject.open("ws://127.0.0.1:0/broker")
    offered = [subject.subprotocol] if subject.subprotocol else []
    with broker.client() as client:
        conversation = WSConnection(ConnectionType.CLIENT)
        client.sendall(conversation.send(Request(host="broker", target="/broker", subprotocols=offered)))
        answer = b""
        while subject.published not in answer:
            data = client.recv(65536)
            assert data, f"the broker closed the connection after {answer!r}, before {subject.published!r}"
            conversation.receive_data(data)
            for event in conversation.events():
                if isinstance(event, AcceptConnection):
                    assert event.subprotocol == (subject.subprotocol or None)
                    middle = len(subject.publish) // 2
                    for part in (subject.publish[:middle], subject.publish[middle:]):
                        client.sendall(conversation.send(BytesMessage(part)))
                else:
                    assert isinstance(event, BytesMessage), f"{event} instead of {subject.published!r}"
                    answer += event.data
    assert broker.queue(subject.queue)["messages_ready"] == 1


def is_told_when_the_broker_stops(subject: FrontEndSubject) -> None:
    """When the broker stops, it closes the connections of its clients."""
    broker = subject.open()
    with broker.client() as client:
        client.sendall(subject.publish)
        _answer(client, subject.published)
        broker.kernel.close(linger=0)
        while client.recv(65536):
            pass


def _alarms_after_a_turn(broker: _Broker, application: BrokerClient) -> str:
    """Return which alarms are raised, after the broker has had a turn: it checks them at the end of one."""
    # A declaration changes nothing here, since the queue exists, but it is a turn.
    application.declare_queue("full")
    (engine,) = broker.kernel.statistics().engines
    return str(engine.counters["alarms"])


FRONT_END_CHECKS: tuple[Callable[[FrontEndSubject], None], ...] = (
    publishes_and_delivers,
    takes_bytes_one_by_one,
    shares_queues_with_other_protocols,
    gives_back_what_a_lost_client_held,
    lets_go_wherever_it_is_cut,
    survives_any_bytes,
    is_seen_by_an_operator,
    waits_for_an_alarm,
    publishes_no_faster_than_it_may,
    speaks_over_web_socket,
    is_told_when_the_broker_stops,
)
"""All checks; each takes a ``FrontEndSubject``."""
