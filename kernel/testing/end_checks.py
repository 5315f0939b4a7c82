"""Checks for engines that are an end: a sink takes messages out of the kernel, a source brings them in.

The other side of such an engine is not a kernel, but a file, a database, a web hook or a sensor.  The
test of an engine says how to plan the engine, and how to read or to make what is on the other side::

    @pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
    def test_my_sink_keeps_the_contract(check, kernel_factory, tmp_path):
        check(SinkSubject(plan=..., arrived=..., kernels=kernel_factory))

What a sink has to keep is the rule of confirmation: it confirms a message when the message is at the other
side, and not earlier.  From this follow the others, that nothing is lost when it is replaced, and that it
slows down its source when the other side is slow.  A source confirms nothing, so for it order and
back-pressure are checked.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import msgspec

from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan

TIMEOUT = 60.0
"""Seconds that anything may take."""

LOOK = 0.01
"""Seconds between two looks at what has arrived at the other side."""


class SinkSubject(msgspec.Struct, kw_only=True):
    """A sink that is checked.  A route with ``confirm = true`` leads to it."""

    plan: Callable[[], EnginePlan]
    """Plan the sink, always with the same other side; its name is ``sink``."""
    arrived: Callable[[], Sequence[bytes]]
    """Return the bodies that have arrived at the other side so far, in order."""
    kernels: KernelFactory

    def wait_for(self, bodies: set[bytes]) -> Sequence[bytes]:
        """Wait until all of these have arrived; return what has."""
        # A loop with pauses: a file or a server at the other side cannot wake this thread.
        until = time.monotonic() + TIMEOUT
        while not bodies <= set(got := [bytes(body) for body in self.arrived()]):
            assert time.monotonic() < until, (
                f"{len(bodies - set(got))} messages have not arrived in {TIMEOUT} s"
            )
            time.sleep(LOOK)
        return got


class SourceSubject(msgspec.Struct, kw_only=True):
    """A source that is checked."""

    plan: Callable[[], EnginePlan]
    """Plan the source, always with the same other side; its name is ``source``."""
    offer: Callable[[Sequence[bytes]], None]
    """Have the other side offer messages with these bodies, in this order.  Called before the source is
    started."""
    kernels: KernelFactory


def _bodies(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def _route_to_sink(high: int = 1000) -> RoutePlan:
    return RoutePlan(source="app", targets=("sink",), confirm=True, marks=WaterMarks(high=high))


# ---------------------------------------------------------------------- sinks


def takes_everything_in_order(subject: SinkSubject) -> None:
    """While nothing breaks everything arrives once and in order, whatever the batches."""
    app = subject.kernels(subject.plan(), _route_to_sink()).open("app", "native")
    bodies = _bodies(0, 3000)
    # Single messages between two batches: pipes carry them without a batch around them.
    app.send_many(bodies[:1000], timeout=TIMEOUT)
    for body in bodies[1000:1100]:
        app.send(body, timeout=TIMEOUT)
    app.send_many(bodies[1100:], timeout=TIMEOUT)
    assert list(subject.wait_for(set(bodies))) == bodies


def confirms_what_has_arrived(subject: SinkSubject) -> None:
    """Everything is confirmed in the end, and whatever is confirmed has arrived at the other side by then."""
    app = subject.kernels(subject.plan(), _route_to_sink()).open("app", "native")
    bodies = _bodies(0, 500)
    app.send_many(bodies, timeout=TIMEOUT)
    app.wait_confirmed(TIMEOUT)
    # Without waiting: what is confirmed has to be there already.
    assert set(bodies) <= {bytes(body) for body in subject.arrived()}, "confirmed, and not there"


def keeps_up_with_little_room(subject: SinkSubject) -> None:
    """Pipes that hold ten messages slow the source down, and lose nothing."""
    app = subject.kernels(subject.plan(), _route_to_sink(high=10)).open("app", "native")
    bodies = _bodies(0, 1000)
    for at in range(0, len(bodies), 7):
        app.send_many(bodies[at : at + 7], timeout=TIMEOUT)
    app.wait_confirmed(TIMEOUT)
    assert list(subject.wait_for(set(bodies))) == bodies


def takes_bodies_of_all_sizes(subject: SinkSubject) -> None:
    """Empty bodies, single bytes and large ones arrive as they are."""
    app = subject.kernels(subject.plan(), _route_to_sink()).open("app", "native")
    # Lengths at which formats change, each value of a byte, and an empty line, at which a format of text may
    # cut.
    bodies = [b"", b"\x00", b"\xff" * 255, bytes(range(256)) * 40, b"x" * 300_000, b"\r\n\r\n", b"last"]
    for body in bodies:
        app.send_many([body], timeout=TIMEOUT)
    assert list(subject.wait_for(set(bodies))) == bodies


def loses_nothing_when_it_is_replaced(subject: SinkSubject) -> None:
    """At least once: a sink that is removed leaves what it has not confirmed to its successor."""
    # All messages fit below the high mark, so that sending does not wait while there is no sink.
    kernel = subject.kernels(subject.plan(), _route_to_sink(high=10_000))
    app = kernel.open("app", "native")
    total = 0
    # The third life of the sink takes over from one that has taken over itself.
    for _ in range(3):
        app.send_many(_bodies(total, total + 400), timeout=TIMEOUT)
        total += 400
        kernel.remove_engine("sink")
        kernel.add_engine(subject.plan())
    app.send_many(_bodies(total, total + 400), timeout=TIMEOUT)
    app.wait_confirmed(TIMEOUT)
    subject.wait_for(set(_bodies(0, total + 400)))


def writes_everything_before_it_ends(subject: SinkSubject) -> None:
    """A kernel that is closed lets its sink write what waits for it."""
    kernel = subject.kernels(subject.plan(), _route_to_sink(high=10_000))
    bodies = _bodies(0, 2000)
    # Nothing is waited for: most of it is still in the pipe when the kernel closes.
    kernel.open("app", "native").send_many(bodies, timeout=TIMEOUT)
    kernel.close(linger=TIMEOUT)
    assert kernel.join(TIMEOUT), "it has not ended"
    assert set(bodies) <= {bytes(body) for body in subject.arrived()}


SINK_CHECKS: tuple[Callable[[SinkSubject], None], ...] = (
    takes_everything_in_order,
    confirms_what_has_arrived,
    keeps_up_with_little_room,
    takes_bodies_of_all_sizes,
    loses_nothing_when_it_is_replaced,
    writes_everything_before_it_ends,
)
"""What every sink has to pass."""


# ---------------------------------------------------------------------- sources


def _route_from_source(high: int = 1000) -> RoutePlan:
    return RoutePlan(source="source", targets=("app",), marks=WaterMarks(high=high))


def _receive(subject: SourceSubject, count: int, high: int, most: int | None = None) -> list[bytes]:
    kernel = subject.kernels(_route_from_source(high), EnginePlan(name="app", kind="native"))
    # The channel first: what a source sends while its route leads to nobody is dropped.
    app = kernel.open("app", "native")
    kernel.add_engine(subject.plan())
    got: list[bytes] = []
    while len(got) < count:
        bodies = (
            app.receive_many(timeout=TIMEOUT) if most is None else app.receive_many(most, timeout=TIMEOUT)
        )
        got += [bytes(body) for body in bodies]
    return got


def brings_everything_in_order(subject: SourceSubject) -> None:
    """What the other side offers arrives once and in order."""
    bodies = _bodies(0, 3000)
    subject.offer(bodies)
    assert _receive(subject, len(bodies), high=1000) == bodies


def waits_for_a_reader_that_is_slow(subject: SourceSubject) -> None:
    """Pipes that hold ten messages stop the source until somebody reads; nothing is lost."""
    bodies = _bodies(0, 1000)
    subject.offer(bodies)
    assert _receive(subject, len(bodies), high=10, most=5) == bodies


def ends_while_nobody_reads(subject: SourceSubject) -> None:
    """A source ends with its kernel, even if its messages are not read."""
    subject.offer(_bodies(0, 1000))
    kernel = subject.kernels(_route_from_source(10), EnginePlan(name="app", kind="native"))
    app = kernel.open("app", "native")
    kernel.add_engine(subject.plan())
    # Now the source is at work.  It soon has to wait: the pipe holds 10 messages of the 1,000.
    app.receive(TIMEOUT)
    kernel.close(linger=0)
    assert kernel.join(TIMEOUT), "it has not ended"


SOURCE_CHECKS: tuple[Callable[[SourceSubject], None], ...] = (
    brings_everything_in_order,
    waits_for_a_reader_that_is_slow,
    ends_while_nobody_reads,
)
"""What every source has to pass."""
