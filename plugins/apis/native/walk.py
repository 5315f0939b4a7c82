"""The walk ``native``: from one application to another, over two kernels and a tcp connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernel.contracts.walk import Hop, Tour, Walk

if TYPE_CHECKING:
    from kernel import Plan

HOPS = (
    Hop(
        "kernel/hosting/fast_sender.py",
        "fast_sender.send",
        "the application's thread hands the message over",
    ),
    Hop("kernel/pipes/pipe.py", "Pipe.signal", "it lies in the pipe: the reading thread is told"),
    Hop("kernel/pipes/doorbell.py", "Doorbell.ring", "which sleeps, and is woken"),
    Hop(
        "kernel/hosting/stream_host.py",
        "StreamHost.on_output",
        "the poll thread takes all that waits as one batch",
    ),
    Hop(
        "plugins/protocols/backend/connection.py", "BackendConnection.send_batches", "the batch becomes bytes"
    ),
    Hop("kernel/hosting/wire.py", "PlainWire.send_first", "the bytes go to the socket, in one system call"),
    Hop(
        "kernel/hosting/connection.py", "Connection._on_readable", "the other kernel's poll thread reads them"
    ),
    Hop(
        "plugins/protocols/backend/connection.py",
        "BackendConnection.receive_data",
        "the bytes become a batch",
    ),
    Hop("kernel/dispatcher/port.py", "Port.send", "the routes say whose pipe gets it"),
    Hop("kernel/pipes/doorbell.py", "Doorbell.ring", "the application's thread is woken"),
    Hop(
        "plugins/apis/native/channel.py",
        "Channel.receive",
        "the other application has the message",
        at_return=True,
    ),
)


def walk() -> Walk:
    """Return the walk."""
    return Walk(hops=HOPS, follow=follow)


def follow(tour: Tour) -> None:
    """Send one message through two kernels."""
    from kernel import Kernel

    listening = {"mode": "listen", "address": "backend+tcp://127.0.0.1:0"}
    with Kernel(_plan("there", "receiver", ("link", "receiver"), listening)) as there:
        there.wait_running()
        dialling = {"address": f"backend+tcp://{there.address_of('link')}"}
        with (
            Kernel(_plan("here", "sender", ("sender", "link"), dialling)) as here,
            here.open("sender") as sender,
            tour.application(there, "receiver") as receiver,
        ):
            # The calls that make the connection, and those that are made only once, are not part of the walk.
            for _ in range(2):
                sender.send(b"first")
                receiver.wait()
            tour.begin()
            sender.send(b"hello")
            receiver.wait()
            tour.end()


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
