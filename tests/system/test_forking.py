"""A child that was forked has copies of its parent's kernels: it is told so, and does its parent no harm."""

from __future__ import annotations

import asyncio
import copy
import importlib
import json
import multiprocessing
import os
import pickle
import select
import signal
import socket
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from kernel import EnginePlan, Envelope, Kernel, Plan, ThreadPlan, listen
from kernel.contracts.errors import KernelError, TimedOut
from kernel.hosting import forking
from kernel.hosting.forking import FORKED
from kernel.sockets import Context
from kernel.testing.fixtures import plan_of
from kernel.topology.tap import TapWanted
from tests.system.conftest import route

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork"),
    # Python 3.12 and newer warn of what is tried here.
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning"),
]

SECONDS = 20.0

begun, go_on = threading.Event(), threading.Event()
"""Of the import of a module that takes its time."""
SLOW_MODULE = """
from tests.system.test_forking import begun, go_on
begun.set()
go_on.wait()
done = sum(range(2_000_000))
"""
if hasattr(os, "register_at_fork"):
    # Later than the kernel's, so before them.
    os.register_at_fork(before=go_on.set)


def pair(api: str = "native") -> Plan:
    """Return a plan of two names of applications, with a route between them."""
    return plan_of(
        EnginePlan(name="to", kind="native"), EnginePlan(name="from", kind=api), route("to", "from")
    )


def in_a_child(call: Callable[[], Any]) -> Any:
    """Return what ``call()`` returned in a child that was forked here; it is killed if it hangs."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(reading)
            try:
                said = json.dumps(call())
            except BaseException:
                said = json.dumps({"raised": traceback.format_exc()})
            os.write(writing, said.encode())
        finally:
            os._exit(0)
    os.close(writing)
    try:
        if not select.select([reading], [], [], SECONDS)[0]:
            pytest.fail("the child hangs")
        with open(reading, "rb", closefd=False) as end:
            result = json.loads(end.read())
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
    if isinstance(result, dict) and "raised" in result:
        pytest.fail(result["raised"])
    return result


def refused(calls: dict[str, Callable[[], Any]]) -> list[str]:
    """Return the names of those calls that are not refused for the reason that this is a child."""
    wrong = []
    for name, call in calls.items():
        try:
            call()
        except KernelError as error:
            if FORKED not in str(error):
                wrong.append(f"{name}: {error!r}")
        else:
            wrong.append(f"{name}: not refused")
    return wrong


def test_a_channel_is_refused_in_a_child_and_works_in_the_parent() -> None:
    """What has come already is the parent's as well: the child must not return a copy of it."""
    plan = pair()
    with Kernel(plan) as kernel, kernel.open("to") as sender, kernel.open("from") as receiver:
        sender.send_many([b"1", b"2", b"3"])
        assert receiver.receive() == b"1"

        def child() -> list[str]:
            wrong = refused(
                {
                    "send": lambda: sender.send(b"of the child"),
                    "send again": lambda: sender.send(b"of the child", key="k"),
                    "send_many": lambda: sender.send_many([b"of the child"]),
                    "request": lambda: sender.request(b"?", timeout=5),
                    "receive": receiver.receive,
                    "receive_many": receiver.receive_many,
                    "receive_nowait": receiver.receive_nowait,
                    "subscribe": lambda: receiver.subscribe("#"),
                    "wait_confirmed": sender.wait_confirmed,
                    "open": lambda: kernel.open("to"),
                    "add_engine": lambda: kernel.add_engine(EnginePlan(name="more", kind="native")),
                    "inspect": lambda: kernel.inspect("queues"),
                    "operate": lambda: kernel.operate("to", "tap"),
                    "wait_running": kernel.wait_running,
                    "tap": lambda: kernel.tap(TapWanted(source="to")),
                }
            )
            for channel in (sender, receiver):
                channel.close()
            kernel.close()
            assert kernel.join()
            return wrong

        assert in_a_child(child) == []
        sender.send(b"4")
        assert [receiver.receive(timeout=SECONDS) for _ in range(3)] == [b"2", b"3", b"4"]


def test_a_loop_over_a_channel_ends_in_a_child() -> None:
    """It is in the middle of a batch, of which the parent receives the rest."""
    plan = pair()
    with Kernel(plan) as kernel, kernel.open("to") as sender, kernel.open("from") as receiver:
        sender.send_many([b"1", b"2", b"3"])
        bodies = iter(receiver)
        assert next(bodies) == b"1"
        assert in_a_child(lambda: len(list(bodies))) == 0
        assert [next(bodies), next(bodies)] == [b"2", b"3"]


def test_connections_and_leases_go_on_when_a_child_leaves_the_block_of_the_kernel(tmp_path: Path) -> None:
    """The child closes its copy of the kernel, with a linger; the parent's peer notices nothing of it."""
    place = f"backend+unix://{tmp_path}/place"
    answering = plan_of(
        EnginePlan(name="net", kind="stream", options={"address": place, "mode": "listen"}),
        EnginePlan(name="in", kind="native"),
        route("net", "in"),
        route("in", "net"),
    )
    asking = plan_of(
        EnginePlan(name="net", kind="stream", options={"address": place}),
        EnginePlan(name="out", kind="native"),
        route("out", "net"),
        route("net", "out"),
    )
    with Kernel(answering) as there:
        there.wait_running()
        over = threading.Event()

        def answer() -> None:
            with there.open("in") as channel:
                while not over.is_set():
                    try:
                        channel.send(channel.receive(timeout=0.1))
                    except TimedOut:
                        continue

        thread = threading.Thread(target=answer)
        thread.start()
        try:
            with Kernel(asking) as here, here.open("out") as channel:
                # So many one by one that the channel has a lease.
                for number in range(200):
                    channel.send(b"%d" % number)
                    assert channel.receive(timeout=SECONDS) == b"%d" % number

                def child() -> list[str]:
                    with here, there:
                        pass
                    return refused(
                        {"send": lambda: channel.send(b"of the child"), "receive": channel.receive}
                    )

                assert in_a_child(child) == []
                assert (tmp_path / "place").exists()
                for number in range(200):
                    channel.send(b"%d" % number)
                    assert channel.receive(timeout=SECONDS) == b"%d" % number
        finally:
            over.set()
            thread.join()


def test_a_direct_channel_is_refused_in_a_child_and_stays_connected() -> None:
    options = {"address": "backend+tcp://127.0.0.1:0", "mode": "listen"}
    answering = plan_of(
        EnginePlan(name="net", kind="stream", options=options),
        EnginePlan(name="in", kind="native"),
        route("net", "in"),
    )
    with Kernel(answering) as there:
        there.wait_running()
        address = f"backend+tcp://{there.address_of('net')}"
        direct = plan_of(EnginePlan(name="out", kind="direct", options={"address": address}))
        with Kernel(direct) as here, here.open("out", api="direct") as channel, there.open("in") as receiver:
            channel.send(b"1")

            def child() -> list[str]:
                wrong = refused(
                    {
                        "send": lambda: channel.send(b"of the child"),
                        "receive": channel.receive,
                        "receive, limited": lambda: channel.receive(timeout=1),
                    }
                )
                channel.close()
                return wrong

            assert in_a_child(child) == []
            channel.send(b"2")
            assert [receiver.receive(timeout=SECONDS) for _ in range(2)] == [b"1", b"2"]


def test_sockets_are_refused_in_a_child_and_a_new_context_works_there() -> None:
    with Context() as context, context.socket("PULL") as pull, context.socket("PUSH") as push:
        push.connect(pull.bind("tcp://127.0.0.1:0"))
        for body in (b"1", b"2"):
            push.send(body)
        assert pull.recv() == b"1"

        def child() -> list[str]:
            wrong = refused(
                {
                    "send": lambda: push.send(b"of the child"),
                    "recv": lambda: pull.recv(timeout=5),
                    "socket": lambda: context.socket("PUSH"),
                }
            )
            pull.close()
            context.close()
            with Context() as own, own.socket("PULL") as mine, own.socket("PUSH") as other:
                other.connect(mine.bind("tcp://127.0.0.1:0"))
                other.send(b"own")
                assert mine.recv(timeout=SECONDS) == b"own"
            return wrong

        assert in_a_child(child) == []
        push.send(b"3")
        assert [pull.recv(timeout=SECONDS) for _ in range(2)] == [b"2", b"3"]


def test_a_client_of_a_broker_is_refused_in_a_child(tmp_path: Path) -> None:
    """The broker keeps its store, its listener, and what runs in a process."""
    plan = plan_of(
        ThreadPlan(name="here"),
        ThreadPlan(name="apart", kind="process"),
        EnginePlan(
            name="broker",
            kind="amqp",
            thread="here",
            options={"address": "127.0.0.1:0", "data_dir": str(tmp_path)},
        ),
        EnginePlan(name="client", kind="broker-client", options={"broker": "broker"}),
        EnginePlan(name="hub", kind="hub", thread="apart"),
    )
    with Kernel(plan) as kernel, kernel.open("client", api="broker-client") as client:
        kernel.wait_running(SECONDS)
        client.declare_queue("q", durable=True)

        def child() -> list[str]:
            wrong = refused(
                {
                    "publish": lambda: client.publish(b"of the child", Envelope(key="q")),
                    "get": lambda: client.get("q"),
                    "declare": lambda: client.declare_queue("r"),
                }
            )
            client.close()
            kernel.close()
            kernel.join()
            return wrong

        assert in_a_child(child) == []
        client.publish(b"of the parent", Envelope(key="q"))
        delivery = client.get("q")
        assert delivery is not None
        assert delivery.body == b"of the parent"
        host, _, port = kernel.address_of("broker").rpartition(":")
        socket.create_connection((host, int(port))).close()
        assert all(state.state == "running" for state in kernel.engine_states())


def test_what_has_threads_and_sockets_is_neither_copied_nor_passed_to_a_process_that_is_not_forked() -> None:
    """``multiprocessing`` pickles what it passes on, where it does not fork."""

    async def channels() -> None:
        async with Kernel(pair("asyncio")) as kernel, kernel.open("from") as channel:
            things.append(channel)
            refuse_all()

    def refuse_all() -> None:
        for thing in things:
            name = type(thing).__name__
            for way in (pickle.dumps, copy.copy, copy.deepcopy):
                with pytest.raises(TypeError, match=f"this {name} has threads and sockets of its process"):
                    way(thing)

    plan = plan_of(
        EnginePlan(name="broker", kind="broker"),
        EnginePlan(name="client", kind="broker-client", options={"broker": "broker"}),
        EnginePlan(name="app", kind="native"),
        route("broker", "app"),
    )
    with (
        Kernel(plan) as system,
        system.open("app") as app,
        system.open("client", api="broker-client") as client,
        listen("127.0.0.1:0") as direct,
        Context() as context,
    ):
        things: list[Any] = [system, app, client, direct, context, context.socket("PAIR")]
        asyncio.run(channels())


def test_the_bell_of_a_channel_for_asyncio_stays_watched_in_the_parent() -> None:
    """The loop's epoll is the child's as well: a child that takes a descriptor out takes it from the parent."""
    plan = pair("asyncio")

    async def main() -> None:
        with Kernel(plan) as kernel, kernel.open("to") as sender:
            async with kernel.open("from", api="asyncio") as receiver:

                def child() -> list[str]:
                    wrong = refused({"receive_nowait": receiver.receive_nowait})
                    receiver.close()
                    return wrong

                waiting = asyncio.ensure_future(receiver.receive())
                await asyncio.sleep(0)
                assert in_a_child(child) == []
                sender.send(b"1")
                assert await asyncio.wait_for(waiting, SECONDS) == b"1"

    asyncio.run(main())


def test_a_kernel_that_was_not_started_starts_in_a_child() -> None:
    """A server that makes its kernel before it forks its workers starts it in each of them."""
    kernel = Kernel(pair())

    def child() -> str:
        with kernel, kernel.open("to") as sender, kernel.open("from") as receiver:
            sender.send(b"own")
            return bytes(receiver.receive(timeout=SECONDS)).decode()

    assert in_a_child(child) == "own"


def test_a_fork_waits_for_no_lock_that_another_thread_holds() -> None:
    plan = pair()
    with Kernel(plan) as kernel, kernel.open("to") as sender:
        held, release = threading.Event(), threading.Event()

        def hold() -> None:
            with kernel._parts.changing, kernel._lock, kernel._dispatcher._lock:
                held.set()
                release.wait()

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait()
        try:

            def child() -> list[str]:
                sender.close()
                kernel.close()
                kernel.join()
                return refused({"remove_engine": lambda: kernel.remove_engine("to")})

            assert in_a_child(child) == []
        finally:
            release.set()
            thread.join()


def test_a_pool_of_forked_workers_is_used_beside_a_kernel() -> None:
    """As an application does that has never heard of this: its workers do not touch the kernel."""
    plan = pair()
    with Kernel(plan) as kernel, kernel.open("to") as sender, kernel.open("from") as receiver:
        with multiprocessing.get_context("fork").Pool(2) as pool:
            for body in pool.map(str, range(100)):
                sender.send(body.encode())
        assert [receiver.receive(timeout=SECONDS) for _ in range(100)] == [b"%d" % n for n in range(100)]


def test_a_channel_that_another_thread_has_opened_is_refused_as_everywhere() -> None:
    plan = pair()
    with Kernel(plan) as kernel, kernel.open("to") as sender:
        found: list[Any] = []

        def fork() -> None:
            def child() -> str:
                try:
                    sender.send_many([b"of the child"])
                except KernelError as error:
                    return type(error).__name__
                return ""

            found.append(in_a_child(child))

        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
        assert found == ["WrongThread"]


def test_a_fork_waits_for_an_import_in_a_thread_of_the_kernel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would give back the lock of the module in the child.  Seen in the controller of ipyparallel."""
    (tmp_path / "a_slow_module.py").write_text(SLOW_MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    begun.clear()
    go_on.clear()
    with Kernel(pair()) as kernel:
        (thread,) = kernel._threads()
        thread.mailbox.post(lambda: importlib.import_module("a_slow_module"))
        assert begun.wait(SECONDS)
        done = in_a_child(lambda: importlib.import_module("a_slow_module").done)
    assert done == sum(range(2_000_000))


def test_a_fork_waits_only_so_long_for_a_thread_at_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forking, "LONGEST_HOLD", 0.0)
    at_work, over = threading.Event(), threading.Event()

    def work() -> None:
        at_work.set()
        over.wait()

    with Kernel(pair()) as kernel, kernel.open("to") as sender, kernel.open("from") as receiver:
        (thread,) = kernel._threads()
        thread.mailbox.post(work)
        assert at_work.wait(SECONDS)
        assert in_a_child(lambda: 1) == 1
        over.set()
        sender.send(b"on it goes")
        assert receiver.receive(timeout=SECONDS) == b"on it goes"


def test_a_thread_of_the_kernel_may_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not held itself."""
    monkeypatch.setattr(forking, "LONGEST_HOLD", 10 * SECONDS)
    said: Queue[int] = Queue()
    with Kernel(pair()) as kernel:
        (thread,) = kernel._threads()
        thread.mailbox.post(lambda: said.put(in_a_child(lambda: 2)))
        assert said.get(timeout=SECONDS) == 2
