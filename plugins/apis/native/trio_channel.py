"""Trio channel: the native API for trio's tasks (``task_channel.py``).

Trio lets one task wait for a descriptor, so one of the waiting tasks (the watcher) waits for the doorbell, and
the others wait in a parking lot for the watcher.  A task that goes away while it is the watcher wakes the
others as well: one of them becomes the watcher.

Every call is a cancellation point.  Only every 64th call that need not wait is a scheduling point too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import trio

from kernel.contracts.errors import WouldBlock
from plugins.apis.native.channel import Channel
from plugins.apis.native.task_channel import CALLS_BETWEEN_SCHEDULING, TaskChannel


class TrioChannel(TaskChannel):
    """Send and receive in a trio task.  Usable in ``async with`` and ``async for``."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._calls = 0
        self._lot = trio.lowlevel.ParkingLot()
        self._watch: trio.CancelScope | None = None
        """The scope of the one task that waits for the doorbell; other tasks wait for that task."""
        channel.on_served = self._look_again

    async def _call(self, attempt: Callable[[], Any]) -> Any:
        # Before the attempt: a checkpoint after it could be cancelled, and the message taken would be lost.
        self._calls += 1
        if self._calls % CALLS_BETWEEN_SCHEDULING:
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
