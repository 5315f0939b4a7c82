"""Sockets for tasks of trio and of asyncio: the same calls, ``async`` where they may wait.

Each call tries that of the blocking socket with timeout 0, which takes everything or nothing, and waits only
if that would block.  So a task that is cancelled loses no message.  Whatever changes wakes all tasks that
wait, and each tries its call again.

The thread that wakes this one calls ``_loop.wake_soon``, which has the loop call ``_changed``.  The order of
steps is that of every wait: attempt; ``arm``, which looks once more at what was posted; wait.

A task that receives one message, sends one, and so on, gets a lease of its connection, as a thread does
(docs/decisions/0046-leases.md).  The loop then watches the socket as well.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from kernel.contracts.api import NOT_YET, Lease
from kernel.contracts.errors import KernelClosed, KernelError, WouldBlock
from kernel.contracts.message import Buffer
from kernel.hosting.leased_socket import LeasedSocket
from plugins.apis.sockets.end import End
from plugins.apis.sockets.errors import Again, SocketClosed
from plugins.apis.sockets.monitor import Monitor, SocketEvent
from plugins.apis.sockets.socket import ALL, Socket
from plugins.apis.sockets.statistics import SocketStatistics

CALLS_BETWEEN_SCHEDULING = 64
"""Calls that need not wait, of which one lets other tasks run."""

T = TypeVar("T")


class Loop(Protocol):
    """What is needed of an event loop."""

    def event(self) -> Any:
        """Return an event with ``set`` and an async ``wait``."""
        ...

    def wake_soon(self, callback: Callable[[], Any]) -> None:
        """Have the loop call ``callback``.  Any thread."""
        ...

    async def pause(self, *, others: bool) -> None:
        """Raise if the task is cancelled; let other tasks run if ``others``."""
        ...

    def watch(self, socket: LeasedSocket, callback: Callable[[], Any]) -> Callable[[], Any]:
        """Call ``callback`` whenever the socket is readable; return what ends that, and closes it."""
        ...


class _Trio:
    def __init__(self) -> None:
        import trio

        self._trio = trio
        self._token = trio.lowlevel.current_trio_token()

    def event(self) -> Any:
        return self._trio.Event()

    def wake_soon(self, callback: Callable[[], Any]) -> None:
        try:
            self._token.run_sync_soon(callback, idempotent=True)
        except self._trio.RunFinishedError:
            return

    async def pause(self, *, others: bool) -> None:
        if others:
            await self._trio.lowlevel.checkpoint()
        else:
            await self._trio.lowlevel.checkpoint_if_cancelled()

    def watch(self, socket: LeasedSocket, callback: Callable[[], Any]) -> Callable[[], Any]:
        looking = self._trio.CancelScope()

        async def look() -> None:
            try:
                with looking:
                    while True:
                        await self._trio.lowlevel.wait_readable(socket.descriptor)
                        callback()
            finally:
                socket.close()

        self._trio.lowlevel.spawn_system_task(look)
        return looking.cancel


class _Asyncio:
    def __init__(self) -> None:
        import asyncio

        self._asyncio = asyncio
        self._running = asyncio.get_running_loop()

    def event(self) -> Any:
        return self._asyncio.Event()

    def wake_soon(self, callback: Callable[[], Any]) -> None:
        try:
            self._running.call_soon_threadsafe(callback)
        except RuntimeError:  # the loop is closed
            return

    async def pause(self, *, others: bool) -> None:
        if others:
            await self._asyncio.sleep(0)

    def watch(self, socket: LeasedSocket, callback: Callable[[], Any]) -> Callable[[], Any]:
        running = self._running
        running.add_reader(socket.descriptor, callback)

        def stop() -> None:
            # A loop that is closed watches nothing any more.
            if not running.is_closed():
                running.remove_reader(socket.descriptor)
            socket.close()

        return stop


def running_loop() -> Loop:
    """Return the event loop that runs in this thread."""
    # Neither is imported for the question: whoever runs in one of them has imported it.
    trio, asyncio = sys.modules.get("trio"), sys.modules.get("asyncio")
    if trio is not None and trio.lowlevel.in_trio_task():
        return _Trio()
    if asyncio is not None and asyncio._get_running_loop() is not None:
        return _Asyncio()
    raise KernelError(
        "a socket for tasks is made in a task of trio or asyncio; context.socket is for plain threads"
    )


class TaskMonitor:
    """The events of a socket for tasks.

    ``TaskSocket.monitor`` makes it; an ``async for`` ends with the socket.
    """

    def __init__(self, monitor: Monitor, loop: Loop) -> None:
        self._monitor = monitor
        self._loop = loop
        self._event: Any = None
        monitor.on_change = lambda: loop.wake_soon(self._changed)

    def _changed(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    async def recv(self) -> SocketEvent:
        """Return the next event; ``SocketClosed`` when the socket is closed."""
        await self._loop.pause(others=True)
        while True:
            if self._event is None:
                self._event = self._loop.event()
            event = self._event
            # Behind the event: what happens from here on sets it.
            try:
                return self._monitor.recv(timeout=0)
            except Again:
                await event.wait()

    @property
    def dropped(self) -> int:
        """Events that were dropped because nobody has asked for them."""
        return self._monitor.dropped

    def close(self) -> None:
        """End it: tasks that wait raise ``SocketClosed``."""
        self._monitor.close()

    def __aiter__(self) -> Self:
        """Return events until the socket, its context or the monitor is closed."""
        return self

    async def __anext__(self) -> SocketEvent:
        try:
            return await self.recv()
        except SocketClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class TaskSocket:
    """A socket of ØMQ for tasks of one event loop.  ``Context.task_socket`` makes it."""

    def __init__(self, socket: Socket, end: End, loop: Loop) -> None:
        self.socket: Socket = socket
        """The blocking socket; its calls that need not wait are there: ``subscribe``, ``options`` ..."""
        self.name: str = socket.name
        self.options = socket.options
        self._end = end
        self._loop = loop
        self._calls = 0
        self._event: Any = None
        self._leased: LeasedSocket | None = None
        """What the loop watches beside the bell; None: there was no lease."""
        self._stop_watching: Callable[[], Any] = lambda: None
        end.caller.wake_by(lambda: loop.wake_soon(self._changed))

    def _changed(self) -> None:
        """Something has come: let all tasks that wait try again."""
        if not self._end.closed:
            self._end.serve()
        self._wake()

    def _wake(self) -> None:
        if self._event is not None:
            self._event.set()
            self._event = None

    def _next_event(self) -> Any:
        """Return what ``_wake`` sets."""
        if self._event is None:
            self._event = self._loop.event()
        return self._event

    async def _begin(self) -> None:
        """Before an attempt: a task that is cancelled after it would lose the message that it has taken."""
        self._calls += 1
        await self._loop.pause(others=not self._calls % CALLS_BETWEEN_SCHEDULING)

    async def _call(self, attempt: Callable[[], T]) -> T:
        await self._begin()
        while True:
            try:
                return attempt()
            except WouldBlock:
                event = self._next_event()
                # False: something was posted since the attempt, so it may succeed now.
                if self._end.arm():
                    await event.wait()

    async def _receive_leased(self) -> bytes | None:
        """Receive with the lease that there is; None: receive in the usual way, with ``_receive``."""
        await self._begin()
        while (body := self.socket._recv_leased()) is NOT_YET:
            event = self._next_event()
            self._watch(self._end.leased)
            await event.wait()
        # No call from here on, where a handler of a signal could raise: the message would be lost.
        return body  # type: ignore[no-any-return]

    async def _receive(self, attempt: Callable[[], T]) -> T:
        """As ``_call``, behind ``_receive_leased``: a task that waits so again and again gets a lease."""
        end = self._end
        while True:
            try:
                return attempt()
            except WouldBlock:
                event = self._next_event()
                if end.arm_to_receive():
                    await event.wait()
                # Before the attempt, which takes what has come.
                end.waited()

    def _watch(self, lease: Lease | None) -> None:
        if self._leased is None:
            self._leased = LeasedSocket()
            self._stop_watching = self._loop.watch(self._leased, self._came)
        self._leased.watch(lease)

    def _came(self) -> None:
        """Something has come to the socket of the lease."""
        if self._leased is not None:
            self._leased.take_notice()
        self._wake()

    async def send(self, body: Buffer) -> None:
        """Send a message of one part; wait for room."""
        await self._call(lambda: self.socket.send(body, timeout=0))

    async def send_multipart(self, parts: Sequence[Buffer]) -> None:
        """Send a message of several parts."""
        await self._call(lambda: self.socket.send_multipart(parts, timeout=0))

    async def send_many(self, bodies: Sequence[Buffer]) -> None:
        """Send messages of one part each."""
        await self._call(lambda: self.socket.send_many(bodies, timeout=0))

    async def send_to(self, routing_id: int, body: Buffer) -> None:
        """SERVER: send a message to the peer that ``recv_from`` has named."""
        await self._call(lambda: self.socket.send_to(routing_id, body, timeout=0))

    async def send_group(self, group: bytes | str, body: Buffer) -> None:
        """RADIO: send a message to every DISH that has joined a group."""
        await self._call(lambda: self.socket.send_group(group, body))

    async def recv_from(self) -> tuple[int, bytes]:
        """SERVER: return the routing id of the peer and its message."""
        return await self._call(lambda: self.socket.recv_from(timeout=0))

    async def recv_group(self) -> tuple[bytes, bytes]:
        """DISH: return the group of the next message, and the message."""
        return await self._call(lambda: self.socket.recv_group(timeout=0))

    async def recv(self) -> bytes:
        """Return the next message, or the next part of one of several."""
        body = await self._receive_leased()
        if body is not None:
            return body
        return await self._receive(lambda: self.socket.recv(timeout=0))

    async def recv_multipart(self) -> list[bytes]:
        """Return all parts of the next message."""
        body = await self._receive_leased()
        if body is not None:
            return [body]
        return await self._receive(lambda: self.socket.recv_multipart(timeout=0))

    async def recv_many(self, most: int = ALL) -> list[bytes]:
        """Return messages of one part that have come, at least one."""
        return await self._call(lambda: self.socket.recv_many(most, timeout=0))

    async def recv_multipart_many(self, most: int = ALL) -> list[list[bytes]]:
        """Return messages with all of their parts, at least one."""
        return await self._call(lambda: self.socket.recv_multipart_many(most, timeout=0))

    async def wait_for_subscribers(self, count: int = 1, topic: bytes | str | None = None) -> None:
        """PUB and XPUB: wait until ``count`` peers would get a message that begins with ``topic``."""
        await self._call(lambda: self.socket.wait_for_subscribers(count, topic, timeout=0))

    def monitor(self) -> TaskMonitor:
        """Return what happens to places and connections from now on, as a stream of ``SocketEvent``."""
        return TaskMonitor(self.socket.monitor(), self._loop)

    def bind(self, place: str) -> str:
        """Listen at a place; return it.  It takes about as long as a system call."""
        return self.socket.bind(place)

    def connect(self, place: str) -> str:
        """Connect to a place; does not wait for the peer."""
        return self.socket.connect(place)

    def connect_peer(self, place: str, identity: bytes = b"") -> bytes:
        """ROUTER and STREAM: connect to a peer, and return its identity; messages can go to it at once."""
        return self.socket.connect_peer(place, identity)

    def subscribe(self, prefix: bytes | str = b"") -> None:
        """SUB and XSUB: ask for messages that begin with ``prefix``."""
        self.socket.subscribe(prefix)

    def unsubscribe(self, prefix: bytes | str = b"") -> None:
        """Take a subscription back."""
        self.socket.unsubscribe(prefix)

    def join(self, group: bytes | str) -> None:
        """DISH: ask for messages of a group."""
        self.socket.join(group)

    def leave(self, group: bytes | str) -> None:
        """DISH: take a ``join`` back."""
        self.socket.leave(group)

    def statistics(self) -> SocketStatistics:
        """Return the figures of each peer."""
        return self.socket.statistics()

    def close(self) -> None:
        """Close it; tasks that wait raise ``SocketClosed``."""
        self._end.caller.wake_by(None)
        self.socket.close()
        self._changed()
        self._stop_watching()
        self._leased, self._stop_watching = None, lambda: None

    def __aiter__(self) -> Self:
        """Receive for ever; ends when the socket or its context is closed."""
        return self

    async def __anext__(self) -> bytes:
        try:
            return await self.recv()
        except (KernelClosed, SocketClosed):
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<TaskSocket {self.name}>"
