"""``kernel bench``: measures throughput and round trips of this machine, in a few seconds, without a peer.

Two processes, each with a kernel, are connected by TCP over the loopback interface.  The parent sends, the
child counts or echoes.  Commands travel as messages, on the same connection: ``countN``, ``echo``, ``stop``.
So there is one order of events, and no second channel whose delay would be measured too.
"""

from __future__ import annotations

import multiprocessing
import time
from multiprocessing.connection import Connection
from typing import Any

import click

from kernel.cli.seconds import Seconds
from kernel.contracts.errors import KernelError

SECONDS = 1.0
_BATCH = 1000


def _plan(address: str, mode: str) -> Any:
    from kernel.topology.plan import EnginePlan, Plan, RoutePlan

    return Plan(
        engines=(
            EnginePlan(name="link", kind="stream", options={"address": address, "mode": mode}),
            EnginePlan(name="app", kind="native"),
        ),
        routes=(RoutePlan(source="app", targets=("link",)), RoutePlan(source="link", targets=("app",))),
    )


def _far_end(told: Connection) -> None:
    """The other process: counts or sends back what it is told to, until it is told to stop."""
    from kernel.topology.system import Kernel

    with Kernel(_plan("backend+tcp://127.0.0.1:0", "listen")) as kernel:
        # The system chooses the port, which is known when the engine runs.
        kernel.wait_running()
        app = kernel.open("app")
        told.send(kernel.address_of("link"))
        while True:
            body = app.receive()
            if body == b"stop":
                return
            if body == b"echo":
                app.send(app.receive())
            elif body[:5] == b"count":
                left = int(body[5:])
                while left:
                    # Not more than ``left``: the next command may have arrived behind the messages.
                    left -= len(app.receive_many(left))
                app.send(b"done")


def _rate(app: Any, size: int, count: int) -> float:
    """Return messages a second, sent in batches of 1,000, until the far end has received them all."""
    batch = [b"x" * size] * min(_BATCH, count)
    begun = time.perf_counter()
    app.send(b"count%d" % count)
    for _ in range(count // len(batch)):
        app.send_many(batch)
    # "done" comes when the far end has them: the time of what waits in pipes and sockets counts.
    app.receive(60)
    return count / (time.perf_counter() - begun)


def _round_trips(app: Any, seconds: float) -> list[float]:
    """Return round trips of 64 bytes, in microseconds, the shortest first."""
    body = b"x" * 64
    taken: list[float] = []
    until = time.perf_counter() + seconds
    while not taken or time.perf_counter() < until:
        # Announced first, so that the measured message is alone on its way.
        app.send(b"echo")
        begun = time.perf_counter()
        app.send(body)
        app.receive(10)
        taken.append((time.perf_counter() - begun) * 1e6)
    return sorted(taken)


@click.command(short_help="Measure this machine, in a few seconds.")
@click.option(
    "--seconds",
    type=Seconds(0.0, min_open=True),
    default=SECONDS,
    show_default=True,
    help="How long each measurement takes, about.",
)
def command(seconds: float) -> None:
    """Measure throughput and round trips between two processes on this machine.

    For figures beside those of other systems see docs/measured.md and `make bench`.
    """
    from kernel.topology.system import Kernel

    # "spawn": a forked child would inherit locks and descriptors of this process, in any state.
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    # A daemon: it ends with this process, also if a measurement fails and nobody tells it to stop.
    far = multiprocessing.get_context("spawn").Process(target=_far_end, args=(theirs,), daemon=True)
    far.start()
    # The child has a copy of its end.  With ours open as well, ``recv`` would wait for ever for a child that
    # has failed.
    theirs.close()
    try:
        address = ours.recv()
    except EOFError:
        raise KernelError("the other process of the measurement has failed, for the reason above") from None
    with Kernel(_plan(f"backend+tcp://{address}", "dial")) as kernel:
        app = kernel.open("app")
        for size in (1, 100, 1024, 65536):
            # A short sample says how many messages fill the time that was asked for.
            sample = _rate(app, size, 2000)
            # A multiple of ``_BATCH``: ``_rate`` sends whole batches, and the far end waits for all of them.
            rate = _rate(app, size, max(int(sample * seconds) // _BATCH, 1) * _BATCH)
            click.echo(f"one way, {size:>6,} B   {rate:>12,.0f} msg/s   {rate * size / 1e6:>8,.0f} MB/s")
        trips = _round_trips(app, seconds)
        p50, p99 = trips[len(trips) // 2], trips[len(trips) * 99 // 100]
        click.echo(
            f"round trip,   64 B   p50 {p50:,.0f} µs   p99 {p99:,.0f} µs   ({len(trips):,} round trips)"
        )
        # It is still written: a kernel that is closed without an error lingers.
        app.send(b"stop")
    far.join(10)
