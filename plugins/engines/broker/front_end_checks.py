"""Checks that every front end over a stream socket has to pass, on real sockets in a real kernel.

A front end's test hands over how to plan a listener and how a client of it speaks (``FrontEndSubject``)::

    @pytest.mark.parametrize("check", FRONT_END_CHECKS, ids=lambda check: check.__name__)
    def test_my_front_end_keeps_the_contract(check, kernel_factory):
        check(FrontEndSubject(listener={"protocol": "mine"}, publish=..., take=..., kernels=kernel_factory))
"""

from __future__ import annotations

import random
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from kernel import EnginePlan, Kernel
from kernel.contracts.message import Envelope

if TYPE_CHECKING:
    from kernel.plugins import PluginRegistry
    from kernel.testing.fixtures import KernelFactory
    from plugins.engines.broker.local.client import BrokerClient

TIMEOUT = 60.0
"""Seconds that anything may take."""


class FrontEndSubject(msgspec.Struct, kw_only=True):
    """What is checked.  The two conversations begin with whatever login the listener wants."""

    listener: dict[str, Any]
    """The options of the listener, with ``protocol`` and without ``address``."""
    publish: bytes
    """What a client sends from the first byte on to publish one message, with the body ``hello``."""
    published: bytes
    """What the broker's answer to that contains."""
    take: bytes
    """What another client sends from the first byte on to be delivered that message, without acknowledging
    it."""
    kernels: KernelFactory
    registry: PluginRegistry | None = None
    """What is installed, and the front end also when it is not; None: what is installed."""
    queue: str = "hello"
    """The queue that the message waits in."""

    def open(self, **options: Any) -> _Broker:
        """Start a broker with the listener."""
        listeners = [{**self.listener, "address": "tcp://127.0.0.1:0"}]
        plan = EnginePlan(name="broker", kind="broker", options={"listeners": listeners, **options})
        kernel = self.kernels(plan, registry=self.registry)
        return _Broker(kernel, int(kernel.address_of("broker").rpartition(":")[2]))


class _Broker(msgspec.Struct):
    """A running broker."""

    kernel: Kernel
    port: int

    @contextmanager
    def client(self) -> Iterator[socket.socket]:
        """A connection, closed at the end."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=TIMEOUT) as connected:
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield connected

    def rows(self, what: str) -> list[dict[str, Any]]:
        """What an operator sees."""
        return list(self.kernel.inspect(what).rows)

    def queue(self, name: str) -> dict[str, Any]:
        """A queue as an operator sees it; nothing in it if it is not there."""
        found = [row for row in self.rows("queues") if row["name"] == name]
        return found[0] if found else {"messages_ready": 0, "messages_unacknowledged": 0}

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Wait until it is so."""
        deadline = time.monotonic() + TIMEOUT
        while not done():
            assert time.monotonic() < deadline, f"{what}: not within {TIMEOUT} s"
            assert self.kernel.engine_states()[0].state == "running", self.kernel.engine_states()[
                0
            ].last_failure
            time.sleep(0.005)

    def wait_empty(self) -> None:
        """Wait until no client is left, and nothing of any."""
        self.wait(lambda: not self.rows("connections"), "a client that has gone is still there")
        assert not self.rows("consumers"), "a client that has gone left consumers"


def _answer(connected: socket.socket, wanted: bytes) -> bytes:
    """Read until something that is wanted has come."""
    found = b""
    while wanted not in found:
        data = connected.recv(65536)
        assert data, f"hung up instead of {wanted!r}, after {found!r}"
        found += data
    return found


def publishes_and_delivers(subject: FrontEndSubject) -> None:
    """What one client publishes another is delivered."""
    broker = subject.open()
    with broker.client() as first, broker.client() as second:
        first.sendall(subject.publish)
        _answer(first, subject.published)
        second.sendall(subject.take)
        assert b"hello" in _answer(second, b"hello")


def takes_bytes_one_by_one(subject: FrontEndSubject) -> None:
    """However the bytes are cut, they mean the same."""
    broker = subject.open()
    with broker.client() as client:
        for position in range(len(subject.publish)):
            client.sendall(subject.publish[position : position + 1])
        _answer(client, subject.published)
    assert broker.queue(subject.queue)["messages_ready"] == 1


def shares_queues_with_other_protocols(subject: FrontEndSubject) -> None:
    """What it publishes, an application of this process is delivered, under a plain envelope."""
    broker = subject.open()
    with broker.client() as client:
        client.sendall(subject.publish)
        _answer(client, subject.published)
    with broker.kernel.open("app", "broker-client", broker="broker") as application:
        delivery = application.get(subject.queue)
        assert delivery is not None
        assert bytes(delivery.body) == b"hello"


def gives_back_what_a_lost_client_held(subject: FrontEndSubject) -> None:
    """A message that a client was delivered and did not acknowledge is there for the next one."""
    broker = subject.open()
    with broker.client() as first:
        first.sendall(subject.publish)
        _answer(first, subject.published)
        with broker.client() as second:
            second.sendall(subject.take)
            _answer(second, b"hello")
            assert broker.queue(subject.queue)["messages_unacknowledged"] == 1
        broker.wait(lambda: broker.queue(subject.queue)["messages_ready"] == 1, "what it held came not back")


def lets_go_wherever_it_is_cut(subject: FrontEndSubject) -> None:
    """A client that is lost after any number of bytes leaves nothing."""
    broker = subject.open()
    for conversation in (subject.publish, subject.take):
        for length in range(0, len(conversation), max(1, len(conversation) // 20)):
            with broker.client() as client:
                client.sendall(conversation[:length])
    broker.wait_empty()


def survives_any_bytes(subject: FrontEndSubject) -> None:
    """Nonsense costs its sender the connection at the most, and nobody else anything."""
    chance = random.Random(1)
    broker = subject.open()
    samples = [chance.randbytes(200) for _ in range(10)]
    samples += [b"\0" * 1000, b"\xff" * 1000, b"\r\n" * 100, b"A" * 100_000]
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
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass
            except OSError:  # it has hung up already
                pass
    broker.wait_empty()
    with broker.client() as client:
        client.sendall(subject.publish)
        _answer(client, subject.published)


def is_seen_by_an_operator(subject: FrontEndSubject) -> None:
    """A client is among the connections, with what it has published."""
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
    """While an alarm is raised, a publisher is not read."""
    broker = subject.open(queued_limit=1)
    with (
        broker.client() as client,
        broker.kernel.open("app", "broker-client", broker="broker") as application,
    ):
        application.declare_queue("full")
        application.publish(b"more than the limit", Envelope(key="full"))
        application.wait_confirmed(TIMEOUT)
        broker.wait(lambda: _alarms_after_a_turn(broker, application) != "", "there is no alarm")
        client.sendall(subject.publish * 2)
        broker.wait(
            lambda: any(row["state"] == "blocked" for row in broker.rows("connections")), "it is not blocked"
        )
        application.purge("full")
        if broker.queue(subject.queue)["messages_ready"]:
            application.purge(subject.queue)
        broker.wait(lambda: _alarms_after_a_turn(broker, application) == "", "the alarm is not lifted")


def publishes_no_faster_than_it_may(subject: FrontEndSubject) -> None:
    """With ``publish_rate`` a client that has published too much is not read for a while."""
    subject = msgspec.structs.replace(subject, listener={**subject.listener, "publish_rate": 0.01})
    broker = subject.open()
    with broker.client() as client:
        client.sendall(subject.publish * 3)
        broker.wait(lambda: [row["state"] for row in broker.rows("connections")] == ["flow"], "it is read")
    broker.kernel.close(linger=0)


def is_told_when_the_broker_stops(subject: FrontEndSubject) -> None:
    """A client sees the end of the connection."""
    broker = subject.open()
    with broker.client() as client:
        client.sendall(subject.publish)
        _answer(client, subject.published)
        broker.kernel.close(linger=0)
        while client.recv(65536):
            pass


def _alarms_after_a_turn(broker: _Broker, application: BrokerClient) -> str:
    """Have the broker look at its alarms, which it does at the end of a turn; return which are raised."""
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
    is_told_when_the_broker_stops,
)
"""All of them; each takes a ``FrontEndSubject``."""
