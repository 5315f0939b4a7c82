"""Roles that send and receive in tasks of trio and of asyncio: the native API, our sockets, and pyzmq."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from multiprocessing.connection import Connection
from typing import Any

import trio

from benchmarks import kernels
from benchmarks.peers import pyzmq_sockets
from benchmarks.processes import WARM
from kernel.sockets import Context
from kernel.topology.system import Kernel

Run = Callable[[Callable[[], Awaitable[Any]]], Any]
"""Runs an asynchronous function to its end."""

RUNS: dict[str, Run] = {"trio": trio.run, "asyncio": lambda main: asyncio.run(main())}  # type: ignore[arg-type, return-value]
"""By the kind of channel."""


def echo(link: Connection, count: int, size: int, kind: str) -> None:
    """Send back what comes."""
    with Kernel(kernels.linked_plan("listen", "backend+tcp://127.0.0.1:0", api=kind)).start() as kernel:
        kernel.wait_running()

        async def main() -> None:
            async with kernel.open("app", kind) as app:
                link.send(f"backend+tcp://{kernel.address_of('link')}")
                for _ in range(WARM + count):
                    await app.send(await app.receive())

        RUNS[kind](main)
        link.recv()


def ask(link: Connection, address: str, count: int, size: int, kind: str) -> None:
    """Send and wait for the answer."""
    with Kernel(kernels.linked_plan("dial", address, api=kind)).start() as kernel:

        async def main() -> None:
            body = b"x" * size
            async with kernel.open("app", kind) as app:

                async def there_and_back() -> None:
                    await app.send(body)
                    await app.receive()

                link.send(await time_awaited(there_and_back, count))

        RUNS[kind](main)
        link.recv()


def sockets_echo(link: Connection, count: int, size: int, kind: str) -> None:
    """Send back what comes, with our sockets for tasks."""

    async def main() -> None:
        with Context() as context:
            async with context.task_socket("REP") as socket:
                link.send(socket.bind("tcp://127.0.0.1:0"))
                for _ in range(WARM + count):
                    await socket.send(await socket.recv())
                link.recv()

    RUNS[kind](main)


def sockets_ask(link: Connection, address: str, count: int, size: int, kind: str) -> None:
    """Ask and wait for the answer, with our sockets for tasks."""

    async def main() -> None:
        with Context() as context:
            async with context.task_socket("REQ") as socket:
                socket.connect(address)
                body = b"x" * size

                async def there_and_back() -> None:
                    await socket.send(body)
                    await socket.recv()

                link.send(await time_awaited(there_and_back, count))
                link.recv()

    RUNS[kind](main)


def pyzmq_echo(link: Connection, count: int, size: int) -> None:
    """Send back what comes, with pyzmq's sockets for asyncio."""
    pyzmq_sockets.require()
    import zmq.asyncio

    async def main() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.REP) as socket:
            port = socket.bind_to_random_port("tcp://127.0.0.1")
            link.send(f"tcp://127.0.0.1:{port}")
            for _ in range(WARM + count):
                await socket.send(await socket.recv())

    asyncio.run(main())


def pyzmq_ask(link: Connection, address: str, count: int, size: int) -> None:
    """Ask and wait for the answer, with pyzmq's sockets for asyncio."""
    pyzmq_sockets.require()
    import zmq.asyncio

    async def main() -> None:
        with zmq.asyncio.Context() as context, context.socket(zmq.REQ) as socket:
            socket.connect(address)
            body = b"x" * size

            async def there_and_back() -> None:
                await socket.send(body)
                await socket.recv()

            link.send(await time_awaited(there_and_back, count))

    asyncio.run(main())


async def time_awaited(call: Callable[[], Awaitable[Any]], count: int) -> list[int]:
    """As ``time_calls``, for what is awaited."""
    clock = time.perf_counter_ns
    for _ in range(WARM):
        await call()
    taken = []
    for _ in range(count):
        start = clock()
        await call()
        taken.append(clock() - start)
    return taken
