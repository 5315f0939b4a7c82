"""Tapping: serves one watcher of messages at the control socket.

The answer has a line for each message (``message``), a line with the sum so far when messages were dropped
(``dropped``), and a last one (``end``).  It ends when the watcher has gone, when it has what it wanted, or
when the kernel closes.
"""

from __future__ import annotations

import contextlib
import socket
import time
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from kernel.contracts.errors import KernelError
from kernel.topology.answers import as_json
from kernel.topology.tap import Tap, TapEnd, TapWanted

if TYPE_CHECKING:
    from kernel.topology.system import Kernel

_LOOK = 0.25
"""Seconds after which the watcher is looked for, while no message passes."""
_TELL_DROPPED = 1.0
"""Seconds between two lines that tell how many were dropped."""


class TapRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The argument of a request ``tap``."""

    watch: TapWanted
    limit: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """End after so many messages."""
    seconds: Annotated[float, msgspec.Meta(ge=0)] | None = None
    """End after so long."""


class Watcher:
    """One watcher.  Its thread calls ``serve``; ``stop`` is for any thread."""

    def __init__(self, kernel: Kernel, connection: socket.socket, argument: Any) -> None:
        self._kernel = kernel
        self._connection = connection
        self._argument = argument
        self._stopped = False
        self._shown = 0

    def serve(self) -> None:
        """Answer until the end, and close the connection."""
        with self._connection as connection:
            # A watcher may stop reading for as long as it likes: messages are dropped meanwhile.  ``stop``
            # ends the wait.
            connection.settimeout(None)
            with contextlib.suppress(OSError):
                try:
                    request = msgspec.convert(self._argument, TapRequest)
                    tap = self._kernel.tap(request.watch)
                except (KernelError, msgspec.ValidationError, ValueError) as error:
                    self._write({"error": str(error)})
                    return
                try:
                    self._watch(tap, request)
                finally:
                    tap.close()

    def stop(self) -> None:
        """End it: the control socket is closed."""
        self._stopped = True
        with contextlib.suppress(OSError):
            # Also wakes the thread if it waits in ``sendall`` for a watcher that does not read.
            self._connection.shutdown(socket.SHUT_RDWR)

    def _watch(self, tap: Tap, request: TapRequest) -> None:
        end = None if request.seconds is None else time.monotonic() + request.seconds
        # So that a program knows that nothing passes unseen from here on.
        self._write({"watching": True})
        reason = ""
        told, tell_at = 0, time.monotonic() + _TELL_DROPPED
        while not reason:
            # Never longer, since a watcher that leaves is only noticed by a look at its connection.
            left = _LOOK if end is None else min(_LOOK, end - time.monotonic())
            try:
                rows = tap.read(max(0.0, left))
            except KernelError as error:
                reason = str(error)
                break
            reason = self._show(rows, request.limit)
            now = time.monotonic()
            if not reason and now >= tell_at:
                tell_at = now + _TELL_DROPPED
                dropped = tap.dropped()
                if dropped != told:
                    told = dropped
                    self._write({"dropped": dropped})
            if not reason and end is not None and now >= end:
                reason = "the time is over"
            if self._has_gone():
                return
        self._write(msgspec.to_builtins(TapEnd(end=reason, shown=self._shown, dropped=tap.dropped())))

    def _show(self, rows: list[dict[str, Any]], limit: int | None) -> str:
        """Write the messages; return why that was all, if it was."""
        if limit is not None:
            # The tap may have brought more at once than are still wanted.
            rows = rows[: limit - self._shown]
        self._shown += len(rows)
        if rows:
            # The time of day at which they are shown: messages do not say when they have passed.
            at = time.time()
            self._connection.sendall(b"".join(_line({"message": {"at": at, **row}}) for row in rows))
        return "that many were wanted" if self._shown == limit else ""

    def _has_gone(self) -> bool:
        if self._stopped:
            return True
        try:
            # A watcher sends nothing after its request.
            return not self._connection.recv(1, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def _write(self, answer: dict[str, Any]) -> None:
        self._connection.sendall(_line(answer))


def _line(answer: dict[str, Any]) -> bytes:
    return as_json(answer) + b"\n"
