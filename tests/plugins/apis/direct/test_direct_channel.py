"""x-mode: what is due is done while the application waits, and no end of a peer is a surprise."""

from __future__ import annotations

import os
import resource
import socket
import struct
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from kernel.contracts.errors import ConnectionLost, TimedOut
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory
from plugins.apis.direct.channel import open_direct
from plugins.apis.direct.options import DirectOptions
from tests.events import Events
from tests.system.conftest import listener, route

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
