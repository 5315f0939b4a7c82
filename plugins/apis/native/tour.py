"""``kernel tour``: one message from an application to another, every hop with file and line, from a live run.

Two kernels in this process, a tcp connection between them.  The hops that are looked for stand in ``HOPS``; the page
``docs/follow_one_message.md`` has the same list, and a test holds the one to the other.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from kernel import Plan

ROOT = Path(__file__).parents[3]  # not resolved: functions have the path by which they were imported


class Hop(NamedTuple):
    """One function that sees the message."""

    file: str
    function: str
    what: str


HOPS = (
    Hop(
        "plugins/apis/native/fast_sender.py",
        "fast_sender.send",
        "the application's thread hands the message over",
    ),
    Hop("kernel/pipes/pipe.py", "Pipe.signal", "it lies in the pipe: the reading thread is told"),
    Hop(
        "kernel/hosting/stream_host.py",
        "StreamHost.on_output",
        "the poll thread takes all that waits as one batch",
    ),
    Hop(
        "plugins/protocols/backend/connection.py", "BackendConnection.send_batches", "the batch becomes bytes"
    ),
    Hop("kernel/hosting/wire.py", "PlainWire.send", "the bytes go to the socket, in one system call"),
    Hop(
        "kernel/hosting/connection.py",
        "Connection._on_readable",
        "the other kernel's poll thread reads them",
    ),
    Hop(
        "plugins/protocols/backend/connection.py",
        "BackendConnection.receive_data",
        "the bytes become a batch",
    ),
    Hop("kernel/dispatcher/port.py", "Port.send", "the routes say whose pipe gets it"),
    Hop("plugins/apis/native/channel.py", "Channel.receive", "the other application has the message"),
)


class Seen(NamedTuple):
    """A hop as it happened."""

    hop: Hop
    line: int
    thread: str
    microseconds: float


class Tracer:
    """Notes when the functions of ``HOPS`` are called; the last one counts when it returns."""

    def __init__(self) -> None:
        self.events: list[tuple[float, str, str, int, str]] = []
        self.begun: float | None = None
        self._wanted = {(str(ROOT / hop.file), hop.function) for hop in HOPS}

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """For ``sys.setprofile``."""
        code = frame.f_code
        function = code.co_qualname.replace(".<locals>", "")
        if self.begun is None or (code.co_filename, function) not in self._wanted:
            return
        if event == ("return" if function == HOPS[-1].function else "call"):
            name = threading.current_thread().name
            self.events.append((time.perf_counter(), code.co_filename, function, code.co_firstlineno, name))

    def hops(self) -> list[Seen]:
        """Find the hops in what was noted, each after the one before."""
        seen: list[Seen] = []
        events = iter(self.events)
        for hop in HOPS:
            for moment, file, function, line, thread in events:
                if file == str(ROOT / hop.file) and function == hop.function:
                    seen.append(Seen(hop, line, thread, (moment - (self.begun or moment)) * 1e6))
                    break
        return seen


def follow(body: bytes = b"hello") -> list[Seen]:
    """Send one message through two kernels and return its hops."""
    from kernel import Kernel

    tracer = Tracer()
    threading.setprofile(tracer)
    try:
        listening = {"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
        with Kernel(_plan("there", "receiver", ("link", "receiver"), listening)) as there:
            there.wait_running()
            dialling = {"address": f"backend+tcp://{there.address_of('link')}"}
            with Kernel(_plan("here", "sender", ("sender", "link"), dialling)) as here:
                sender, receiver = here.open("sender"), there.open("receiver")
                sender.send(b"first")  # so that the connection is there
                receiver.receive(10)
                sys.setprofile(tracer)
                tracer.begun = time.perf_counter()
                sender.send(body)
                receiver.receive(10)
                sys.setprofile(None)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return tracer.hops()


def _plan(thread: str, application: str, route: tuple[str, str], link: dict[str, Any]) -> Plan:
    """Plan one of the two kernels."""
    from kernel import EnginePlan, Plan, RoutePlan, ThreadPlan

    return Plan(
        threads=(ThreadPlan(name=thread),),
        engines=(
            EnginePlan(name="link", kind="stream", options=link),
            EnginePlan(name=application, kind="native"),
        ),
        routes=(RoutePlan(source=route[0], targets=(route[1],)),),
    )


@click.command(short_help="Follow one message through every hop.")
def command() -> None:
    """Send one message from an application to another and print every function that sees it.

    Two kernels in this process, with a tcp connection between them; tracing makes it some ten times slower than it is.
    """
    seen = follow()
    for number, (hop, line, thread, microseconds) in enumerate(seen, 1):
        click.echo(f"{number}. {click.style(f'{hop.file}:{line}', fg='cyan')} {hop.function}")
        click.echo(f"   {hop.what}   ({thread}, {microseconds:,.0f} µs)")
    if len(seen) < len(HOPS):
        raise click.ClickException(f"lost sight of the message before {HOPS[len(seen)].function}")
