"""Asyncio channel: the native API for asyncio's tasks (``task_channel.py``), without a thread of its own.

The loop watches the doorbell of the channel's thread while the channel is open (``loop.add_reader``).  An
attempt that raised ``WouldBlock`` has left the bell armed, so the next post of another thread makes its
descriptor readable.  The loop then has the mailbox processed, and all waiting tasks try again.

The descriptor is a duplicate.  A kernel that is closed by another thread closes the bell's descriptor there,
and its number may be used again while the loop still has it.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading

from kernel.contracts.errors import KernelError, WrongThread
from kernel.hosting.leased_socket import LeasedSocket
from plugins.apis.native.channel import Channel
from plugins.apis.native.task_channel import CALLS_BETWEEN_SCHEDULING, TaskChannel


class AsyncioChannel(TaskChannel):
    """Send and receive in an asyncio task.  Usable in ``async with`` and ``async for``."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._loop = running_loop(channel.name)
        self._calls = 0
        self._waiting: set[asyncio.Future[None]] = set()
        self._descriptor = os.dup(channel.caller.fileno())
        self._loop.add_reader(self._descriptor, self._on_bell)
        self._thread = threading.get_ident()
        channel.on_served = self._wake_all
        channel.on_close = self._on_close

    async def _begin(self) -> None:
        self._calls += 1
        if not self._calls % CALLS_BETWEEN_SCHEDULING:
            await asyncio.sleep(0)

    async def _wait(self) -> None:
        """Wait until something has changed.  The bell is armed: an attempt has just raised ``WouldBlock``."""
        loop = self._loop
        if asyncio.get_running_loop() is not loop:
            raise WrongThread(
                f"channel {self.name!r} belongs to the event loop that opened it: open another channel of this "
                "name in the loop that uses it"
            )
        seconds = self._channel.caller.until_stall_timeout()
        timer = loop.call_later(seconds, self._on_time) if seconds < math.inf else None
        woken = loop.create_future()
        self._waiting.add(woken)
        try:
            await woken
        finally:
            self._waiting.discard(woken)
            if timer is not None:
                timer.cancel()

    def _look_at(self, socket: LeasedSocket) -> None:
        self._loop.add_reader(socket.descriptor, self._on_socket, socket)

    def _on_socket(self, socket: LeasedSocket) -> None:
        """Called by the loop."""
        socket.take_notice()
        self._wake_all()

    def _on_bell(self) -> None:
        """Process what other threads have posted.  Called by the loop."""
        # First: a ring that comes later is for something that may not be processed here.
        self._channel.caller.clear()
        self._channel.serve()
        # Also if there was nothing: another call has processed it, and those who wait have to arm the bell.
        self._wake_all()

    def _on_time(self) -> None:
        """A stall timeout is over: somebody who waits to send may go on."""
        self._channel.serve()
        self._wake_all()

    def _wake_all(self) -> None:
        for woken in self._waiting:
            if not woken.done():
                woken.set_result(None)

    def _on_close(self) -> None:
        """Watch the bell no more: the next channel uses it again."""
        if threading.get_ident() == self._thread:
            self._stop_watching()
            # Tasks that wait in a call find that the channel is closed.
            self._wake_all()
            return
        try:
            # The kernel has ended in another thread. Only the loop's own may change what the loop watches.
            self._loop.call_soon_threadsafe(self._over)
        except RuntimeError:  # the loop is closed, and watches nothing any more
            self._close_descriptor()

    def _over(self) -> None:
        """Called by the loop.  The ring for the end may not have been seen yet, and nobody looks for it."""
        self._stop_watching()
        self._wake_all()

    def _stop_watching(self) -> None:
        if self._descriptor >= 0 and not self._loop.is_closed():
            self._loop.remove_reader(self._descriptor)
            if self._socket is not None:
                self._loop.remove_reader(self._socket.descriptor)
        self._close_descriptor()

    def _close_descriptor(self) -> None:
        if self._descriptor >= 0:
            descriptor, self._descriptor = self._descriptor, -1
            os.close(descriptor)
            if self._socket is not None:
                self._socket.close()


def running_loop(name: str) -> asyncio.AbstractEventLoop:
    """Return the loop that runs in this thread; ``KernelError`` if none does."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        raise KernelError(
            f"cannot open {name!r}: a channel of kind 'asyncio' belongs to a running event loop, so open it in a "
            "coroutine; kind 'native' is for plain threads"
        ) from None
