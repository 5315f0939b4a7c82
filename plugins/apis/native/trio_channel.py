"""Trio channel: the native API for tasks.

Everything that may wait is ``async``, and cancellation loses no message: each call tries the native channel's
call with timeout 0, which takes either everything or nothing, and only waits when that raised ``WouldBlock``.

It belongs to the trio run (and so the thread) that opened it; several tasks may wait in it at a time.  Trio
lets one task wait for a descriptor, so one of them (the watcher) waits for the doorbell, and the others wait
in a parking lot for the watcher.  Whatever changes wakes all of them, and each tries its call again.  A task
that goes away while it is the watcher wakes the others as well: one of them becomes the watcher.

Confirmations are cumulative and belong to the channel, not to a task.  With ``auto_confirm`` a task that asks
for more confirms also what other tasks have received and still process.  Tasks that share the work of a
confirming route therefore need a channel each, or ``auto_confirm = false``.

Every call is a cancellation point.  Only every 64th call that need not wait is a scheduling point too: that
costs a tenth of one at each call, and still lets other tasks run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import trio

from kernel.contracts.errors import KernelClosed, WouldBlock
from kernel.contracts.message import Batch, Buffer, Message
from plugins.apis.native.channel import Channel

_CALLS_BETWEEN_SCHEDULING = 64


class TrioChannel:
    """Send and receive in a trio task.  Usable in ``async with`` and ``async for``."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._calls = 0
        self._lot = trio.lowlevel.ParkingLot()
        self._watch: trio.CancelScope | None = None
        """The scope of the one task that waits for the doorbell; other tasks wait for that task."""
        channel.on_served = self._look_again
        self.name = channel.name
        self.kernel_closed = channel.kernel_closed
        self.dispose = channel.dispose
        self.subscribe = channel.subscribe
        self.unsubscribe = channel.unsubscribe
        self.confirm = channel.confirm
        self.statistics = channel.statistics
        self.close = channel.close

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called; the kernel then forgets the channel."""
        return self._channel.closed

    async def send(self, body: Buffer, *, key: str | None = None) -> None:
        """Send one message; wait while the pipe is full."""
        await self._call(lambda: self._channel.send(body, key=key, timeout=0))

    async def send_many(self, bodies: Sequence[Buffer], *, key: str | None = None) -> None:
        """Send a batch under one envelope."""
        await self._call(lambda: self._channel.send_many(bodies, key=key, timeout=0))

    async def send_message(self, message: Message) -> None:
        """Send a message with an envelope of its own."""
        await self._call(lambda: self._channel.send_message(message, timeout=0))

    async def receive(self) -> Buffer:
        """Return the next body."""
        body: Buffer = await self._call(lambda: self._channel.receive(0))
        return body

    async def receive_many(self, most: int = 1 << 30) -> list[Buffer]:
        """Return what has come, at least one body."""
        bodies: list[Buffer] = await self._call(lambda: self._channel.receive_many(most, 0))
        return bodies

    async def receive_message(self) -> Message:
        """Return the next message with its envelope and parts."""
        message: Message = await self._call(lambda: self._channel.receive_message(0))
        return message

    async def receive_batch(self, most: int = 1 << 30) -> Batch:
        """Return the next messages that share one envelope."""
        batch: Batch = await self._call(lambda: self._channel.receive_batch(most, 0))
        return batch

    async def wait_confirmed(self) -> None:
        """Wait until every destination has confirmed all that was sent on confirming routes."""
        # With 0 it looks once; ``_call`` does the waiting.
        await self._call(lambda: self._channel.wait_confirmed(0))

    async def wait_subscribed(self) -> None:
        """Wait until all subscriptions are in effect at the sources, in this kernel and in those behind it."""
        await self._call(lambda: self._channel.wait_subscribed(0))

    async def _call(self, attempt: Callable[[], Any]) -> Any:
        """Try; if that would block, wait until something has changed, and try again.

        Nothing is taken before a wait.
        """
        # Before the attempt: a checkpoint after it could be cancelled, and the message taken would be lost.
        self._calls += 1
        if self._calls % _CALLS_BETWEEN_SCHEDULING:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()
        while True:
            try:
                return attempt()
            except WouldBlock:
                await self._wait()

    async def _wait(self) -> None:
        """Wait until something has changed."""
        if self._watch is not None:
            await self._lot.park()
            return
        # The scope lets ``_look_again`` end this wait without cancelling the task.
        with trio.CancelScope() as self._watch:
            try:
                await self._watch_bell()
            finally:
                # In any case, also when this task is cancelled: the others would wait for a watcher that has
                # gone.  The first of them that has to wait again becomes the watcher.
                self._watch = None
                self._lot.unpark_all()

    async def _watch_bell(self) -> None:
        channel = self._channel
        caller = channel.caller
        while True:
            # Clear before ``arm``: afterwards it could take away the ring of a post that nobody has seen.
            caller.clear()
            if caller.arm():
                with trio.move_on_after(caller.until_stall_timeout()):
                    await trio.lowlevel.wait_readable(caller.fileno())
            # This thread is awake now: posts need not ring while it processes.  If the task is cancelled in
            # the wait the flag stays set, and a later post rings for nothing, which ``clear`` takes back.
            caller.disarm()
            if channel.serve():
                return

    def _look_again(self) -> None:
        """Wake all waiting tasks: a call of one task has processed the mailbox.

        It took calls for which the watcher would have been woken, so the watcher would sleep on.
        """
        if self._watch is not None:
            self._watch.cancel()
            self._lot.unpark_all()

    def __aiter__(self) -> TrioChannel:
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

    async def __aenter__(self) -> TrioChannel:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.__exit__(kind, error, trace)
