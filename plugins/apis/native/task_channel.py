"""Task channel: the native API for tasks of an event loop; what those of trio and asyncio have in common.

Everything that may wait is ``async``, and cancellation loses no message: each call tries the native channel's
call with timeout 0, which takes either everything or nothing, and only waits when that raised ``WouldBlock``.
Waiting is what the loops do differently (``_call``).

It belongs to the loop (and so the thread) that opened it; several tasks may wait in it at a time.  Whatever
changes wakes all of them, and each tries its call again.

Confirmations are cumulative and belong to the channel, not to a task.  With ``auto_confirm`` a task that asks
for more confirms also what other tasks have received and still process.  Tasks that share the work of a
confirming route therefore need a channel each, or ``auto_confirm = false``.

A task that receives one message, sends one, and so on, gets a lease of its connection, as a thread does
(docs/decisions/0046-leases.md).  The loop then watches the socket as well
(``kernel/hosting/leased_socket.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

from kernel.contracts.api import NOT_YET, Lease
from kernel.contracts.errors import KernelClosed, WouldBlock
from kernel.contracts.message import Batch, Buffer, Message
from kernel.hosting.forking import OfThisProcess
from kernel.hosting.leased_socket import LeasedSocket
from plugins.apis.native.channel import ALL, Channel

CALLS_BETWEEN_SCHEDULING = 64
"""Calls that need not wait, of which one lets other tasks run: that costs a tenth of one at each call."""


class TaskChannel(OfThisProcess, ABC):
    """Send and receive in a task.  Usable in ``async with`` and ``async for``."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self.name = channel.name
        self.kernel_closed = channel.kernel_closed
        self.send_nowait = channel.send_nowait
        self.receive_nowait = channel.receive_nowait
        self.subscribe = channel.subscribe
        self.unsubscribe = channel.unsubscribe
        self.confirm = channel.confirm
        self.has_something = channel.has_something
        self.all_confirmed = channel.all_confirmed
        self.statistics = channel.statistics
        self.close = channel.close
        self.dispose = channel.dispose
        self._socket: LeasedSocket | None = None
        """That of the lease; None: there was none."""

    @abstractmethod
    async def _begin(self) -> None:
        """A call begins: let other tasks run from time to time."""

    @abstractmethod
    async def _wait(self) -> None:
        """Wait until something has changed, behind an attempt that would have blocked."""

    @abstractmethod
    def _look_at(self, socket: LeasedSocket) -> None:
        """Have waiting tasks woken from now on when something comes to this socket."""

    async def _call(self, attempt: Callable[[], Any]) -> Any:
        """Try; if that would block, wait until something has changed, and try again.

        Nothing is taken before a wait.
        """
        # Not behind the attempt: a task that is cancelled there would lose the message that it has taken.
        await self._begin()
        while True:
            try:
                return attempt()
            except WouldBlock:
                await self._wait()

    async def _send(self, attempt: Callable[[], None]) -> None:
        """Try to send, as ``_call`` does; warn if there is nowhere to send to."""

        def warned() -> None:
            try:
                attempt()
            except WouldBlock:
                self._channel.warn_without_route()
                raise

        await self._call(warned)

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called; the kernel then forgets the channel."""
        return self._channel.closed

    async def send(
        self, body: Buffer, *, key: str | None = None, headers: Mapping[str, Any] | None = None
    ) -> None:
        """Send one message; wait while the pipe is full."""
        if headers is None:
            await self._send(lambda: self._channel.send(body, key=key, timeout=0))
        else:
            await self._send(lambda: self._channel.send(body, key=key, headers=headers, timeout=0))

    async def send_many(
        self, bodies: Sequence[Buffer], *, key: str | None = None, headers: Mapping[str, Any] | None = None
    ) -> None:
        """Send a batch under one envelope."""
        await self._send(lambda: self._channel.send_many(bodies, key=key, headers=headers, timeout=0))

    async def send_parts(
        self, parts: Sequence[Buffer], *, key: str | None = None, headers: Mapping[str, Any] | None = None
    ) -> None:
        """Send one message of several parts, which arrive together or not at all."""
        await self._send(lambda: self._channel.send_parts(parts, key=key, headers=headers, timeout=0))

    async def send_message(self, message: Message) -> None:
        """Send a message with an envelope of its own."""
        await self._send(lambda: self._channel.send_message(message, timeout=0))

    async def send_batches(self, batches: Iterable[Batch]) -> None:
        """Send batches: the form in which the kernel itself passes messages on."""
        # One by one: an attempt that waits before the second batch must not send the first one again.
        for batch in batches:
            await self._send(partial(self._channel.send_batches, (batch,), timeout=0))

    async def reply(self, message: Message, body: Buffer) -> None:
        """Answer a message: back to where it came from, on a route with ``router = "reply"``."""
        await self._send(lambda: self._channel.reply(message, body, timeout=0))

    async def request(
        self, body: Buffer, *, key: str | None = None, headers: Mapping[str, Any] | None = None
    ) -> Message:
        """Send a question and return its answer, which comes on a route with ``router = "reply"``.

        Several tasks may ask at the same time.  Messages that are no answers wait for ``receive``.
        """
        number: str = ""

        def ask() -> None:
            nonlocal number
            number = self._channel.ask(body, key, 0, headers)

        await self._send(ask)
        try:
            answer: Message = await self._call(lambda: self._channel.answer(number, 0))
        finally:
            self._channel.forget(number)
        return answer

    async def receive(self) -> Buffer:
        """Return the next body."""
        channel = self._channel
        await self._begin()
        if channel.leased is not None:
            while (body := channel.receive_leased()) is NOT_YET:
                self._watch(channel.leased)
                await self._wait()
            if body is not None:
                return body  # type: ignore[no-any-return]
        waited = False
        while True:
            try:
                received = channel.receive(0)
                break
            except WouldBlock:
                await self._wait()
                waited = True
        if waited:
            channel.waited()
        return received

    def _watch(self, lease: Lease | None) -> None:
        if self._socket is None:
            self._socket = LeasedSocket()
            self._look_at(self._socket)
        self._socket.watch(lease)

    async def receive_many(self, most: int = ALL) -> list[Buffer]:
        """Return what has come, at least one body."""
        bodies: list[Buffer] = await self._call(lambda: self._channel.receive_many(most, 0))
        return bodies

    async def receive_message(self) -> Message:
        """Return the next message with its envelope and parts."""
        message: Message = await self._call(lambda: self._channel.receive_message(0))
        return message

    async def receive_batch(self, most: int = ALL) -> Batch:
        """Return the next messages that share one envelope."""
        batch: Batch = await self._call(lambda: self._channel.receive_batch(most, 0))
        return batch

    async def wait_confirmed(self) -> None:
        """Wait until every destination has confirmed all that was sent on confirming routes."""
        # With 0 it looks once; ``_call`` does the waiting.
        await self._call(lambda: self._channel.wait_confirmed(0))

    async def wait_subscribed(self) -> None:
        """Wait until all subscriptions are in effect at the sources, in this kernel and behind it."""
        await self._call(lambda: self._channel.wait_subscribed(0))

    def __aiter__(self) -> Self:
        """Receive for ever; ends when the kernel is closed.

        This is no generator, so that a loop may be left by ``break``: an async generator that is left has to
        be finalized by somebody.
        """
        return self

    async def __anext__(self) -> Buffer:
        try:
            return await self.receive()
        except KernelClosed:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name} {'closed' if self.closed else 'open'}>"
