"""Monitors of ``kernel.sockets``."""

from __future__ import annotations

import errno
import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kernel.sockets import Again, Context, Login, Monitor, PlaceError, SocketClosed, SocketEvent
from plugins.apis.sockets.monitor import MOST_EVENTS, Watch
from tests.plugins.apis.sockets.test_tasks import Start, start

__all__ = ["start"]

TIMEOUT = 20.0


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


def _until(monitor: Monitor, what: str) -> list[SocketEvent]:
    """Return the events up to the first of this sort."""
    events: list[SocketEvent] = []
    while not events or events[-1].what != what:
        events.append(monitor.recv(timeout=TIMEOUT))
    return events


def test_the_life_of_a_connection(context: Context) -> None:
    push, pull = context.socket("PUSH", reconnect=0.02), context.socket("PULL")
    theirs, ours = pull.monitor(), push.monitor()
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    # Nobody is there yet.
    push.connect(place)
    first, *_, retrying = _until(ours, "retrying")
    assert (first.what, first.place) == ("connecting", place)
    assert retrying.next_try is not None
    assert retrying.next_try > 0
    assert "refused" in retrying.reason
    pull.bind(place)
    assert theirs.recv(timeout=TIMEOUT) == SocketEvent(what="listening", place=place)
    assert _until(ours, "connected")[-1].place == place
    accepted = theirs.recv(timeout=TIMEOUT)
    assert accepted.what == "accepted"
    assert accepted.place.startswith("tcp://127.0.0.1:")
    pull.unbind(place)
    assert theirs.recv(timeout=TIMEOUT) == SocketEvent(what="closed", place=place)
    push.disconnect(place)
    assert _until(ours, "disconnected")[-1].place == place
    gone = theirs.recv(timeout=TIMEOUT)
    assert (gone.what, gone.place) == ("disconnected", accepted.place)
    with pytest.raises(Again, match="nothing has happened"):
        theirs.recv(timeout=0)


def test_a_login_that_is_refused(context: Context) -> None:
    def nobody(login: Login) -> None:
        return None

    context.authenticate(nobody)
    pull = context.socket("PULL", engine={"mechanism": "PLAIN"})
    push = context.socket("PUSH", engine={"mechanism": "PLAIN", "username": "anna", "password": "x"})
    theirs, ours = pull.monitor(), push.monitor()
    push.connect(pull.bind("tcp://127.0.0.1:0"))
    refused = _until(ours, "refused")[-1]
    assert refused.code == "400"
    assert "retrying" in {event.what for event in _until(ours, "retrying")}
    assert theirs.recv(timeout=TIMEOUT).what == "listening"
    # A peer that was refused was never there.
    assert "accepted" not in {event.what for event in _until(theirs, "disconnected")}


def test_a_connection_that_is_not_to_be_made_again(context: Context) -> None:
    push, pull = context.socket("PUSH", reconnect=None), context.socket("PULL")
    monitor = push.monitor()
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        push.connect(place)
        server.accept()[0].close()
        assert _until(monitor, "disconnected")[-1].place == place
    # Nobody listens any more.
    push.connect(place)
    told = _until(monitor, "disconnected")
    assert "refused" in told[-1].reason
    assert "retrying" not in {event.what for event in told}
    assert not push.writable()
    with pytest.raises(PlaceError, match="there is no place") as raised:
        push.disconnect(place)
    assert raised.value.errno == errno.ENOENT
    # The application may connect again.
    push.connect(pull.bind("tcp://127.0.0.1:0"))
    push.send(b"hello")
    assert pull.recv(timeout=TIMEOUT) == b"hello"


def test_a_fault_of_a_peer_and_a_place_that_is_taken(context: Context) -> None:
    pull = context.socket("PULL")
    monitor = pull.monitor()
    place = pull.bind("tcp://127.0.0.1:0")
    with socket.create_connection(("127.0.0.1", int(place.rpartition(":")[2]))) as peer:
        peer.sendall(b"\xff" + bytes(8) + b"\x7f\3\1" + b"PLAIN".ljust(52, b"\0"))
        refused = _until(monitor, "refused")[-1]
        assert refused.code == "mechanism-mismatch"
        assert "PLAIN" in refused.reason
        assert refused.place == f"tcp://127.0.0.1:{peer.getsockname()[1]}"
    other = context.socket("PULL")
    monitor = other.monitor()
    with pytest.raises(PlaceError) as raised:
        other.bind(place)
    assert raised.value.errno == errno.EADDRINUSE
    failed = monitor.recv(timeout=TIMEOUT)
    assert (failed.what, failed.place, failed.code) == ("bind failed", place, "EADDRINUSE")


@pytest.mark.parametrize("close", ["monitor", "socket", "context"])
def test_a_stream_of_events_ends(context: Context, close: str) -> None:
    pull = context.socket("PULL")
    monitor = pull.monitor()
    got: list[SocketEvent] = []
    begun = threading.Event()

    def read() -> None:
        for event in monitor:
            got.append(event)
            begun.set()

    reader = threading.Thread(target=read)
    reader.start()
    pull.bind("inproc://place")
    assert begun.wait(TIMEOUT)
    {"monitor": monitor, "socket": pull, "context": context}[close].close()
    reader.join(TIMEOUT)
    assert not reader.is_alive()
    assert [event.what for event in got] == ["listening"]
    with pytest.raises(SocketClosed):
        monitor.recv()


def test_events_that_nobody_receives_are_dropped_and_counted(context: Context) -> None:
    with context.socket("PULL").monitor() as monitor:
        for number in range(MOST_EVENTS + 2):
            monitor.take(SocketEvent(what="connecting", place=f"tcp://127.0.0.1:{number}"))
        assert monitor.dropped == 2
        assert monitor.recv().place == "tcp://127.0.0.1:2"


def test_tasks_receive_events(start: Start) -> None:
    async def main() -> None:
        with Context() as context:
            async with context.task_socket("PULL") as pull, context.task_socket("PUSH") as push:
                monitor = pull.monitor()
                push.connect(pull.bind("tcp://127.0.0.1:0"))
                assert [(await monitor.recv()).what for _ in range(2)] == ["listening", "accepted"]
                push.close()
                async for event in monitor:
                    if event.what == "disconnected":
                        # Its end is the end of the stream.
                        pull.close()
                assert monitor.dropped == 0

    start(main)


class Faster(list[Any]):
    """A list from which another thread removes what is about to be removed."""

    def remove(self, value: Any) -> None:
        super().remove(value)
        super().remove(value)


def test_two_threads_may_end_a_monitor_at_once(context: Context) -> None:
    socket = context.socket("PULL")
    monitor = socket.monitor()
    socket._watches = Faster(socket._watches)
    listeners = Faster()
    Watch("any", listeners, monitor.take).stop()
    monitor.close()
    with pytest.raises(SocketClosed):
        monitor.recv(timeout=0)
    assert listeners == socket._watches == []
