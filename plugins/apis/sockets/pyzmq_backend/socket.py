"""Socket: pyzmq's, over ``kernel.sockets.Socket``."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable
from typing import Any

import zmq

from kernel.contracts.errors import KernelError
from plugins.apis.sockets.pyzmq_backend.core import DONTWAIT, SNDMORE, Core, core_of
from plugins.apis.sockets.pyzmq_backend.errors import failure, translated, translating
from plugins.apis.sockets.pyzmq_backend.frame import Frame, sent_octets, tracked_frame
from plugins.apis.sockets.pyzmq_backend.monitor import EVERY_EVENT, Monitor
from plugins.apis.sockets.pyzmq_backend.reaper import is_garbage, reap
from plugins.apis.sockets.pyzmq_backend.utilities import IPC_PATH_MAX_LEN, has

_TRANSPORTS = ("tcp", "ipc", "inproc", "ws")
_OF_HOSTS = ("tcp:", "ws:")


class _NeverMade:
    """In place of the core of a socket whose ``__init__`` has failed, or was never called."""

    parts: tuple[()] = ()
    watched = True


_NEVER_MADE = _NeverMade()


class Socket:
    """``zmq.Socket`` is made of it."""

    # pyzmq takes names that a class does not have for options.
    context: Any = None
    copy_threshold = 0
    _closed = True
    _core: Core = _NEVER_MADE  # type: ignore[assignment]  # until it is made

    def __init__(
        self,
        context: Any = None,
        socket_type: int = -1,
        shadow: int = 0,
        copy_threshold: int | None = None,
    ) -> None:
        self.copy_threshold = zmq.COPY_THRESHOLD if copy_threshold is None else copy_threshold
        self.context = context
        if shadow:
            self._core = core_of(shadow)
        else:
            if context is None:
                raise TypeError("context must be specified")
            if socket_type < 0:
                raise TypeError("socket_type must be specified")
            if context.closed or context._core.terminated:
                raise failure(errno.EFAULT)
            try:
                self._core = Core(context._core, socket_type)
            except KernelError as error:
                raise translated(error) from error
        self._closed = False

    @property
    def underlying(self) -> int:
        """The number by which it can be shared."""
        return self._core.number

    @property
    def closed(self) -> bool:
        """Whether it was closed, by whichever of the objects that share it."""
        if not self._closed and self._core.closed:
            self._closed = True
        return self._closed

    @translating
    def close(self, linger: int | None = None) -> None:
        """Close it.  What was sent is still written, for ``linger`` milliseconds."""
        if self._closed:
            return
        self._closed = True
        self._core.watched = True
        if linger is not None and not self._core.closed and not self._core.context.terminated:
            self._core.set(zmq.LINGER, linger)
        if is_garbage():
            reap(self._core.close)
        else:
            self._core.close()

    # ------------------------------------------------------------------ options

    @translating
    def set(self, option: int, optval: Any) -> None:
        """Set an option."""
        self._check_open()
        self._core.set(option, optval)

    @translating
    def get(self, option: int) -> Any:
        """Return the value of an option."""
        self._check_open()
        return self._core.get(option)

    # ------------------------------------------------------------------ places

    @translating
    def bind(self, addr: str | bytes) -> None:
        """Listen at a place."""
        place = self._place(addr)
        if place == "ipc://*":
            place = f"ipc://{tempfile.mktemp(prefix='zmq-')}"
        self._core.secure()
        self._core.socket.bind(place.replace(":*", ":0") if place.startswith(_OF_HOSTS) else place)
        self._changed()

    @translating
    def connect(self, addr: str | bytes) -> None:
        """Connect to a place."""
        place = self._place(addr)
        self._core.secure()
        self._core.connect(place)
        self._changed()

    @translating
    def unbind(self, addr: str | bytes) -> None:
        """Listen at a place no more."""
        self._remove(self._core.socket.unbind, addr)

    @translating
    def disconnect(self, addr: str | bytes) -> None:
        """Connect to a place no more."""
        self._remove(self._core.socket.disconnect, addr)

    def _remove(self, remove: Callable[[str], None], addr: str | bytes) -> None:
        place = self._place(addr)
        try:
            remove(place)
        except KernelError as error:
            raise failure(errno.ENOENT, str(error)) from error
        self._core.settle()
        self._changed()

    def _place(self, addr: str | bytes) -> str:
        self._check_open()
        place = addr.decode() if isinstance(addr, bytes) else addr
        transport, separator, where = place.partition("://")
        if not separator or not where:
            raise failure(errno.EINVAL, f"{place!r} is no place; one is tcp://127.0.0.1:5555")
        if transport not in _TRANSPORTS:
            raise failure(errno.EPROTONOSUPPORT, f"{place!r}: there are {', '.join(_TRANSPORTS)} here")
        if transport == "ws" and not has("ws"):
            text = f"{place!r}: ws needs wsproto: pip install 'messaging-kernel[web]'"
            raise failure(errno.EPROTONOSUPPORT, text)
        if transport == "ipc":
            if len(os.fsencode(where)) > IPC_PATH_MAX_LEN:
                text = (
                    f"ipc path {where!r} is longer than {IPC_PATH_MAX_LEN} characters "
                    "(sizeof(sockaddr_un.sun_path))."
                )
                raise failure(errno.ENAMETOOLONG, text)
            if where != "*" and not os.path.isdir(os.path.dirname(where) or "."):
                raise failure(errno.ENOENT, f'No such file or directory for ipc path "{where}".')
        return place

    @translating
    def monitor(self, addr: str | bytes | None, events: int = EVERY_EVENT) -> None:
        """Publish events of its connections at an ``inproc`` place; None: no more."""
        self._check_open()
        core = self._core
        if core.monitor is not None:
            core.monitor.stop()
            core.monitor = None
        if addr is not None:
            place = self._place(addr)
            if not place.startswith("inproc://"):
                raise failure(errno.EPROTONOSUPPORT, f"{place!r}: a monitor is at inproc://")
            core.monitor = Monitor(core, place, EVERY_EVENT if events < 0 else events)

    @translating
    def join(self, group: str | bytes) -> None:
        """DISH: ask for messages of a group."""
        self._check_open()
        self._core.socket.join(group)
        self._core.settle()

    @translating
    def leave(self, group: str | bytes) -> None:
        """DISH: take a ``join`` back."""
        self._check_open()
        self._core.socket.leave(group)
        self._core.settle()

    # ------------------------------------------------------------------ messages

    def send(self, data: Any, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """Send a part of a message."""
        core = self._core
        # By far most messages: in fewer steps than below.  Not of a socket that is closed: it counts as
        # watched.  To look at ``_closed`` here would take a tenth of the time, since pyzmq's class has a
        # ``__getattr__``.
        if type(data) is bytes and copy and not (flags or core.parts or core.watched):
            try:
                core.send_whole(data)
            except KernelError as error:
                raise translated(error) from error
            return None
        if self._closed:
            raise failure(errno.ENOTSOCK)
        tracker = None
        addressed = data if core.addressed and isinstance(data, Frame) else None
        if type(data) is not bytes or not copy:
            if copy and not isinstance(data, zmq.Frame):
                data = sent_octets(data)
            else:
                data, tracker = tracked_frame(data, track, self.copy_threshold)
        try:
            if addressed is not None:
                core.send_addressed(data, flags, addressed.get("group"), addressed._routing_id)
            elif flags or core.parts:
                core.send(data, flags)
            else:
                core.send_whole(data)
        except KernelError as error:
            core.parts = []
            raise translated(error) from error
        finally:
            if core.watched and not flags & SNDMORE:
                core.rearm()
        return tracker

    def recv(self, flags: int = 0, copy: bool = True, track: bool = False) -> Any:
        """Return the next part of a message."""
        if self._closed:
            raise failure(errno.ENOTSOCK)
        core = self._core
        if copy and not core.watched:
            # What was taken with others, as ``kernel.sockets`` returns it, without a call.
            for body in core.socket._plain:
                return body if body.__class__ is bytes else bytes(body)
        try:
            body = core.recv_now() if flags & DONTWAIT else core.recv_part()
        except BaseException as error:
            if core.watched:
                core.rearm()
            if isinstance(error, KernelError):
                raise translated(error) from error
            raise
        if copy and body.__class__ is bytes and not core.watched:
            return body
        try:
            if core.watched:
                core.rearm()
            return bytes(body) if copy else self._frame(core, body, track=track)
        except BaseException:
            # A handler of a signal has raised: the next call returns it.
            core.socket._give_back_part(body)
            raise

    def _frame(self, core: Core, body: bytes, *, track: bool) -> Any:
        frame = zmq.Frame(body, track=track, copy=True)
        frame.more = core.socket.more
        frame.envelope = core.socket.envelope
        core.address(frame)
        return frame

    def recv_into(self, buffer: Any, /, *, nbytes: int = 0, flags: int = 0) -> int:
        """Receive into a buffer; return the size of the part, of which the end may be missing."""
        self._check_open()
        view = memoryview(buffer)
        if not view.contiguous:
            raise BufferError("Can only recv_into contiguous buffers")
        if view.readonly:
            raise BufferError("Cannot recv_into readonly buffer")
        if nbytes < 0:
            raise ValueError(f"{nbytes=} must be non-negative")
        if nbytes > view.nbytes:
            raise ValueError(f"{nbytes=} too big for memoryview of {view.nbytes}B")
        body: bytes = Socket.recv(self, flags)
        size = min(nbytes or view.nbytes, len(body))
        if size:
            view.cast("B")[:size] = body[:size]
        return len(body)

    def _check_open(self) -> None:
        if self._closed:
            raise failure(errno.ENOTSOCK)

    def _changed(self) -> None:
        """Take notice of a change of places, and tell those who wait."""
        self._core.find_way()
        if self._core.watched:
            self._core.rearm()
