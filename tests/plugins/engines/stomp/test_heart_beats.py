"""Heart-beats on a clock that stands still, and while the disk does nothing."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel.hosting.wire import PlainWire
from plugins.engines.broker.host.options import BrokerOptions
from plugins.engines.broker.public import Accepted, BrokerEngine, FrontEnd, StreamFrontEnd
from plugins.engines.stomp.front_end import make_front_end
from plugins.engines.stomp.options import StompListenerOptions
from tests.plugins.engines.amqp.still_host import StillHost
from tests.plugins.engines.stomp.raw_client import frame


class StillStomp:
    """A durable broker in the test's own thread, and one client of it, with heart-beats of a second both ways."""

    def __init__(self, folder: Path) -> None:
        options = StompListenerOptions(address="127.0.0.1:0")

        def front_end(engine: BrokerEngine) -> FrontEnd:
            return make_front_end(engine, options)

        self.host = StillHost()
        self.engine = BrokerEngine("broker", BrokerOptions(data_dir=str(folder)), (front_end,))
        self.engine.start(self.host)
        self._free = threading.Event()
        self.wire, theirs = socket.socketpair()
        for each in (self.wire, theirs):
            each.setblocking(False)
        listener = self.engine.front_ends[0]
        assert isinstance(listener, StreamFrontEnd)
        listener.begin(Accepted(PlainWire(theirs), "client", loopback=True, certified=None))
        self.say(
            frame(
                "CONNECT",
                accept_version="1.2",
                host="/",
                login="guest",
                passcode="guest",
                heart_beat="1000,1000",
            )
        )
        assert self.heard().startswith(b"CONNECTED\n")

    def say(self, data: bytes) -> None:
        """Send something, and let the broker do what there is to do."""
        self.wire.sendall(data)
        self.host.process()

    def heard(self) -> bytes:
        """What has come since the last look."""
        try:
            return self.wire.recv(1 << 20)
        except BlockingIOError:
            return b"nothing"

    def hold_disk(self) -> None:
        """The disk does nothing until ``free_disk``."""

        def wait() -> Callable[[], None]:
            self._free.wait(60)
            return lambda: None

        assert self.engine.kept is not None
        self.engine.kept._writer.submit(wait)

    def free_disk(self) -> None:
        self._free.set()
        assert self.engine.kept is not None
        self.engine.kept._writer.wait()
        self.host.process()

    def close(self) -> None:
        self._free.set()
        self.engine.stop()
        self.host.process()
        self.host.release()
        self.wire.close()


@pytest.fixture
def still(tmp_path: Path) -> Iterator[StillStomp]:
    made = StillStomp(tmp_path / "data")
    yield made
    made.close()


def test_something_comes_in_every_second(still: StillStomp) -> None:
    for _ in range(10):
        still.say(b"\n")
        still.host.pass_time(1.0)
        assert set(still.heard()) == set(b"\n")


def test_a_client_that_is_silent_for_two_seconds_is_lost(still: StillStomp) -> None:
    still.host.pass_time(1.9)
    assert len(still.engine.clients) == 1
    still.host.pass_time(0.1)
    assert len(still.engine.clients) == 0


def test_heart_beats_do_not_wait_for_the_disk(still: StillStomp) -> None:
    still.hold_disk()
    still.say(frame("SEND", b"x", destination="/queue/a", persistent="true", receipt="1"))
    for _ in range(5):
        still.say(b"\n")
        still.host.pass_time(1.0)
        assert set(still.heard()) == set(b"\n")
    still.free_disk()
    assert still.heard() == b"RECEIPT\nreceipt-id:1\n\n\0\n"


def test_a_silent_client_is_lost_also_while_the_disk_does_nothing(still: StillStomp) -> None:
    """Its connection waits for the disk; its deadline is over and must not be asked about again and again."""
    still.hold_disk()
    still.say(frame("SEND", b"x", destination="/queue/a", persistent="true", receipt="1"))
    still.host.pass_time(10.0)
    still.free_disk()
    assert len(still.engine.clients) == 0
