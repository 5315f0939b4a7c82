"""Checks for a pair of engines with confirmations: one listens and one dials, in two kernels.

The test of an engine passes functions that plan both, and a maker of kernels (the ``kernel_factory``
fixture)::

    @pytest.mark.parametrize("check", ENGINE_CHECKS, ids=lambda check: check.__name__)
    def test_my_engine_keeps_the_contract(check, kernel_factory):
        check(EngineSubject(listen=..., dial=..., kernels=kernel_factory))

The engine that dials has to report ``connected`` and ``disconnected``.

The checks see an engine as an application does: what arrives, in which order, what is confirmed, and when a
call has to wait.  So they hold for any transport.  Bodies are numbers: a body that is lost, repeated or
overtaken shows in what was received.

No check sleeps.  A check waits for an event or a message, at most ``TIMEOUT``.  Only two sorts of waits are
short, because they are expected to end without a result: those that prove that nothing is confirmed, and
those that find out when a source is blocked.  If they end too soon on a slow machine, a check may miss a
fault.  It does not report one that is not there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from kernel.contracts.engine import EngineEvent
from kernel.contracts.errors import TimedOut
from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel

# Only a failing check takes as long as this.  So it is long enough for a machine with other work.
TIMEOUT = 60.0
"""Seconds that each step may take."""


class EngineSubject(msgspec.Struct, kw_only=True):
    """What is checked.  Engines are called ``net`` on both sides."""

    listen: Callable[[str | None], EnginePlan]
    """Plan the listening engine; the argument is an address to listen on again, None for a new one."""
    dial: Callable[[str], EnginePlan]
    """Plan the dialling engine, for what ``Kernel.address_of`` said of the other."""
    kernels: KernelFactory

    def open(self, *, api: str = "native", confirm: bool = True, high: int = 1000) -> _Feed:
        """Start a kernel that dials and sends, and one that listens and receives."""
        marks = WaterMarks(high=high)
        receiving = self.kernels(
            self.listen(None), RoutePlan(source="net", targets=("app",), confirm=confirm, marks=marks)
        )
        events = _Events()
        sending = self.kernels(
            self.dial(receiving.address_of("net")),
            RoutePlan(source="app", targets=("net",), confirm=confirm, marks=marks),
            on_event=events,
        )
        events.wait("connected", 1)
        return _Feed(sending, receiving, events, sending.open("app", api), receiving.open("app", api))


class _Events:
    """Counts what is reported, so that an event that came before ``wait`` is not missed."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        # Events come from the threads of the kernel, and the check waits in its own.
        self._changed = threading.Condition()

    def __call__(self, event: EngineEvent) -> None:
        with self._changed:
            self._counts[event.what] = self._counts.get(event.what, 0) + 1
            self._changed.notify_all()

    def wait(self, what: str, times: int) -> None:
        with self._changed:
            done = self._changed.wait_for(lambda: self._counts.get(what, 0) >= times, TIMEOUT)
        assert done, f"{what!r} was not reported {times} times within {TIMEOUT} s: {self._counts}"


class _Feed(msgspec.Struct):
    """Two kernels, and an application at each end."""

    sending: Kernel
    receiving: Kernel
    events: _Events
    source: Any
    sink: Any

    def receive(self, expected: set[bytes]) -> list[bytes]:
        """Receive until all that is expected has come, in any order and number."""
        got: list[bytes] = []
        missing = set(expected)
        while missing:
            bodies = [bytes(body) for body in self.sink.receive_many(timeout=TIMEOUT)]
            got += bodies
            # At least once: after a reconnection the same body may come again.
            missing.difference_update(bodies)
        return got

    def receive_some(self) -> list[bytes]:
        """Receive what there is.

        Calls the source as well: it hands over messages of a removed engine only while it is inside a call.
        """
        until = time.monotonic() + TIMEOUT
        while True:
            try:
                self.source.wait_confirmed(0.0)
            except TimedOut:
                pass
            try:
                return [bytes(body) for body in self.sink.receive_many(timeout=0.05)]
            except TimedOut:
                assert time.monotonic() < until, f"nothing came within {TIMEOUT} s"

    def come_back(self) -> None:
        """Call ``receive_many`` once more: that confirms what the sink has received before."""
        try:
            self.sink.receive_many(timeout=0)
        except TimedOut:
            pass


def _bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


# ---------------------------------------------------------------------- the checks


def delivers_in_order(subject: EngineSubject) -> None:
    """Without failures everything arrives once and in order."""
    feed = subject.open()
    bodies = _bodies(0, 5000)
    received: list[bytes] = []
    # Each part is below the high mark of 1,000: this thread sends and receives, and would wait for itself.
    for at in range(0, len(bodies), 500):
        feed.source.send_many(bodies[at : at + 500], timeout=TIMEOUT)
        received += feed.receive(set(bodies[at : at + 500]))
    assert received == bodies


def confirms_only_what_was_dealt_with(subject: EngineSubject) -> None:
    """Messages are confirmed to the source when their destination has confirmed them, not before."""
    feed = subject.open()
    feed.source.send_many(_bodies(0, 100), timeout=TIMEOUT)
    feed.receive(set(_bodies(0, 100)))
    try:
        # The destination has received them and may still be at work, so nothing may be confirmed.
        feed.source.wait_confirmed(0.05)
    except TimedOut:
        pass
    else:
        raise AssertionError("confirmed before the destination had come back for more")
    feed.come_back()
    feed.source.wait_confirmed(TIMEOUT)


def reconnects_and_loses_nothing(subject: EngineSubject) -> None:
    """At least once: messages that were on the way when a connection was lost are sent again."""
    # All messages fit below the high mark, so that sending does not wait while there is no connection.
    feed = subject.open(high=10_000)
    address = feed.receiving.address_of("net")
    total = 0
    for cut in range(3):
        feed.source.send_many(_bodies(total, total + 700), timeout=TIMEOUT)
        total += 700
        feed.receiving.remove_engine("net")
        # A dialler that has not noticed yet would send the next messages into the old connection, and none of
        # them would have to wait.
        feed.events.wait("disconnected", cut + 1)
        feed.source.send_many(_bodies(total, total + 300), timeout=TIMEOUT)
        total += 300
        # At the same address, which is the only one that the dialler tries.
        feed.receiving.add_engine(subject.listen(address))
        feed.events.wait("connected", cut + 2)
    feed.receive(set(_bodies(0, total)))
    feed.come_back()
    feed.source.wait_confirmed(TIMEOUT)


def waits_when_nothing_is_confirmed(subject: EngineSubject) -> None:
    """A destination that reads nothing stops its source; when it reads again, the source goes on."""
    feed = subject.open(high=50)
    body = b"x" * 50_000
    sent = 0
    try:
        # 250 MB: more than pipes of 50 messages and the buffers of two sockets hold.
        while sent < 5000:
            feed.source.send(b"%06d" % sent + body, timeout=0.3)
            sent += 1
    except TimedOut:
        pass
    assert sent < 5000, "the destination reads nothing, and the source did not have to wait"
    got: list[bytes] = []
    while len(got) < sent:
        got += [bytes(each[:6]) for each in feed.sink.receive_many(timeout=TIMEOUT)]
    assert got == [b"%06d" % number for number in range(sent)]
    feed.source.send(b"and on", timeout=TIMEOUT)
    assert bytes(feed.sink.receive(TIMEOUT)) == b"and on"


def isolates_a_slow_reader(subject: EngineSubject) -> None:
    """A peer that does not read does not stop the other peers of the same listener."""
    # Dropping, for the peer that never reads: with ``block`` the source itself would wait for it, up to the
    # stall timeout.
    marks = WaterMarks(high=20, when_full="drop-newest")
    serving = subject.kernels(
        subject.listen(None),
        RoutePlan(source="app", targets=("net",), marks=marks),
        RoutePlan(source="net", targets=("ready",)),
    )
    ready = serving.open("ready", "native")
    sinks = []
    for _ in range(2):
        kernel = subject.kernels(
            subject.dial(serving.address_of("net")),
            RoutePlan(source="net", targets=("app",), marks=WaterMarks(high=1)),
            RoutePlan(source="hello", targets=("net",)),
        )
        # The peer speaks first.  Once its message is here, its connection has a port, which the source
        # reaches: what is sent before that is not for this peer.
        kernel.open("hello", "native").send(b"here", timeout=TIMEOUT)
        assert bytes(ready.receive(TIMEOUT)) == b"here"
        # The pipe to ``app`` has room for one message.  So the kernel of the sink that is never read stops
        # reading its socket soon, and the listener has a peer that is blocked.
        sinks.append(kernel.open("app", "native"))
    source, quick = serving.open("app", "native"), sinks[1]
    # 30 MB: far more than the buffers on the way to the other peer, which never reads.
    for number in range(300):
        source.send(b"%06d" % number + b"x" * 100_000, timeout=TIMEOUT)
        # One at a time, so that the pipe to the quick peer never holds 20 messages and drops none.
        assert bytes(quick.receive(TIMEOUT)[:6]) == b"%06d" % number


def lets_go_in_every_phase(subject: EngineSubject) -> None:
    """An engine can be removed at any time: before it starts, while it connects, sends, or is blocked."""
    feed = subject.open(high=20)
    address = feed.receiving.address_of("net")

    def stop_and_start(kernel: Kernel, plan: EnginePlan) -> None:
        kernel.remove_engine("net")
        kernel.add_engine(plan)
        # The engine may not have begun by now: ``add_engine`` only posts it to its thread.
        kernel.remove_engine("net")
        kernel.add_engine(plan)

    # Before it has begun, and while it connects.
    for _ in range(5):
        stop_and_start(feed.sending, subject.dial(address))
    for _ in range(3):
        stop_and_start(feed.receiving, subject.listen(address))
    # While it is blocked.
    try:
        for _ in range(2000):
            feed.source.send(b"x" * 10_000, timeout=0.2)
    except TimedOut:
        pass
    stop_and_start(feed.sending, subject.dial(address))
    stop_and_start(feed.receiving, subject.listen(address))
    # The engine works after all this: messages that it had not confirmed come again.
    assert set(feed.receive_some()) == {b"x" * 10_000}
    for kernel in (feed.sending, feed.receiving):
        kernel.wait_running(TIMEOUT)
        # The last ``net`` alone: those before it have gone, and applications are no engines.
        assert len(kernel.engine_states()) == 1


def fails_visibly_where_it_cannot_listen(subject: EngineSubject) -> None:
    """An address that is in use is a failure of the engine, which is reported and tried again."""
    first = subject.kernels(subject.listen(None))
    events = _Events()
    # Without ``wait``: its engine cannot run before the first one has gone.
    second = subject.kernels(subject.listen(first.address_of("net")), wait=False, on_event=events)
    events.wait("failed", 1)
    (state,) = second.engine_states()
    assert state.failures
    assert state.last_failure
    first.remove_engine("net")
    second.wait_running(TIMEOUT)


ENGINE_CHECKS: tuple[Callable[[EngineSubject], None], ...] = (
    delivers_in_order,
    confirms_only_what_was_dealt_with,
    reconnects_and_loses_nothing,
    waits_when_nothing_is_confirmed,
    isolates_a_slow_reader,
    lets_go_in_every_phase,
    fails_visibly_where_it_cannot_listen,
)
"""All of them."""
