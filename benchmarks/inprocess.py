"""Roles that pass messages between two threads of one process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from benchmarks.kernels import BATCH
from benchmarks.peers import pyzmq_sockets
from benchmarks.processes import WARM, Child, Role, time_calls
from benchmarks.scenario import Figures
from kernel.topology.plan import EnginePlan, Plan, RoutePlan
from kernel.topology.system import Kernel

BODY = b"x" * 100

_PLAN = Plan(
    engines=(EnginePlan(name="writer", kind="native"), EnginePlan(name="reader", kind="native")),
    routes=(RoutePlan(source="writer", targets=("reader",)),),
)


_QUESTIONS = Plan(
    engines=_PLAN.engines,
    routes=(
        RoutePlan(source="writer", targets=("reader",)),
        RoutePlan(source="reader", targets=("writer",)),
    ),
)


def measure(role: Role, *arguments: Any) -> Figures:
    """Run a role in a process of its own; it says how many messages a second it moved."""
    with Child(role, *arguments) as child:
        return {"rate": child.hear()}


def channel_single(link: Connection, count: int) -> None:
    """One call a message on both ends of a route."""
    with Kernel(_PLAN) as kernel:
        reader = kernel.open("reader")
        receive = reader.receive

        def write() -> None:
            with kernel.open("writer") as writer:
                send = writer.send
                for _ in range(count):
                    send(BODY)

        link.send(_timed(write, lambda: [receive() for _ in range(count)], count))


def channel_batch(link: Connection, count: int) -> None:
    """Batch calls on both ends of a route."""
    with Kernel(_PLAN) as kernel:
        receive_many = kernel.open("reader").receive_many

        def write() -> None:
            with kernel.open("writer") as writer:
                for _ in range(count // BATCH):
                    writer.send_many([BODY] * BATCH)

        def read() -> None:
            received = 0
            while received < count:
                received += len(receive_many())

        link.send(_timed(write, read, count))


def simple_queue(link: Connection, count: int) -> None:
    """One call a message on both ends of the fastest queue that Python has; it has no water marks."""
    queue: SimpleQueue[bytes] = SimpleQueue()
    put, get = queue.put, queue.get

    def write() -> None:
        for _ in range(count):
            put(BODY)

    link.send(_timed(write, lambda: [get() for _ in range(count)], count))


def wrapped_queue(link: Connection, count: int) -> None:
    """The same behind one Python function on each side: the least that any API written in Python costs."""
    queue: SimpleQueue[bytes] = SimpleQueue()
    queue_put, queue_get = queue.put, queue.get

    def put(body: bytes) -> None:
        queue_put(body)

    def get() -> bytes:
        return queue_get()

    def write() -> None:
        for _ in range(count):
            put(BODY)

    link.send(_timed(write, lambda: [get() for _ in range(count)], count))


def pyzmq_inproc(link: Connection, count: int) -> None:
    """PUSH/PULL over ``inproc``."""
    pyzmq_sockets.require()
    import zmq

    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.bind("inproc://bench")

        def write() -> None:
            with context.socket(zmq.PUSH) as push:
                push.connect("inproc://bench")
                for _ in range(count):
                    push.send(BODY)

        link.send(_timed(write, lambda: [pull.recv() for _ in range(count)], count))


def channel_round_trips(link: Connection, count: int) -> None:
    """A question and its answer between two threads, with ``request`` and ``reply``; say what each took."""
    with Kernel(_QUESTIONS) as kernel:

        def answer() -> None:
            with kernel.open("reader") as reader:
                for _ in range(WARM + count):
                    question = reader.receive_message()
                    reader.reply(question, question.body)

        thread = threading.Thread(target=answer)
        thread.start()
        with kernel.open("writer") as writer:
            request = writer.request
            link.send(time_calls(lambda: request(BODY), count))
        thread.join()


def pyzmq_round_trips(link: Connection, count: int) -> None:
    """The same with REQ and REP over ``inproc``."""
    pyzmq_sockets.require()
    import zmq

    with zmq.Context() as context, context.socket(zmq.REQ) as req:
        req.bind("inproc://bench")

        def answer() -> None:
            with context.socket(zmq.REP) as rep:
                rep.connect("inproc://bench")
                for _ in range(WARM + count):
                    rep.send(rep.recv())

        thread = threading.Thread(target=answer)
        thread.start()

        def there_and_back() -> None:
            req.send(BODY)
            req.recv()

        link.send(time_calls(there_and_back, count))
        thread.join()


def _timed(write: Callable[[], Any], read: Callable[[], Any], count: int) -> float:
    """Return the rate, from before the first message is written until the last one is read.

    Not from the first one *read*, as between processes: the interpreter lets the writer run on for
    milliseconds before the reader sees that one.  For a queue without water marks this time would not count.
    """
    thread = threading.Thread(target=write)
    start = time.perf_counter()
    thread.start()
    read()
    seconds = time.perf_counter() - start
    thread.join()
    return count / seconds
