"""What looking at a system costs it: scrapes by Prometheus, the page for operators, and a broker for tests.

The system is in a process of its own, with a broker of 1,000 queues.  What asks for pages is in another one, so that
only the system's own work counts.
"""

from __future__ import annotations

import http.client
import sys
import tempfile
import threading
import time
from base64 import b64encode
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from benchmarks import kernels
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side
from kernel.topology.plan import EnginePlan, ThreadPlan
from kernel.topology.system import Kernel

QUEUES = 1000
SCRAPES = 50
SIZE = 100
COUNT = 10_000_000
SCRAPE, SCRAPE_AIM = "a scrape", "the aim: 20 ms"
ALONE, WATCHED = "nobody looks", "a page is open, and a scrape a second"
FIRST, LATER, FIXTURE_AIM = "the first broker", "the second one", "the aim: 0.3 s"

_LOGIN = {"authorization": "Basic " + b64encode(b"guest:guest").decode()}
_TIMEOUT = 60.0


def _watched() -> Kernel:
    """A kernel with a feed, a broker and a web engine, each in a thread of its own."""
    plan = kernels.linked_plan("listen", "backend+tcp://127.0.0.1:0")
    users = {"guest": {"password": "guest", "tags": ["administrator"]}}
    queues = [{"name": f"queue-{number}"} for number in range(QUEUES)]
    broker = {"address": "127.0.0.1:0", "users": users, "queues": queues}
    web = {"address": "127.0.0.1:0", "broker": "broker"}
    plan = msgspec.structs.replace(
        plan,
        threads=(*plan.threads, ThreadPlan(name="brokers"), ThreadPlan(name="web")),
        engines=(
            *plan.engines,
            EnginePlan(name="broker", kind="amqp", thread="brokers", options=broker),
            EnginePlan(name="web", kind="web", thread="web", options=web),
        ),
    )
    kernel = Kernel(plan).start()
    kernel.wait_running()
    return kernel


def _get(connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
    connection.request("GET", path, headers=_LOGIN)
    answer = connection.getresponse()
    if answer.status != 200:
        raise AssertionError(f"{path}: {answer.status}")
    return answer


# Scrapes


def serve(link: Connection) -> None:
    """Serve, and say the processor time between two words of the other side."""
    with _watched() as kernel:
        link.send(kernel.address_of("web"))
        while link.recv():
            start = time.process_time()
            link.send("counting")
            link.recv()
            link.send(time.process_time() - start)


def _scrape(scale: float) -> Figures:
    count = max(1, int(SCRAPES * scale))
    with Child(serve) as server:
        host, _, port = server.hear().rpartition(":")
        client = http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT)
        for _ in range(3):
            _get(client, "/metrics").read()
        server.say(True)
        server.hear()
        for _ in range(count):
            _get(client, "/metrics").read()
        server.say("done")
        seconds = server.hear()
        client.close()
        server.say(False)
    return {"cpu": seconds / count * 1000}


# A feed that somebody looks at


def receive(link: Connection, count: int) -> None:
    """Receive the feed; say the processor time of this process for a million messages."""
    with _watched() as kernel:
        app = kernel.open("app")
        link.send((f"backend+tcp://{kernel.address_of('link')}", kernel.address_of("web")))
        first = received = len(app.receive_many())
        start, cpu = time.perf_counter(), time.process_time()
        while received < count:
            received += len(app.receive_many())
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        link.send({"rate": (received - first) / seconds, "cpu": cpu / (received - first) * 1e9})
        link.recv()


class _Looking:
    """A page that reads its events, and a scrape a second."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._page, self._scraper = (
            http.client.HTTPConnection(host, int(port), timeout=_TIMEOUT) for _ in range(2)
        )
        self._events = _get(self._page, "/events?size=50")
        self._over = threading.Event()
        self._threads = [threading.Thread(target=work) for work in (self._read, self._scrape)]
        for thread in self._threads:
            thread.start()

    def _read(self) -> None:
        while not self._over.is_set() and self._events.readline():
            pass

    def _scrape(self) -> None:
        while True:
            _get(self._scraper, "/metrics").read()
            if self._over.wait(1.0):
                return

    def close(self) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
        self._page.close()
        self._scraper.close()


def _feed(looking: bool, scale: float) -> Figures:
    count = max(1, int(COUNT * scale) // kernels.BATCH) * kernels.BATCH
    with Child(receive, count) as receiver, ExitStack() as stack:
        address, web = receiver.hear()
        if looking:
            stack.callback(_Looking(web).close)
        with Child(kernels.send_batch, address, count, SIZE) as sender:
            figures: Figures = receiver.hear(sender)
            sender.say("done")
        stack.close()
        receiver.say("done")
    return figures


# A broker for tests


def start_brokers(link: Connection) -> None:
    """Start two brokers as the fixture ``faulty_broker`` does; say how long each took."""
    import pytest  # noqa: F401 - what a test has imported already

    from plugins.engines.broker.faults.brokers import FaultyBroker

    times = []
    for _ in range(2):
        with tempfile.TemporaryDirectory() as folder:
            start = time.perf_counter()
            with FaultyBroker(Path(folder) / "broker", {}):
                times.append(time.perf_counter() - start)
    link.send(times)


def _fixture(which: int, scale: float) -> Figures:
    if sys.dont_write_bytecode:
        # The first run would compile all modules each time, which no project's tests do.
        sys.dont_write_bytecode = False
    with Child(start_brokers) as child:
        return {"seconds": child.hear()[which]}


SCENARIO = Scenario(
    name="web_pages",
    sides=(
        Side(SCRAPE, _scrape),
        Side(SCRAPE_AIM, lambda scale: {"cpu": 20.0}),
        Side(ALONE, partial(_feed, False)),
        Side(WATCHED, partial(_feed, True)),
        Side(FIRST, partial(_fixture, 0)),
        Side(LATER, partial(_fixture, 1)),
        Side(FIXTURE_AIM, lambda scale: {"seconds": 0.3}),
    ),
    rows=(
        Row(
            name="web_scrape",
            what=f"processor time of the system for one scrape, {QUEUES:,} queues",
            figure="cpu",
            unit="ms",
            bar="<= 1.0",
            ours=SCRAPE,
            peers=(SCRAPE_AIM,),
        ),
        Row(
            name="web_watched_cpu",
            what=f"a feed of {SIZE} B in batches, with a page open and a scrape a second, and with none; {QUEUES:,} queues",
            figure="cpu",
            unit="ms for a million messages",
            bar="<= 1.02",
            ours=WATCHED,
            peers=(ALONE,),
        ),
        Row(
            name="web_fixture",
            what="from the request for a broker with faults on demand until it is ready, the first of a test run",
            figure="seconds",
            unit="s",
            bar="<= 1.0",
            ours=FIRST,
            peers=(FIXTURE_AIM,),
            also=(LATER,),
        ),
    ),
)
