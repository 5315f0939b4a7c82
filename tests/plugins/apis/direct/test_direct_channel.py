"""x-mode: what is due is done while the application waits, and no end of a peer is a surprise."""

from __future__ import annotations

import math
import os
import queue
import resource
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from kernel.contracts.errors import ConnectionLost, LocalProtocolError, TimedOut
from kernel.contracts.message import Envelope, Message
from kernel.hosting.tls_options import TlsOptions
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan
from plugins.apis.direct.channel import open_direct
from plugins.apis.direct.options import DirectOptions
from tests.events import Events
from tests.system.conftest import Certificates, Transport, certificates, listener, route, transport

__all__ = ["certificates", "kernel_factory", "transport"]

HEARTBEAT = 0.5
LONGER = 2.0
"""Seconds: whoever was silent for three heartbeats is given up by then."""
BEATS = 50


def feed(kernel: Any, beats: int, key: str | None, *last: bytes) -> None:
    """Send messages that are 40 ms apart, and last ones after a slightly longer silence."""
    with kernel.open("app") as app:
        for _ in range(beats):
            app.send(b"beat", key=key, timeout=60)
            time.sleep(0.04)
        for body in last:
            time.sleep(0.04)
            app.send(body, timeout=60)


@pytest.mark.slow
def test_heartbeats_are_sent_during_a_call_with_a_timeout(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel = kernel_factory(listener(protocol={"heartbeat": 0}), on_event=events)
    address = f"backend+tcp://{kernel.address_of('net')}"
    with kernel.open("line", "direct", address=address, protocol={"heartbeat": HEARTBEAT}) as line:
        with pytest.raises(TimedOut):
            line.receive(timeout=LONGER)
        assert events.count("disconnected") == 0


@pytest.mark.slow
def test_heartbeats_are_sent_by_calls_that_do_not_wait(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel = kernel_factory(listener(protocol={"heartbeat": 0}), on_event=events)
    address = f"backend+tcp://{kernel.address_of('net')}"
    with kernel.open("line", "direct", address=address, protocol={"heartbeat": HEARTBEAT}) as line:
        end = time.monotonic() + LONGER
        while time.monotonic() < end:
            with pytest.raises(TimedOut):
                line.receive(timeout=0)
            time.sleep(0.01)
        assert events.count("disconnected") == 0


@pytest.mark.slow
@pytest.mark.parametrize("key", [None, "k"])
def test_heartbeats_are_sent_while_messages_keep_coming(
    kernel_factory: KernelFactory, key: str | None
) -> None:
    events = Events()
    kernel = kernel_factory(listener(), route("app", "net"), on_event=events)
    app_sends = threading.Thread(target=feed, args=(kernel, BEATS, key))
    address = f"backend+tcp://{kernel.address_of('net')}"
    with kernel.open("line", "direct", address=address, protocol={"heartbeat": HEARTBEAT}) as line:
        app_sends.start()
        for _ in range(BEATS):
            assert line.receive() == b"beat"
        app_sends.join()
        assert events.count("disconnected") == 0


@pytest.mark.slow
@pytest.mark.parametrize("timeout", [None, 60])
def test_a_peer_that_was_heard_by_the_short_cut_was_heard(
    kernel_factory: KernelFactory, timeout: float | None
) -> None:
    kernel = kernel_factory(listener(protocol={"heartbeat": HEARTBEAT}), route("app", "net"))
    address = f"backend+tcp://{kernel.address_of('net')}"

    with kernel.open("line", "direct", address=address, protocol={"heartbeat": 0.6 * HEARTBEAT}) as line:
        feeding = threading.Thread(target=feed, args=(kernel, BEATS, None, b"end"))
        feeding.start()
        got = [bytes(line.receive()) for _ in range(BEATS)]
        got.append(bytes(line.receive(timeout)))
        feeding.join()
    assert got == [b"beat"] * BEATS + [b"end"]


def test_descriptors_beyond_the_thousandth_do(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(listener())
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before[0], 2048), before[1]))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with kernel.open("line", "direct", address=f"backend+tcp://{kernel.address_of('net')}") as line:
            assert line.fileno() > 1024
            with pytest.raises(TimedOut):
                line.receive(timeout=0.01)
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_a_reset_during_the_handshake_is_a_lost_connection() -> None:
    def accept() -> None:
        peer, _ = server.accept()
        peer.recv(1)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    with socket.create_server(("127.0.0.1", 0)) as server:
        accepting = threading.Thread(target=accept)
        accepting.start()
        options = DirectOptions(address=f"backend+tcp://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(ConnectionLost):
            open_direct(PluginRegistry.load().protocol_maker(), "line", options)
        accepting.join()


def test_a_unix_socket_that_nobody_called_at_is_no_obstacle_to_the_next_one(tmp_path: Path) -> None:
    place = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(place))
    options = DirectOptions(address=f"backend+unix://{place}", mode="listen", timeout=0.01)
    for _ in range(2):
        with pytest.raises(ConnectionLost, match="timed out"):
            open_direct(PluginRegistry.load().protocol_maker(), "line", options)
        assert not place.exists()


@pytest.mark.parametrize("timeout", [math.inf, 1e9])
def test_a_time_limit_may_be_longer_than_the_system_waits_at_a_time(timeout: float, tmp_path: Path) -> None:
    make, address = PluginRegistry.load().protocol_maker(), f"backend+unix://{tmp_path / 's'}"
    listening: queue.SimpleQueue[str] = queue.SimpleQueue()
    received: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def serve() -> None:
        options = DirectOptions(address=address, mode="listen", timeout=timeout)
        with open_direct(make, "there", options, listening.put) as there:
            received.put(bytes(there.receive()))

    serving = threading.Thread(target=serve, daemon=True)
    serving.start()
    listening.get(timeout=60)
    with open_direct(make, "here", DirectOptions(address=address, timeout=timeout)) as here:
        here.send(b"at last")
        assert received.get(timeout=60) == b"at last"
    serving.join(60)


# ---------------------------------------------------------------------- the face that all channels have


def test_messages_with_parts_and_envelopes_go_both_ways(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        EnginePlan(
            name="net", kind="stream", options={"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
        ),
        route("net", "app"),
        route("app", "net"),
    )
    app = kernel.open("app")
    with kernel.open("line", "direct", address=f"backend+tcp://{kernel.address_of('net')}") as line:
        line.send_parts([b"1", b"2"], key="k")
        whole = app.receive_message(60)
        assert (whole.parts, whole.key) == ((b"1", b"2"), "k")
        for send, body in ((line.send, b"one"), (line.send_many, [b"one"]), (line.send_parts, [b"o", b"ne"])):
            send(body, key="k", headers={"attempt": 1})
            message = app.receive_message(60)
            assert (bytes(message), message.key) == (b"one", "k")
            assert message.envelope.properties["headers"] == {"attempt": 1}
        app.send_message(Message(b"question", Envelope(key="ask")), timeout=60)
        question = line.receive_message(60)
        line.reply(question, b"answer")
        answer = app.receive_message(60)
        assert (bytes(answer), answer.key) == (b"answer", "ask")
        assert not line.has_something()
        app.send_many([b"a", b"b", b"c"], timeout=60)
        assert line.receive_many(1, 60) == [b"a"]
        assert line.has_something()
        assert line.receive_batch(1, 60).bodies == [b"b"]
        assert line.receive_many(timeout=60) == [b"c"]


# ---------------------------------------------------------------------- all transports, in both directions


@pytest.mark.parametrize("timeout", [None, 60])
def test_a_kernel_is_reached_over_each_transport(
    kernel_factory: KernelFactory, transport: Transport, timeout: float | None
) -> None:
    kernel = kernel_factory(transport.listener(), route("net", "app"), route("app", "net"))
    app = kernel.open("app")
    with kernel.open("line", "direct", **transport.dials_to(kernel)) as line:
        for number in range(3):
            line.send(b"%d" % number)
            body = bytes(app.receive(60))
            app.send(body * 2, timeout=60)
            assert line.receive(timeout) == body * 2
        line.send(b"x" * 1_000_000, key="large")
        assert len(app.receive(60)) == 1_000_000
        app.send_many([b"y" * 300_000] * 5, timeout=60)
        assert [len(line.receive(timeout)) for _ in range(5)] == [300_000] * 5
        with pytest.raises(TimedOut):
            line.receive(timeout=0.01)
        kernel.remove_engine("net")
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            line.receive(timeout)


def test_a_kernel_reaches_a_channel_over_each_transport(
    kernel_factory: KernelFactory, transport: Transport
) -> None:
    where: queue.SimpleQueue[str] = queue.SimpleQueue()
    kernel = kernel_factory(route("net", "app"), route("app", "net"), EnginePlan(name="app", kind="native"))
    app = kernel.open("app")

    def serve() -> None:
        options = msgspec.convert({"timeout": 60, "mode": "listen", **transport.listens()}, DirectOptions)
        with open_direct(PluginRegistry.load().protocol_maker(), "line", options, where.put) as line:
            line.send(bytes(line.receive()) * 2)
            with pytest.raises(ConnectionLost):
                line.receive()

    serving = threading.Thread(target=serve)
    serving.start()
    kernel.add_engine(transport.dialler_to(where.get(timeout=60)))
    app.send(b"polly", timeout=60)
    assert bytes(app.receive(60)) == b"pollypolly"
    kernel.remove_engine("net")
    serving.join(60)
    assert not serving.is_alive()


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["tls", "ws"], indirect=True)
def test_heartbeats_are_sent_over_wires_with_bytes_of_their_own(
    kernel_factory: KernelFactory, transport: Transport
) -> None:
    events = Events()
    kernel = kernel_factory(
        transport.listener(protocol={"heartbeat": 0}), route("app", "net"), on_event=events
    )
    options = {**transport.dials_to(kernel), "protocol": {"heartbeat": HEARTBEAT}}
    with kernel.open("line", "direct", **options) as line:
        feeding = threading.Timer(LONGER, feed, (kernel, 1, None))
        feeding.start()
        assert line.receive() == b"beat"
        feeding.join()
        assert events.count("disconnected") == 0


@pytest.mark.parametrize("blocked", [True, False])
def test_a_thread_that_waits_over_tls_is_woken_by_the_end_of_the_kernel(
    kernel_factory: KernelFactory, certificates: Certificates, blocked: bool
) -> None:
    serving = kernel_factory(
        listener(address="backend+tls://127.0.0.1:0", tls={"certificate": certificates.server})
    )
    kernel = kernel_factory()
    address = f"backend+tls://{serving.address_of('net')}"
    line = kernel.open("line", "direct", address=address, tls={"authorities": certificates.authorities})
    closing = threading.Timer(0.1 if blocked else 0, lambda: kernel.close())
    closing.start()
    if not blocked:
        closing.join()
    with pytest.raises(ConnectionLost):
        line.receive()
    closing.join()


def test_a_web_socket_of_another_library_is_read_written_pinged_and_closed_in_order() -> None:
    where: queue.SimpleQueue[str] = queue.SimpleQueue()
    got: list[bytes] = []

    def talk() -> None:
        url = where.get(timeout=60).removeprefix("backend+")
        with connect(url, proxy=None, open_timeout=60) as peer:
            peer.send(b"\x05he")
            pong = peer.ping()
            peer.send(b"llo")
            assert pong.wait(60)
            got.append(peer.recv(60))  # type: ignore[arg-type]  # all of it is binary
            with pytest.raises(ConnectionClosed):
                peer.recv(60)
            assert peer.close_code == 1000

    talking = threading.Thread(target=talk)
    talking.start()
    options = DirectOptions(address="backend+ws://127.0.0.1:0/feed", mode="listen", timeout=60)
    with open_direct(PluginRegistry.load().protocol_maker(), "line", options, where.put) as line:
        assert line.receive() == b"hello"
        line.send(b"answer")
    talking.join(60)
    assert got == [b"\x06answer"]


# ---------------------------------------------------------------------- what it cannot do


def test_a_protocol_that_is_no_stream_is_refused_by_name(kernel_factory: KernelFactory) -> None:
    options = DirectOptions(address="puzzle+tcp://127.0.0.1:1")
    with pytest.raises(LocalProtocolError, match="'line': 'puzzle' is no stream protocol.*engine kind"):
        open_direct(lambda name, options, side: object(), "line", options)


@pytest.mark.parametrize("address", ["backend+inproc://x", "backend+sctp://127.0.0.1:1"])
def test_another_transport_is_refused_with_a_word_on_what_to_use(address: str) -> None:
    with pytest.raises(ValueError, match=r"no transport '.*' here.*use an engine and a native channel"):
        open_direct(lambda name, options, side: object(), "line", DirectOptions(address=address))


def test_options_of_tls_are_looked_at_before_a_peer_is_waited_for() -> None:
    options = DirectOptions(address="backend+tls://127.0.0.1:0", mode="listen", timeout=60)
    with pytest.raises(ValueError, match=r"tls\.certificate"):
        open_direct(PluginRegistry.load().protocol_maker(), "line", options)


def test_a_handshake_that_fails_names_the_channel_and_the_address(
    kernel_factory: KernelFactory, certificates: Certificates
) -> None:
    serving = kernel_factory(
        listener(address="backend+tls://127.0.0.1:0", tls={"certificate": certificates.stranger})
    )
    address = f"backend+tls://{serving.address_of('net')}"
    options = DirectOptions(address=address, tls=TlsOptions(authorities=certificates.authorities))
    with pytest.raises(
        ConnectionLost, match=r"'line': no connection on backend\+tls://.*certificate verify failed"
    ):
        open_direct(PluginRegistry.load().protocol_maker(), "line", options)
