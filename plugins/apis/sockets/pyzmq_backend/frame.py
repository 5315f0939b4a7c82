"""Frame: one part of a message, as an object."""

from __future__ import annotations

import errno
from threading import Event
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import ref

import zmq

from kernel.contracts.message import PLAIN
from plugins.apis.sockets.pyzmq_backend.errors import failure
from plugins.protocols.zmtp.keys import KEY_LIMIT

if TYPE_CHECKING:
    from zmq import MessageTracker

_Octets: TypeAlias = bytes
"""``Frame`` has a property of the name."""

_MORE, _SHARED = 1, 3
"""Numbers of what ``get`` can tell."""
_ROUTING_ID, _GROUP = "routing_id", "group"
"""What ``set`` can set."""


class Held:
    """Shared by a frame and what of it is under way; sets its event when all of these are gone."""

    def __init__(self, event: Event) -> None:
        self._event = event

    def __del__(self) -> None:
        self._event.set()


class TrackedBytes(bytes):
    """Octets under way, whose end somebody waits for."""

    held: Held


class Frame(bytearray):
    """A part of a message.  It has a copy of the data, which can be read and written as a buffer.

    A ``bytearray`` because before Python 3.12 only classes that are written in C can be buffers.
    """

    more = False
    """Whether another part of the message follows."""
    tracker: Any = None
    tracker_event: Event | None = None
    envelope = PLAIN
    """What is known of the message and of its peer, if it was received."""
    _routing_id = 0
    _group: _Octets = b""
    _held: Held | None = None
    _buffer: Any = None
    _copied: _Octets | None = None

    def __init__(
        self,
        data: Any = None,
        track: bool = False,
        copy: bool | None = None,
        copy_threshold: int | None = None,
    ) -> None:
        if isinstance(data, str):
            raise TypeError("Unicode strings are not allowed. Only: bytes, buffer interfaces.")
        if data is None:
            super().__init__()
        else:
            view = memoryview(data)
            if not view.contiguous:
                raise BufferError("memoryview: underlying buffer is not contiguous")
            super().__init__(view)
        if track:
            small = copy_threshold is not None and len(self) < copy_threshold
            if data is None or copy or (copy is None and small):
                self.tracker = zmq._FINISHED_TRACKER
            else:
                self.tracker_event = Event()
                self._held = Held(self.tracker_event)
                self.tracker = zmq.MessageTracker(self.tracker_event)

    def octets(self) -> _Octets:
        """Return what is sent."""
        if self._held is None:
            return memoryview(self).tobytes()
        tracked = TrackedBytes(memoryview(self))
        tracked.held = self._held
        return tracked

    @property
    def buffer(self) -> memoryview:
        """The data, without a copy."""
        # Weak: the view refers to the frame.
        view: memoryview | None = self._buffer and self._buffer()
        if view is None:
            view = memoryview(self)
            self._buffer = ref(view)
        return view

    @property
    def bytes(self) -> _Octets:
        """A copy of the data, made once."""
        if self._copied is None:
            self._copied = memoryview(self).tobytes()
        return self._copied

    @property
    def done(self) -> bool:
        """Whether nothing of it is under way any more."""
        if self.tracker is None:
            raise ValueError("Not a tracked message")
        return bool(self.tracker.done)

    def __str__(self) -> str:
        # Not that of ``bytearray``: pyzmq has a text of its own.
        return repr(self)

    def __copy__(self) -> Frame:
        return self.fast_copy()

    def fast_copy(self) -> Frame:
        """Return another frame with the same data and the same tracker."""
        other = type(self)(memoryview(self))
        other.more, other.tracker, other.envelope = self.more, self.tracker, self.envelope
        other.tracker_event, other._held = self.tracker_event, self._held
        other._routing_id, other._group = self._routing_id, self._group
        return other

    def get(self, option: Any) -> Any:
        """Return whether more parts follow (``zmq.MORE``), or what is known of the peer, by name."""
        if option == _MORE:
            return int(self.more)
        if option == _SHARED:
            return 0
        if option == _ROUTING_ID:
            if not self._routing_id:
                raise failure(errno.EINVAL, "the message has no routing id: it is not from a peer of SERVER")
            return self._routing_id
        if option == _GROUP:
            return self._group.decode("utf-8", "surrogateescape")
        if isinstance(option, (int, str, _Octets)):
            name = option.decode("utf-8", "replace") if isinstance(option, _Octets) else option
            properties = self.envelope.properties
            found = properties.get("user_id") if name == "User-Id" else None
            found = properties.get("headers", {}).get(name) if found is None else found
            if found is None:
                raise failure(errno.EINVAL, f"nothing is known of {name!r}")
            return found
        raise TypeError(f"expected str, got: {option!r}")

    def set(self, option: Any, value: Any) -> None:
        """Set the routing id of a message for a peer of SERVER, or the group of one for RADIO."""
        if option == _ROUTING_ID and isinstance(value, int) and 0 < value < 1 << 32:
            self._routing_id = value
        elif option == _GROUP and isinstance(value, (str, _Octets)):
            group = value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value
            if len(group) > KEY_LIMIT:
                raise failure(errno.EINVAL, f"a group has at most {KEY_LIMIT} bytes")
            self._group = group
        else:
            raise failure(errno.EINVAL, f"{option!r} of a message cannot be set to {value!r}")


def sent_octets(data: Any) -> bytes:
    """Return a copy of data that is not ``bytes``."""
    if isinstance(data, str):
        raise TypeError("unicode not allowed, use send_string")
    if isinstance(data, Frame):
        return data.octets()
    view = memoryview(data)
    if not view.contiguous:
        raise BufferError("memoryview: underlying buffer is not contiguous")
    return view.tobytes()


def tracked_frame(data: Any, track: bool, threshold: int) -> tuple[bytes, MessageTracker | None]:
    """Return what is sent of data that need not be copied, and what tells when that is done."""
    if isinstance(data, Frame):
        if track and not data.tracker:
            raise ValueError("Not a tracked message")
        return data.octets(), data.tracker
    octets = sent_octets(data)
    if len(octets) < threshold:
        return octets, zmq._FINISHED_TRACKER
    frame = Frame(octets, track=track, copy=False)
    return frame.octets(), frame.tracker
