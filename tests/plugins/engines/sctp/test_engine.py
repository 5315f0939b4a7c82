"""Two kernels, and SCTP over UDP on loopback between them."""

from __future__ import annotations

import math
import socket
from typing import Any

import pytest

from kernel.contracts.errors import PlanError, TimedOut
from kernel.contracts.message import Envelope, Message
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory
from kernel.topology.check import plan_of_text
from kernel.topology.plan import RoutePlan
from kernel.topology.system import Kernel
from tests.events import Events
from tests.plugins.engines.sctp.plans import TIMEOUT, bodies_of, dialler, listener, sent_in_time
from tests.ports import free_port
from tests.system.conftest import route
from tests.systems import linux_only


def pair(
    kernels: KernelFactory, *there: RoutePlan, here: tuple[RoutePlan, ...] = (), **options: Any
) -> tuple[Kernel, Kernel, Events]:
    """A kernel that dials and one that listens, connected."""
    receiving = kernels(listener(**options), *there)
    events = Events()
    sending = kernels(dialler(receiving.address_of("net"), **options), *here, on_event=events)
    events.wait("connected")
    return sending, receiving, events


def test_what_a_message_is_arrives(kernel_factory: KernelFactory, transport: str) -> None:
    sending, receiving, _ = pair(
        kernel_factory,
        route("net", "app"),
        here=(route("app", "net"),),
        stream_window=64 * 1024,
        transport=transport,
    )
    source, sink = sending.open("app"), receiving.open("app")
    envelope = Envelope(key="k", priority=3, persistent=True, properties={"headers": {"a": 1}})
    sent = [(b"", Envelope()), (b"small", envelope), (b"large " * 100_000, envelope)]
    for body, each in sent:
        source.send_message(Message(body, each), timeout=TIMEOUT)
    source.send_parts([b"one", b"", b"three"], timeout=TIMEOUT)
    for body, each in sent:
        message = sink.receive_message(TIMEOUT)
        assert bytes(message.body) == body
        assert (message.key, message.envelope.priority) == (each.key, each.priority)
        assert dict(message.envelope.properties) == dict(each.properties)
    assert sink.receive_message(TIMEOUT).parts == (b"one", b"", b"three")


@pytest.mark.slow
@pytest.mark.parametrize("confirm", [False, True])
def test_a_destination_that_takes_nothing_stops_its_own_stream_only(
    kernel_factory: KernelFactory, confirm: bool, transport: str
) -> None:
    """A feed for each of four destinations; one of them reads nothing, and far more comes for it than fits anywhere."""
    waiting: dict[str, Any] = {"confirm": confirm, "marks": {"high": 50, "stall_timeout": math.inf}}
    receiving = kernel_factory(
        listener(stream_window=64 * 1024, transport=transport),
        *(route("net", f"to{n}", match=(f"{n}",), **waiting) for n in range(4)),
    )
    feeds = [route(f"feed{n}", "net", **waiting) for n in range(4)]
    sending = kernel_factory(
        dialler(receiving.address_of("net"), stream_buffer=64 * 1024, transport=transport), *feeds
    )
    sources = [sending.open(f"feed{n}") for n in range(4)]
    sinks = [receiving.open(f"to{n}") for n in range(4)]
    stalled = 0
    while sent_in_time(sources[0], b"%06d" % stalled + b"x" * 5000, "0"):
        stalled += 1
        assert stalled < 2000
    for number in range(200):
        for n in range(1, 4):
            sources[n].send(b"%d" % number, key=f"{n}", timeout=TIMEOUT)
            assert bytes(sinks[n].receive(TIMEOUT)) == b"%d" % number
    assert [body[:6] for body in bodies_of(sinks[0], stalled)] == [b"%06d" % n for n in range(stalled)]


@pytest.mark.parametrize("framing", ["backend", "plain"])
def test_what_a_peer_that_has_left_has_sent_waits_for_who_reads_it(
    kernel_factory: KernelFactory, framing: str, transport: str
) -> None:
    """The destination takes nothing until the peer is gone, and far more has come by then than its pipe holds."""
    news, events = Events(), Events()
    receiving = kernel_factory(
        listener(framing=framing, transport=transport),
        route("net", "app", marks={"high": 50, "stall_timeout": math.inf}),
        on_event=news,
    )
    there = dialler(receiving.address_of("net"), framing=framing, transport=transport)
    sending = kernel_factory(there, route("app", "net"), on_event=events)
    events.wait("connected")
    source, sink = sending.open("app"), receiving.open("app")
    sent = [b"%06d" % number + bytes(500) for number in range(250)]
    for body in sent:
        source.send(body, timeout=TIMEOUT)
    sending.close()
    news.wait("disconnected")
    assert bodies_of(sink, len(sent)) == sent


def test_both_ways_at_once_and_many_dialler_on_one_socket(
    kernel_factory: KernelFactory, transport: str
) -> None:
    serving = kernel_factory(listener(transport=transport), route("net", "app"), route("app", "net"))
    everywhere = serving.open("app")
    diallers = [
        kernel_factory(
            dialler(serving.address_of("net"), streams=2, transport=transport),
            route("net", "app"),
            route("app", "net"),
        )
        for _ in range(5)
    ]
    channels = [kernel.open("app") for kernel in diallers]
    for number, channel in enumerate(channels):
        channel.send(b"from %d" % number, timeout=TIMEOUT)
    assert sorted(bodies_of(everywhere, 5)) == [b"from %d" % number for number in range(5)]
    everywhere.send(b"to all", timeout=TIMEOUT)
    for channel in channels:
        assert bytes(channel.receive(TIMEOUT)) == b"to all"
    assert serving.statistics().engines[0].counters["connections"] == 5


def test_more_associations_than_allowed_are_refused(kernel_factory: KernelFactory) -> None:
    _, serving, _ = pair(kernel_factory, route("net", "app"), max_associations=1)
    events = Events()
    kernel_factory(dialler(serving.address_of("net")), route("app", "net"), on_event=events)
    assert "too many associations" in events.wait("retrying").detail


def test_subscriptions_decide_what_travels(kernel_factory: KernelFactory, transport: str) -> None:
    serving = kernel_factory(
        listener(transport=transport), route("app", "net", router="by-key"), route("net", "ready")
    )
    ready = serving.open("ready")
    subscriber = kernel_factory(
        dialler(serving.address_of("net"), subscriptions=("fruit.*", "end"), transport=transport),
        route("net", "app"),
        route("hello", "net"),
    )
    subscriber.open("hello").send(b"here", timeout=TIMEOUT)
    ready.receive(TIMEOUT)
    source, sink = serving.open("app"), subscriber.open("app")
    for key in ("fruit.apple", "tree.oak", "fruit.pear", "end"):
        source.send(key.encode(), key=key, timeout=TIMEOUT)
    assert bodies_of(sink, 3) == [b"fruit.apple", b"fruit.pear", b"end"]


def test_a_message_that_the_peer_would_not_take_is_refused_and_holds_up_nothing(
    kernel_factory: KernelFactory, transport: str
) -> None:
    receiving = kernel_factory(
        listener(max_message=1000, transport=transport), route("net", "app", confirm=True)
    )
    events = Events()
    sending = kernel_factory(
        dialler(receiving.address_of("net"), transport=transport),
        route("app", "net", confirm=True),
        on_event=events,
    )
    source, sink = sending.open("app"), receiving.open("app")
    for body in (b"before", b"x" * 1001, b"after"):
        source.send(body, timeout=TIMEOUT)
    assert bodies_of(sink, 2) == [b"before", b"after"]
    assert "1001 bytes; the peer takes 1000" in events.wait("refused").detail
    with pytest.raises(TimedOut):
        sink.receive(0)
    source.wait_confirmed(TIMEOUT)


def test_what_has_expired_is_not_sent_and_what_is_to_be_confirmed_is(
    kernel_factory: KernelFactory, transport: str
) -> None:
    """Nobody takes anything until long after the messages have expired; the stream's window is full by then."""
    for confirm in (False, True):
        receiving = kernel_factory(
            listener(stream_window=64 * 1024, transport=transport),
            route("net", "app", confirm=confirm, marks={"high": 1}),
        )
        sending = kernel_factory(
            dialler(receiving.address_of("net"), stream_buffer=64 * 1024, transport=transport),
            route("app", "net", confirm=confirm, marks={"high": 1000}),
        )
        source, sink = sending.open("app"), receiving.open("app")
        for number in range(40):
            message = Message(b"%02d" % number + b"x" * 20_000, Envelope(expiration=1))
            source.send_message(message, timeout=TIMEOUT)
        source.send(b"last", timeout=TIMEOUT)
        got: list[bytes] = []
        while not got or got[-1] != b"last":
            got += [bytes(body[:4]) for body in sink.receive_many(timeout=TIMEOUT)]
        assert (len(got) == 41) == confirm, got


def test_a_listener_of_fewer_streams_says_so(kernel_factory: KernelFactory) -> None:
    serving = kernel_factory(listener(streams=4), route("net", "app"))
    events = Events()
    kernel_factory(dialler(serving.address_of("net"), streams=8), route("app", "net"), on_event=events)
    assert "the peer asks for 8 streams; 4 is the maximum here" in events.wait("retrying").detail


@pytest.mark.slow
def test_nobody_there_is_told_with_the_peer(kernel_factory: KernelFactory) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as silent:
        silent.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:5000/{silent.getsockname()[1]}"
        events = Events()
        kernel_factory(dialler(place, connect_timeout=0.3), on_event=events)
        told = events.wait("retrying")
    assert told.peer == f"backend+sctp://{place}"
    assert "no answer from 127.0.0.1:5000 within 0.3 s" in told.detail


def test_plain_messages_between_two_kernels(kernel_factory: KernelFactory, transport: str) -> None:
    sending, receiving, events = pair(
        kernel_factory,
        route("net", "app", confirm=True),
        here=(route("app", "net", confirm=True),),
        framing="plain",
        transport=transport,
    )
    source, sink = sending.open("app"), receiving.open("app")
    bodies = [b"%d" % number for number in range(2000)]
    source.send_many(bodies[:1000], timeout=TIMEOUT)
    source.send(b"", timeout=TIMEOUT)
    source.send_many(bodies[1000:], timeout=TIMEOUT)
    assert bodies_of(sink, 2000) == bodies
    source.wait_confirmed(TIMEOUT)
    assert "an empty message" in events.wait("refused").detail


@linux_only
def test_a_port_that_nobody_listens_on_is_told_at_once(kernel_factory: KernelFactory) -> None:
    """The system is told by ICMP; without that it would be found out after connect_timeout."""
    udp_port = free_port()
    events = Events()
    kernel_factory(dialler(f"127.0.0.1:5000/{udp_port}", connect_timeout=60.0), on_event=events)
    assert f"nobody listens on UDP port {udp_port} of 127.0.0.1" in events.wait("retrying").detail


HOSTILE = [b"", b"\0" * 11, b"\0" * 12, b"\xff" * 1400, bytes(range(256)) * 4]


def test_bytes_that_are_no_packets_change_nothing(kernel_factory: KernelFactory) -> None:
    sending, receiving, _ = pair(kernel_factory, route("net", "app"), here=(route("app", "net"),))
    udp_port = int(receiving.address_of("net").rpartition("/")[2])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        for _ in range(50):
            for data in HOSTILE:
                stranger.sendto(data, ("127.0.0.1", udp_port))
    source, sink = sending.open("app"), receiving.open("app")
    source.send(b"still there", timeout=TIMEOUT)
    assert bytes(sink.receive(TIMEOUT)) == b"still there"
    assert receiving.engine_states()[0].failures == 0


def test_a_wrong_plan_is_refused_with_its_line() -> None:
    text = '[engines.net]\nkind = "sctp"\naddress = "backend+sctp://127.0.0.1:5000"\naddresses = ["eth0"]\n'
    with pytest.raises(PlanError, match=r"4: .*'eth0' is not an IP address"):
        plan_of_text(text, PluginRegistry.load())
    with pytest.raises(PlanError, match="a dialler needs the host and the port"):
        plan_of_text(text.replace("127.0.0.1:5000", ":0").replace("eth0", "::1"), PluginRegistry.load())


def test_raw_ip_takes_a_right(kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    real = socket.socket

    def refusing(family: int = -1, kind: int = -1, *rest: Any, **others: Any) -> socket.socket:
        if kind == socket.SOCK_RAW:
            raise PermissionError(1, "Operation not permitted")
        return real(family, kind, *rest, **others)

    monkeypatch.setattr("plugins.engines.sctp.transport.socket.socket", refusing)
    events = Events()
    kernel_factory(listener("127.0.0.1:5000", transport="raw"), wait=False, on_event=events)
    assert "CAP_NET_RAW" in events.wait("failed").detail
