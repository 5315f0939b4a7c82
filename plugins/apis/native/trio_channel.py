"""Trio channel: the native API for trio's tasks (``task_channel.py``).

No task of the application waits for a descriptor; while there is a lease, a system task waits for its socket.
A ring of the doorbell wakes all tasks that wait: at once, if it comes from a task of the same run, such as
that of a guest thread, and otherwise as trio lets other threads do.  Each tries its call again, and arms the
bell before it waits again.

Every call is a cancellation point.  Only every 64th call that need not wait is a scheduling point too.
"""

from __future__ import annotations

import math
from contextlib import suppress
from threading import get_ident

import trio

from kernel.hosting.leased_socket import LeasedSocket
from plugins.apis.native.channel import Channel
from plugins.apis.native.task_channel import CALLS_BETWEEN_SCHEDULING, TaskChannel


class TrioChannel(TaskChannel):
    """Send and receive in a trio task.  Usable in ``async with`` and ``async for``."""

    def __init__(self, channel: Channel) -> None:
        super().__init__(channel)
        self._calls = 0
        self._waiting: dict[trio.lowlevel.Task, None] = {}
        self._token: trio.lowlevel.TrioToken | None = None
        """Of the run in which a task has waited last."""
        self._arming: trio.lowlevel.Task | None = None
        """The task that has armed the bell last, if it may not have parked yet."""
        self._thread = get_ident()
        self._looking = trio.CancelScope()
        channel.on_served = self._look_again
        channel.on_close = self._on_close
        channel.caller.wake_by(self._on_ring)

    async def _begin(self) -> None:
        self._calls += 1
        if self._calls % CALLS_BETWEEN_SCHEDULING:
            await trio.lowlevel.checkpoint_if_cancelled()
        else:
            await trio.lowlevel.checkpoint()

    async def _wait(self) -> None:
        """Wait until something has changed."""
        channel = self._channel
        caller = channel.caller
        task = trio.lowlevel.current_task()
        # Before the flag: once it is set there is one ring, and it has to find both.
        self._token = trio.lowlevel.current_trio_token()
        self._arming = task
        try:
            # The flag of the bell is never taken back here: other tasks may rely on it.  A post that rings
            # for nobody costs one call.
            if not caller.arm():
                channel.serve()
                return
            seconds = caller.until_stall_timeout()
            if seconds == math.inf:
                await self._park(task)
                return
            with trio.move_on_after(seconds):
                await self._park(task)
        finally:
            self._arming = None
        # There is no timer that would do it at the deadline.
        channel.serve()

    async def _park(self, task: trio.lowlevel.Task) -> None:
        waiting = self._waiting
        waiting[task] = None

        def abort(_: object) -> trio.lowlevel.Abort:
            del waiting[task]
            return trio.lowlevel.Abort.SUCCEEDED

        await trio.lowlevel.wait_task_rescheduled(abort)

    def _look_at(self, socket: LeasedSocket) -> None:
        self._token = trio.lowlevel.current_trio_token()
        trio.lowlevel.spawn_system_task(self._on_socket, socket)

    async def _on_socket(self, socket: LeasedSocket) -> None:
        """Wake the tasks when something has come, until the channel is closed or the run ends."""
        try:
            with self._looking:
                while True:
                    await trio.lowlevel.wait_readable(socket.descriptor)
                    socket.take_notice()
                    self._look_again()
        finally:
            socket.close()

    def _on_close(self) -> None:
        """Look at the socket no more, and wake the tasks: they find that it is closed.  Any thread."""
        self._on_ring()
        if self._socket is None:
            return
        if get_ident() == self._thread:
            self._looking.cancel()
        elif self._token is not None:
            # Afterwards no task is left.
            with suppress(trio.RunFinishedError):
                self._token.run_sync_soon(self._looking.cancel)

    def _on_ring(self) -> None:
        """Wake the tasks.  Any thread, and a signal handler too."""
        # Inside of a task of this run nothing sleeps.  Anywhere else trio itself may have to be woken: a
        # signal handler may run while it waits for descriptors.  And one that runs in a task which is about
        # to park would not find it among those that wait: trio calls only after that.
        if (
            get_ident() == self._thread
            and trio.lowlevel.in_trio_task()
            and trio.lowlevel.current_task() is not self._arming
        ):
            self._look_again()
            return
        if self._token is not None:
            try:
                self._token.run_sync_soon(self._look_again, idempotent=True)
            except trio.RunFinishedError:
                # No task is left that could wait.
                pass

    def _look_again(self) -> None:
        """Wake all waiting tasks: something was posted, or a call of one task has processed the mailbox."""
        waiting = self._waiting
        for task in list(waiting):
            # It may be gone: a signal handler may do the same meanwhile.
            if waiting.pop(task, self) is None:
                trio.lowlevel.reschedule(task)
