"""AMQP to backend and back with ``confirm = true``: whichever of the three processes is killed, whenever, nothing is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from plugins.protocols.amqp091.events import Delivered
from plugins.protocols.amqp091.methods import basic, queue
from tests.plugins.engines.amqp.raw_client import RawClient
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq
from tests.ports import free_port
from tests.seeds import many
from tests.system.conftest import FAST
from tests.system.stages import (
    TIMEOUT,
    KernelRun,
    Program,
    Stage,
    kill_at_random,
    stages,
    until,
)

__all__ = ["stages"]

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

WINDOW = 200
"""Messages on their way over each link, at the most."""

TWICE = 5 * WINDOW
"""What may come twice for a kill: what was on its way over a link, and what a broker had not yet written down as acknowledged."""

BROKER = """
[engines.broker]
kind = "amqp"
address = "127.0.0.1:{port}"
data_dir = "{folder}/data"
"""

REMOTE = """
[engines.remote]
kind = "amqp-client"
addresses = ["127.0.0.1:{broker}"]
reconnect = {{ first = 0.02, most = 0.2 }}
queues = [{{ name = "feed", arguments = {{ {arguments} }} }}]
"""

OUT = (
    REMOTE
    + """
consume = [{{ queue = "feed", prefetch = {window} }}]

[engines.net]
kind = "stream"
address = "backend+tcp://127.0.0.1:{sink}"
reconnect = {{ first = 0.02, most = 0.2 }}

[[routes]]
from = "remote"
to = "net"
confirm = true
"""
)

IN = (
    REMOTE
    + """
exchange = ""
key = "feed"
persistent = true
in_flight = {window}

[engines.net]
kind = "stream"
mode = "listen"
address = "backend+tcp://127.0.0.1:{sink}"

[[routes]]
from = "net"
to = "remote"
confirm = true
"""
)

EMBEDDED = """
[engines.broker]
kind = "amqp"
address = "127.0.0.1:{broker}"
data_dir = "{folder}/data"
exchanges = [{{ name = "feed", type = "fanout" }}]
queues = [{{ name = "feed" }}]

[engines.net]
kind = "stream"
mode = "{mode}"
address = "backend+tcp://127.0.0.1:{net}"

[[routes]]
from = "{source}"
to = "{target}"
confirm = true
"""

SINK = """
import os, sys
from kernel.testing.fixtures import plan_of
from kernel.topology.system import Kernel
from tests.system.conftest import listener, route

with Kernel(plan_of(listener(address=sys.argv[1]), route("net", "app", confirm=True, marks={"high": 100}))) as kernel:
    kernel.wait_running()
    app = kernel.open("app", auto_confirm=False)
    file = os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, b"\\n")  # what a kill has cut off stays a line of its own
    print("ready", flush=True)
    while True:
        os.write(file, b"".join(bytes(body) + b"\\n" for body in app.receive_many(50)))
        app.confirm()
"""

SOURCE = """
import sys
from kernel.contracts.message import Envelope, Message
from kernel.testing.fixtures import plan_of
from kernel.topology.system import Kernel
from tests.system.conftest import dialler, route

with Kernel(plan_of(dialler(sys.argv[1]), route("app", "net", confirm=True))) as kernel:
    kernel.wait_running()
    app = kernel.open("app")
    kept = Envelope(key="feed", persistent=True)
    number = int(sys.argv[2])
    print(number, flush=True)
    while number < int(sys.argv[3]):
        for at in range(number, number + 50):
            app.send_message(Message(b"%07d" % at, kept))
        number += 50
        app.wait_confirmed()
        print(number, flush=True)  # promised
    sys.stdin.read()
"""


class Ours:
    """Our own broker, with a data directory."""

    queue: ClassVar[dict[str, str]] = {}

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._run = KernelRun(folder, "broker", BROKER.format(port=self.port, folder=folder))

    def start(self) -> None:
        self._run.start()

    def prepare(self) -> None:
        """Nothing: a queue that is declared is written down."""

    def stop(self) -> None:
        self._run.stop()

    def close(self) -> None:
        self._run.stop()


class Theirs(RabbitMq):
    """RabbitMQ with the kind of queue that it promises to keep through a kill: one in 40 runs lost a classic one's messages."""

    queue: ClassVar[dict[str, str]] = {"x-queue-type": "quorum"}

    def prepare(self) -> None:
        """Have the queue written down.  One whose node is killed within seconds after it was declared gets no leader any more."""
        with RawClient(self.port) as client:
            client.ask(queue.Declare(queue="feed", durable=True, arguments=self.queue), queue.DeclareOk)
        self.control("eval", "[dets:sync(Table) || Table <- dets:all()].")


def courses(first: int) -> pytest.MarkDecorator:
    """One course with our broker, and one with RabbitMQ.

    ``KERNEL_SEEDS`` says how many times as many.
    """
    theirs = [pytest.mark.peer("rabbitmq"), pytest.mark.xdist_group("rabbitmq-killed")]
    return pytest.mark.parametrize(
        "broker,seed",
        [
            *(pytest.param("ours", seed) for seed in many(first, 1)),
            *(pytest.param("rabbitmq", seed, marks=theirs) for seed in many(first + 1, 1)),
        ],
        indirect=["broker"],
    )


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ours | Theirs]:
    made = Ours(tmp_path) if request.param == "ours" else Theirs(tmp_path)
    try:
        made.start()
        made.prepare()
        yield made
    finally:
        made.close()


def _bridge(topology: str, broker: Ours | Theirs, sink: int) -> str:
    arguments = ", ".join(f'{name} = "{value}"' for name, value in broker.queue.items())
    return topology.format(broker=broker.port, sink=sink, window=WINDOW, arguments=arguments)


def _numbers(path: Path) -> Counter[int]:
    """What was written down.  A line that was cut by a kill does not count: it was not confirmed."""
    lines = path.read_bytes().split(b"\n") if path.exists() else []
    return Counter(int(line) for line in lines if len(line) == 7)


def _lines(path: Path) -> int:
    return path.stat().st_size // 8 if path.exists() else 0


def _kills(broker: Ours | Theirs) -> int:
    """Three of each process; of RabbitMQ one, whose node takes seconds of processor time to come back."""
    return 9 if isinstance(broker, Ours) else 3


@courses(1)
def test_from_amqp_to_backend(
    kernel_factory: KernelFactory,
    broker: Ours | Theirs,
    stages: list[Stage],
    tmp_path: Path,
    seed: int,
) -> None:
    total, kills = 20_000, _kills(broker)
    sink_port, path = free_port(), tmp_path / "received"
    bridge = KernelRun(tmp_path, "bridge", _bridge(OUT, broker, sink_port))
    sink = Program(SINK, lambda: [f"backend+tcp://127.0.0.1:{sink_port}", str(path)])
    stages += [bridge, sink]
    for stage in stages:
        stage.start()
    publishing = _publish(
        kernel_factory,
        broker.port,
        total,
        exchange="",
        key="feed",
        queues=[{"name": "feed", "arguments": broker.queue}],
    )
    kill_at_random([broker, bridge, sink], seed, kills, total, lambda: _lines(path))
    publishing.join()
    until(lambda: _lines(path) >= total and len(_numbers(path)) == total)
    assert sum(_numbers(path).values()) - total <= kills * TWICE


def _publish(make: KernelFactory, port: int, total: int, **options: object) -> threading.Thread:
    """Publish numbers to a broker that may go and come; return the thread, which ends when all are confirmed."""
    publisher = {
        "addresses": [f"127.0.0.1:{port}"],
        "reconnect": FAST,
        "persistent": True,
        "in_flight": WINDOW,
        **options,
    }
    kernel = make(
        EnginePlan(name="broker", kind="amqp-client", options=publisher),
        EnginePlan(name="app", kind="native"),
        RoutePlan(source="app", targets=("broker",), confirm=True, marks=WaterMarks(high=1000)),
    )

    def publish() -> None:
        app = kernel.open("app")
        for first in range(0, total, 100):
            app.send_many([b"%07d" % number for number in range(first, first + 100)], timeout=TIMEOUT)
        app.wait_confirmed(TIMEOUT)

    publishing = threading.Thread(target=publish)
    publishing.start()
    return publishing


@courses(3)
def test_from_backend_to_amqp(broker: Ours | Theirs, stages: list[Stage], tmp_path: Path, seed: int) -> None:
    total, kills = 15_000, _kills(broker)
    bridge_port = free_port()
    bridge = KernelRun(tmp_path, "bridge", _bridge(IN, broker, bridge_port))
    promised = [0]
    source = Source(f"backend+tcp://127.0.0.1:{bridge_port}", promised, total)
    stages += [bridge, source]
    for stage in stages:
        stage.start()
    kill_at_random([broker, bridge, source], seed, kills, total, lambda: promised[0])
    until(lambda: promised[0] >= total)
    bridge.stop()
    _check_queue(broker.port, total, kills)


def _check_queue(port: int, total: int, kills: int) -> None:
    got: Counter[int] = Counter()
    with RawClient(port) as client:
        waiting = client.ask(queue.Declare(queue="feed", passive=True), queue.DeclareOk).message_count
        client.send(basic.Consume(queue="feed", no_ack=True))
        while sum(got.values()) < waiting:
            got.update(int(bytes(body)) for body in client.wait_for(Delivered).batch.bodies)
    missing = sorted(set(range(total)) - set(got))
    assert not missing, f"{len(missing)} are missing, from {missing[0]} to {missing[-1]}"
    assert sum(got.values()) - total <= kills * TWICE


@pytest.mark.parametrize("seed", many(5, 1))
def test_a_broker_that_is_the_bridge_itself(
    kernel_factory: KernelFactory, stages: list[Stage], tmp_path: Path, seed: int
) -> None:
    """A publisher's confirm is the sink's: nothing is kept in between."""
    total, kills = 20_000, 8
    ports, path = {"broker": free_port(), "net": free_port()}, tmp_path / "received"
    ends = {"mode": "dial", "source": "broker", "target": "net", "folder": tmp_path}
    bridge = KernelRun(tmp_path, "bridge", EMBEDDED.format(**ports, **ends))
    sink = Program(SINK, lambda: [f"backend+tcp://127.0.0.1:{ports['net']}", str(path)])
    stages += [bridge, sink]
    for stage in stages:
        stage.start()
    publishing = _publish(kernel_factory, ports["broker"], total, exchange="feed", mandatory=False)
    kill_at_random([bridge, sink], seed, kills, total, lambda: _lines(path))
    publishing.join()
    until(lambda: _lines(path) >= total and len(_numbers(path)) == total)
    assert sum(_numbers(path).values()) - total <= kills * TWICE


@pytest.mark.parametrize("seed", many(7, 1))
def test_a_broker_that_keeps_what_it_confirms(stages: list[Stage], tmp_path: Path, seed: int) -> None:
    """What comes over a route is confirmed when it is on the disk."""
    total, kills = 15_000, 8
    ports = {"broker": free_port(), "net": free_port()}
    ends = {"mode": "listen", "source": "net", "target": "broker", "folder": tmp_path}
    bridge = KernelRun(tmp_path, "bridge", EMBEDDED.format(**ports, **ends))
    promised = [0]
    source = Source(f"backend+tcp://127.0.0.1:{ports['net']}", promised, total)
    stages += [bridge, source]
    for stage in stages:
        stage.start()
    kill_at_random([bridge, source], seed, kills, total, lambda: promised[0])
    until(lambda: promised[0] >= total)
    _check_queue(ports["broker"], total, kills)


class Source:
    """The source, and what it has promised so far: with that it goes on after a kill."""

    def __init__(self, address: str, promised: list[int], total: int) -> None:
        self._promised = promised
        self._program = Program(SOURCE, lambda: [address, str(promised[0]), str(total)])
        self._reading: threading.Thread | None = None

    def start(self) -> None:
        self._program.start()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def stop(self) -> None:
        if self._reading is not None:
            self._program.kill()
            self._reading.join()
            self._reading = None
        self._program.stop()

    def _read(self) -> None:
        while line := self._program.line():
            self._promised[0] = int(line)
