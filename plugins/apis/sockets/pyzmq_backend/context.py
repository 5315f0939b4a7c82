"""Context: pyzmq's, over ``kernel.sockets.Context``."""

from __future__ import annotations

import errno
import math
import os
import threading
import time
import warnings
from typing import TYPE_CHECKING, Any

from zmq.constants import ContextOption

from kernel import PluginRegistry
from kernel.hosting.exiting import call_at_exit
from plugins.apis.sockets.context import Context as OurContext
from plugins.apis.sockets.errors import ContextClosed
from plugins.apis.sockets.pyzmq_backend.core import NUMBERS
from plugins.apis.sockets.pyzmq_backend.errors import failure, translating
from plugins.apis.sockets.pyzmq_backend.reaper import is_garbage, reap, start, wait_for_reaper

if TYPE_CHECKING:
    from plugins.apis.sockets.pyzmq_backend.core import Core
    from plugins.apis.sockets.socket import Socket

PATIENCE = 5.0
"""Seconds that ``term`` waits for the owners of sockets to close them.  libzmq waits for ever."""

_ENDED = "the context was terminated"
_READ_ONLY = (ContextOption.SOCKET_LIMIT, ContextOption.MSG_T_SIZE)
_DEFAULTS: dict[int, int] = {
    ContextOption.IO_THREADS: 1,
    ContextOption.MAX_SOCKETS: 1023,
    ContextOption.SOCKET_LIMIT: 65535,
    ContextOption.THREAD_PRIORITY: -1,
    ContextOption.THREAD_SCHED_POLICY: -1,
    ContextOption.MAX_MSGSZ: (1 << 31) - 1,
    ContextOption.MSG_T_SIZE: 64,
    ContextOption.THREAD_AFFINITY_CPU_ADD: 0,
    ContextOption.THREAD_AFFINITY_CPU_REMOVE: 0,
    ContextOption.THREAD_NAME_PREFIX: 0,
}

_WRITING: list[threading.Thread] = []
"""Of contexts that were collected as garbage."""

_REGISTRY = PluginRegistry.load(environ={"KERNEL_PLUGINS": "sockets,zmq,zmtp", **os.environ})
"""What sockets need, for all contexts, and loaded with ``import zmq``: programs have time limits for a first
socket, which takes libzmq no time.  No program of pyzmq reaches another plugin."""

_CORES: dict[int, ContextCore] = {}
"""Contexts that are open, by their numbers."""


class ContextCore:
    """What is behind the number of a context.  Several objects may share it.  Any thread."""

    def __init__(self, io_threads: int) -> None:
        self.number = next(NUMBERS)
        self.process = os.getpid()
        self.options = {**_DEFAULTS, int(ContextOption.IO_THREADS): io_threads}
        self.terminated = False
        self._ours = OurContext(registry=_REGISTRY)
        self._open: set[Core] = set()
        self._changed = threading.Condition()
        self._until = 0.0
        """Until when sockets that were closed may write."""
        start()
        call_at_exit(_end)
        _CORES[self.number] = self

    def ended(self) -> ContextClosed:
        """Return the error of a call after the end."""
        return ContextClosed(_ENDED)

    def make(self, kind: Any) -> Socket:
        """Make a socket."""
        if self.terminated:
            raise self.ended()
        if len(self._open) >= self.options[ContextOption.MAX_SOCKETS]:
            raise failure(errno.EMFILE, "the context has as many sockets as MAX_SOCKETS allows")
        return self._ours.socket(kind)

    def give_turn(self) -> None:
        """Wait until the kernel's thread has done what was posted to it."""
        self._ours.kernel.inspect("")

    def add(self, core: Core) -> None:
        """Take notice of a socket."""
        with self._changed:
            self._open.add(core)

    def remove(self, core: Core, linger: float | None) -> None:
        """Forget a socket, which may still write for ``linger`` seconds."""
        with self._changed:
            self._until = max(self._until, math.inf if linger is None else time.monotonic() + linger)
            self._open.discard(core)
            self._changed.notify_all()

    def term(self) -> None:
        """Wake all calls that wait; wait until sockets are closed, and until they have written."""
        with self._changed:
            self.terminated = True
            _CORES.pop(self.number, None)
            if self.process != os.getpid():
                return  # its threads are those of the process that has made it
            for core in self._open:
                core.interrupt(_ENDED)
            self._changed.wait_for(lambda: not self._open, PATIENCE)
            left = max(0.0, self._until - time.monotonic())
        # Nobody can end a process that does not end: here libzmq waits for ever, too.
        self._write_out(left if threading.main_thread().is_alive() else min(left, PATIENCE))

    def abandon(self) -> None:
        """Have it terminated: it was collected as garbage.

        What is left is written behind the program's back.
        """
        self.terminated = True
        reap(self._term_behind)

    def _term_behind(self) -> None:
        # Not by the reaper, which has to close its sockets, too.
        writing = threading.Thread(target=self.term, daemon=True)
        _WRITING.append(writing)
        writing.start()

    def _write_out(self, seconds: float) -> None:
        """Wait until what was sent is written."""
        complaint = threading.Timer(PATIENCE, _complain)
        complaint.daemon = True
        if seconds == math.inf:
            complaint.start()
        try:
            self._ours.close(None if seconds == math.inf else seconds)
        finally:
            complaint.cancel()


def _complain() -> None:
    warnings.warn(
        "a context of zmq is being terminated, and waits for peers that take what was sent to them: the program has "
        "set LINGER to -1, which is without limit; set it to milliseconds, or give them to close() or destroy()",
        RuntimeWarning,
        stacklevel=1,
    )


def _end() -> None:
    """Leave what was collected as garbage some time to write, as libzmq does; but the process ends."""
    until = time.monotonic() + PATIENCE
    wait_for_reaper(PATIENCE)
    for writing in _WRITING:
        writing.join(max(0.0, until - time.monotonic()))


class Context:
    """``zmq.Context`` is made of it."""

    closed = True
    _core: ContextCore = None  # type: ignore[assignment]  # until it is made

    def __init__(self, io_threads: int = 1, shadow: int = 0) -> None:
        if io_threads < 0:
            raise failure(errno.EINVAL, f"io_threads: {io_threads} is less than 0")
        if shadow:
            found = _CORES.get(shadow)
            if found is None:
                raise failure(errno.EFAULT, f"there is no context {shadow}")
            self._core = found
        else:
            self._core = ContextCore(io_threads)
        self.closed = False

    @property
    def handle(self) -> int:
        """The number by which it can be shared."""
        return self._core.number

    @property
    def underlying(self) -> int:
        """The number by which it can be shared."""
        return self._core.number

    @translating
    def term(self) -> None:
        """Terminate it: calls that wait raise ``ContextTerminated``."""
        if not self.closed:
            self.closed = True
            if is_garbage():
                self._core.abandon()
            else:
                self._core.term()

    def set(self, option: int, optval: int) -> None:
        """Set an option of the context."""
        self._check(option)
        if option in _READ_ONLY or optval < 0:
            raise failure(errno.EINVAL)
        self._core.options[option] = optval

    def get(self, option: int) -> int:
        """Return an option of the context."""
        self._check(option)
        return self._core.options[option]

    def _check(self, option: int) -> None:
        if self.closed or self._core.terminated:
            raise failure(errno.EFAULT)
        if option not in self._core.options:
            raise failure(errno.EINVAL, f"there is no option {option} of a context here")
