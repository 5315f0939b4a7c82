"""SIGKILL of one side in mid-stream, on routes with confirm = true: nothing is lost, whichever side it is."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel.contracts.errors import TimedOut
from kernel.testing.fixtures import KernelFactory
from tests.events import Events
from tests.ports import free_port
from tests.system.conftest import dialler, listener, route
from tests.systems import linux_only

pytestmark = pytest.mark.slow  # processes of their own

ROOT = Path(__file__).parents[2]
TOTAL = 20_000
PLACES = {"backend+tcp": "127.0.0.1:{port}", "backend+sctp": "127.0.0.1:{port}/{port}"}
"""Where to listen, by what an address begins with: the same tests, and one line of each plan differs."""


def place(scheme: str, port: int = 0) -> str:
    return f"{scheme}://" + PLACES[scheme].format(port=port)


# Where no ICMP message tells of it, a minute passes until SCTP counts a killed peer as dead.
@pytest.fixture(params=["backend+tcp", pytest.param("backend+sctp", marks=linux_only)])
def scheme(request: pytest.FixtureRequest) -> str:
    scheme: str = request.param
    return scheme


RECEIVER = """
import sys
from kernel.testing.fixtures import plan_of
from kernel.topology.system import Kernel
from tests.system.conftest import listener, route

with Kernel(plan_of(listener(address=sys.argv[1]), route("net", "app", confirm=True, marks={"high": 500}))) as kernel:
    kernel.wait_running()
    print(kernel.address_of("net"), flush=True)
    app = kernel.open("app", batch=100)
    out = open(sys.argv[2], "ab", buffering=0)
    out.write(b"\\n")  # what a kill has cut off stays a line of its own
    while True:
        bodies = app.receive_many(100)
        out.write(b"".join(bytes(body) + b"\\n" for body in bodies))  # ours, before we come back for more
"""

SUBSCRIBER = """
import sys
from kernel.testing.fixtures import plan_of
from kernel.topology.system import Kernel
from tests.system.conftest import dialler, route

with Kernel(plan_of(dialler(sys.argv[1]), route("net", "app", confirm=True, marks={"high": 500}))) as kernel:
    app = kernel.open("app", batch=100)
    out = open(sys.argv[2], "ab", buffering=0)
    out.write(b"\\n")  # what a kill has cut off stays a line of its own
    while True:
        bodies = app.receive_many(100)
        out.write(b"".join(bytes(body) + b"\\n" for body in bodies))  # ours, before we come back for more
"""

SENDER = """
import sys
from kernel.testing.fixtures import plan_of
from kernel.topology.system import Kernel
from tests.system.conftest import dialler, route

with Kernel(plan_of(dialler(sys.argv[1]), route("app", "net", confirm=True))) as kernel:
    kernel.wait_running()
    app = kernel.open("app")
    number = int(sys.argv[2])
    while number < int(sys.argv[3]):
        app.send_many([b"%d" % at for at in range(number, number + 100)])
        number += 100
        app.wait_confirmed()
        print(number, flush=True)  # promised
    print("done", flush=True)
    sys.stdin.read()
"""


class Processes:
    """Children that do not outlive the test."""

    def __init__(self) -> None:
        self._all: list[subprocess.Popen[str]] = []

    def start(self, program: str, *arguments: str) -> subprocess.Popen[str]:
        child = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        self._all.append(child)
        return child

    def kill(self, child: subprocess.Popen[str]) -> None:
        child.send_signal(signal.SIGKILL)
        child.wait(60)
        for pipe in (child.stdin, child.stdout):
            assert pipe is not None
            pipe.close()
        self._all.remove(child)

    def kill_all(self) -> None:
        for child in list(self._all):
            self.kill(child)


@pytest.fixture
def processes() -> Iterator[Processes]:
    made = Processes()
    yield made
    made.kill_all()


def line_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def written_to(path: Path) -> list[int]:
    """What receivers wrote down; a line that was cut by the kill does not count."""
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    return [int(line) for line in whole.split()]


@pytest.mark.parametrize("kills", [1, 5])
def test_nothing_is_lost_when_the_receiver_is_killed(
    kernel_factory: KernelFactory, processes: Processes, tmp_path: Path, kills: int, scheme: str
) -> None:
    path = tmp_path / "received"
    path.touch()
    receiver = processes.start(RECEIVER, place(scheme, free_port()), str(path))
    address = f"{scheme}://{line_of(receiver)}"
    events = Events()
    kernel = kernel_factory(
        dialler(address), route("app", "net", confirm=True, marks={"high": 3000}), on_event=events
    )
    app = kernel.open("app")
    for number in range(TOTAL):
        app.send(b"%d" % number, timeout=60)
        if number and number % (TOTAL // (kills + 1)) == 0 and number < TOTAL - 100:
            processes.kill(receiver)
            receiver = processes.start(RECEIVER, address, str(path))
            line_of(receiver)
    received = written_to(path)
    while set(received) < set(range(TOTAL)):
        app.send(b"%d" % TOTAL, timeout=60)
        received = written_to(path)
    assert set(range(TOTAL)) <= set(received)
    assert events.count("disconnected") >= kills


def test_nothing_is_lost_when_one_of_several_destinations_is_killed(
    kernel_factory: KernelFactory, processes: Processes, tmp_path: Path, scheme: str
) -> None:
    """Each engine of a fan-out is promised everything, also while nobody is connected to it."""
    kernel = kernel_factory(
        listener("left", place(scheme)),
        listener("right", place(scheme)),
        # A busy machine may take longer to start a process than the 5 s that a route waits by default.
        route("app", "left", "right", confirm=True, marks={"stall_timeout": 120.0}),
    )
    paths = {name: tmp_path / name for name in ("left", "right")}
    receivers = {}
    for name, path in paths.items():
        path.touch()
        address = f"{scheme}://{kernel.address_of(name)}"
        receivers[name] = processes.start(SUBSCRIBER, address, str(path))
    app = kernel.open("app")
    for number in range(TOTAL):
        app.send(b"%d" % number, timeout=60)
        if number in (TOTAL // 4, TOTAL // 2, TOTAL * 3 // 4):
            name = "right" if number == TOTAL // 2 else "left"
            while len(written_to(paths[name])) < number // 8:
                with contextlib.suppress(TimedOut):
                    app.wait_confirmed(0.01)  # a channel has no thread of its own: it is served by being used
            processes.kill(receivers[name])
            address = f"{scheme}://{kernel.address_of(name)}"
            receivers[name] = processes.start(SUBSCRIBER, address, str(paths[name]))
    app.wait_confirmed(60)
    for path in paths.values():
        assert set(range(TOTAL)) == set(written_to(path))
    assert all(port.abandoned == 0 for port in kernel.statistics().ports)


def test_nothing_that_was_promised_is_lost_when_the_sender_is_killed(
    kernel_factory: KernelFactory, processes: Processes, scheme: str
) -> None:
    receiving = kernel_factory(listener(address=place(scheme)), route("net", "app", confirm=True))
    address = f"{scheme}://{receiving.address_of('net')}"
    app = receiving.open("app")
    got: set[int] = set()

    def receive() -> None:
        try:
            got.update(int(bytes(body)) for body in app.receive_many(timeout=0.02))
        except TimedOut:
            pass

    sender = Said(processes.start(SENDER, address, "0", "1000000"))
    while sender.last < 3000:
        receive()
    sender.child.send_signal(signal.SIGKILL)
    sender.thread.join(60)
    promised = sender.last
    again = Said(processes.start(SENDER, address, str(promised), str(promised + 1000)))
    while again.last < promised + 1000:
        receive()
    again.thread.join(60)
    assert set(range(promised + 1000)) <= got


class Said:
    """The last number that a sender has printed."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.child = child
        self.last = 0
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        while (line := line_of(self.child)).isdigit():
            self.last = int(line)
