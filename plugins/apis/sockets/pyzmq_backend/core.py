"""Core: what is behind a number that pyzmq has for a socket (``underlying``).

Several objects may share it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, Final

from zmq.constants import SocketOption, SocketType

from kernel.contracts.api import NOT_YET
from kernel.contracts.errors import KernelError
from kernel.hosting.uninterrupted import UNINTERRUPTED
from plugins.apis.sockets.errors import NotSupported, WrongState
from plugins.apis.sockets.options import OPTIONS, TYPES, UNLIMITED, UNLIMITED_BYTES
from plugins.apis.sockets.patterns.single_part import Dish, Server
from plugins.apis.sockets.pyzmq_backend.errors import failure, translated
from plugins.apis.sockets.pyzmq_backend.options import (
    BACKEND_OPTIONS,
    BackendOption,
    check_type,
    check_value,
    option_of,
    our_value,
)
from plugins.protocols.zmtp.socket_types import SOCKET_TYPES
from plugins.protocols.zmtp.zap import ADDRESS

if TYPE_CHECKING:
    from plugins.apis.sockets.pyzmq_backend.context import ContextCore
    from plugins.apis.sockets.socket import Socket as OurSocket

POLLIN, POLLOUT, POLLERR = 1, 2, 4
DONTWAIT, SNDMORE = 1, 2

NUMBERS = count(1)
"""Of contexts and sockets."""
CORES: dict[int, Core] = {}
"""Sockets that are open, by their numbers."""

_DEFAULT_LINGER: Final = 5.0
_PLAIN: Final = 1
_CURVE: Final = 2
"""Numbers of mechanisms."""
_ADDRESSING: Final = ("ROUTER", "STREAM")
"""Types whose messages begin with an identity."""
_DECISIONS: Final = (SocketOption.SUBSCRIBE, SocketOption.UNSUBSCRIBE)
_HANDS: Final = 5
"""Hands through which news goes from one socket to another in its context.

They are engine, pipe, engine, relay and port."""


class Core:
    """A socket, and what pyzmq wants to know of it."""

    def __init__(self, context: ContextCore, number: int) -> None:
        try:
            kind = SocketType(number).name
        except ValueError:
            raise failure(errno.EINVAL, f"there is no type of socket {number}") from None
        if kind not in TYPES:
            raise failure(errno.EINVAL, f"sockets of type {kind} are not there")
        self.context = context
        self.kind = kind
        self.type = number
        self.number = next(NUMBERS)
        self.process = os.getpid()
        self.socket: OurSocket = context.make(kind)
        # As in libzmq, where RECONNECT_IVL_MAX is 0: the waits do not grow.
        self.socket.options["reconnect_max"] = 0.0
        if kind in OPTIONS["only_first_subscribe"].only:
            self.socket.options["only_first_subscribe"] = False
        # Not methods: they are called for each message.
        self.send_whole: Callable[[bytes], None]
        """Send a message of one part; wait for room."""
        self.find_way()
        self.recv_part: Callable[[], bytes] = self.socket.recv
        """Return the next part; wait for it."""
        self.single = SOCKET_TYPES[kind].single
        """Whether its messages have one part."""
        self.addressed = kind in ("SERVER", "RADIO")
        """Whether its frames say for whom they are."""
        self.parts: list[bytes] = []
        """Parts of a message whose last part has not been sent yet."""
        self.closed = False
        self.watched = False
        """Whether somebody waits for the descriptor."""
        self.near = False
        """Whether it has connected to a socket of the same context."""
        self.monitor: Any = None
        self._values: dict[int, Any] = {}
        """Options that were set."""
        self._end = self.socket._end
        self.waiting = self.socket._waiting
        self._pattern = self.socket._pattern
        CORES[self.number] = self
        context.add(self)

    def find_way(self) -> None:
        """Find the shortest way to send.  With the first place it may be another one."""
        self.send_whole = self._send_nothing if self.kind in _ADDRESSING else self.socket.send

    # ------------------------------------------------------------------ options

    def set(self, number: int, value: Any) -> None:
        """Set an option."""
        check_type(number, value)
        self._check_open()
        option = option_of(number, self.kind)
        check_value(option, value)
        if number in _DECISIONS and self.kind == "XPUB" and not self._is_manual():
            raise failure(errno.EINVAL, f"{option.number.name}: for an XPUB with XPUB_MANUAL")
        if number == SocketOption.SUBSCRIBE:
            self.socket.subscribe(value)
            self.settle()
        elif number == SocketOption.UNSUBSCRIBE:
            self.socket.unsubscribe(value)
            self.settle()
        elif number == SocketOption.HWM:
            self.set(SocketOption.SNDHWM, value)
            self.set(SocketOption.RCVHWM, value)
        else:
            self._set_ours(option, value)
            self._values[number] = value

    def _is_manual(self) -> bool:
        ours = self.socket.options
        return bool(ours["xpub_manual"] or ours["xpub_manual_last_value"])

    def _set_ours(self, option: BackendOption, value: Any) -> None:
        if option.ours:
            ours = self.socket.options
            if option.early and ours.fixed and our_value(option, value) != ours[option.ours]:
                name = option.number.name
                raise failure(errno.EINVAL, f"{name}: set it before the first bind or connect")
            try:
                ours[option.ours] = our_value(option, value)
            except KernelError:
                # libzmq keeps what a type has no use for, and what comes too late for the places that are
                # there.
                return

    def get(self, number: int) -> Any:
        """Return the value of an option."""
        self._check_open()
        option = option_of(number, self.kind)
        if not option.readable:
            raise failure(errno.EINVAL, f"{option.number.name} can only be set")
        told = _TOLD.get(number)
        if told is not None:
            return told(self)
        if number == SocketOption.HWM:
            number = SocketOption.SNDHWM
        return self._values.get(number, BACKEND_OPTIONS[number].default)

    @property
    def mechanism(self) -> int:
        """The number of the mechanism that the options ask for."""
        get = self._values.get
        if get(SocketOption.CURVE_SERVER) or get(SocketOption.CURVE_SERVERKEY):
            return _CURVE
        return int(bool(get(SocketOption.PLAIN_SERVER) or get(SocketOption.PLAIN_USERNAME)))

    def descriptor(self) -> int:
        """Return a descriptor that becomes readable when ``events`` may have changed."""
        self.watched = True
        self.waiting.fix()
        self.events()
        return self.waiting.fileno()

    def secure(self) -> None:
        """Before the first place: give the engine what its mechanism needs, and who decides on peers."""
        options = self.socket.options
        if options.fixed:
            return
        get = self._values.get
        seconds = get(SocketOption.HANDSHAKE_IVL, 30_000) / 1000
        most = get(SocketOption.MAXMSGSIZE, -1)
        engine: dict[str, Any] = {
            "authenticator": ADDRESS,
            "authenticator_needed": bool(get(SocketOption.ZAP_ENFORCE_DOMAIN)),
            "zap_domain": get(SocketOption.ZAP_DOMAIN, b"").decode("utf-8", "replace"),
            "describe_peers": True,
            "any_inproc_peer": True,
            "again": "not inproc",
            "handshake": seconds,
            # libzmq has no such limits.
            "max_message": our_value(option_of(SocketOption.MAXMSGSIZE, self.kind), most),
            "parts_alone": True,
            "max_parts": UNLIMITED,
            "max_subscriptions": UNLIMITED,
            "subscription_bytes": UNLIMITED_BYTES,
        }
        if self.mechanism == _CURVE:
            engine |= self._curve()
        elif get(SocketOption.PLAIN_SERVER):
            engine |= {"mechanism": "PLAIN", "plain_server": True}
        elif self.mechanism == _PLAIN:
            engine |= {
                "mechanism": "PLAIN",
                "plain_server": False,
                "username": get(SocketOption.PLAIN_USERNAME, b"").decode("ascii", "replace"),
                "password": get(SocketOption.PLAIN_PASSWORD, b"").decode("ascii", "replace"),
            }
        options["engine"] = engine

    def _curve(self) -> dict[str, Any]:
        def text(option: SocketOption) -> str:
            value: bytes = self._values.get(option, b"")
            if len(value) == 32:
                from plugins.protocols.zmtp.z85 import encode_z85

                return encode_z85(value)
            return value.decode("ascii", "replace")

        keys: dict[str, Any] = {
            "mechanism": "CURVE",
            "curve_secret_key": text(SocketOption.CURVE_SECRETKEY),
        }
        if self._values.get(SocketOption.CURVE_SERVER):
            # As in libzmq: everybody, until a handler of ZAP is there.
            return keys | {"curve_clients": {"everybody": "*"}}
        return keys | {"curve_server_key": text(SocketOption.CURVE_SERVERKEY)}

    def connect(self, place: str) -> None:
        """Connect.  To a socket of the same context the connection is there afterwards, as in libzmq."""
        chosen: bytes = self._values.pop(SocketOption.CONNECT_ROUTING_ID, b"")
        if chosen:
            self.socket.connect_peer(place, chosen)
        elif self.kind == "STREAM":
            # As in libzmq, where a program asks for the identity after it has connected.
            self._values[SocketOption.ROUTING_ID] = self.socket.connect_peer(place)
        else:
            self.socket.connect(place)
        if place.startswith("inproc:"):
            self.near = True
            self.settle()

    def settle(self) -> None:
        """Wait until what was done has reached peers of the same context, if there are any."""
        for _ in range(_HANDS if self.near else 0):
            self.context.give_turn()

    # ------------------------------------------------------------------ messages

    def send(self, body: bytes, flags: int) -> None:
        """Send a part.  A message goes out with its last one."""
        socket, parts = self.socket, self.parts
        if flags & SNDMORE and self.single:
            raise failure(errno.EINVAL, f"{self.kind} sends messages of one part")
        if not parts and flags == DONTWAIT and self.socket._send_leased(body):
            return
        if not parts and flags:
            self._end.look()
            self._pattern.before_sending()
            # Afterwards parts are only kept, so here is where a program learns that it would have to wait.
            if flags & DONTWAIT and not socket.writable():
                raise failure(errno.EAGAIN)
        # A message of STREAM has two parts, whatever is said of the second one.
        if flags & SNDMORE and not (parts and self.kind == "STREAM"):
            parts.append(body)
            return
        if parts:
            message, self.parts = [*parts, body], []
            self.send_message(message, flags)
        elif flags & DONTWAIT:
            self.send_message([body], flags)
        else:
            self.send_whole(body)

    def send_addressed(self, body: bytes, flags: int, group: str, routing_id: int) -> None:
        """Send what a frame has for the peer or for the group that the frame names."""
        if flags & SNDMORE:
            raise failure(errno.EINVAL, f"{self.kind} sends messages of one part")
        if self.kind == "RADIO":
            self.socket.send_group(group.encode("utf-8", "surrogateescape"), body)
        elif not routing_id:
            self.socket.send(body)
        elif flags & DONTWAIT:
            self.socket.send_to(routing_id, body, timeout=0)
        else:
            self.socket.send_to(routing_id, body)

    def address(self, frame: Any) -> None:
        """Write into a frame that was received which peer or which group it is of."""
        if isinstance(self._pattern, Server):
            frame.set("routing_id", self._pattern.sender_of(frame.envelope))
        elif isinstance(self._pattern, Dish):
            frame.set("group", self._pattern.group_of(frame.envelope))

    def _send_nothing(self, body: bytes) -> None:
        """An identity without a message: nobody gets anything."""

    def send_message(self, message: Sequence[bytes], flags: int = 0) -> None:
        """Send a message of any number of parts."""
        if self.kind in _ADDRESSING and len(message) < 2:
            return
        if flags & DONTWAIT:
            self.socket.send_multipart(message, timeout=0)
        else:
            self.socket.send_multipart(message)

    # ------------------------------------------------------------------ waiting

    def events(self) -> int:
        """Return what can be done without waiting, and expect news from now on."""
        end = self._end
        # In the middle the expectation is taken back, and nobody would be told of what comes.
        with UNINTERRUPTED:
            while True:
                if end.closed:
                    end.look()
                readable = self.waiting.look_leased()
                if readable is not None:
                    return (POLLIN if readable else 0) | (POLLOUT if self._pattern.may_send() else 0)
                end.disarm()
                events = self._look()
                self.waiting.looked(bool(events & POLLIN))
                if not self.watched or self.arm():
                    return events

    def _look(self) -> int:
        socket = self.socket
        try:
            self._pattern.before_receiving()
            readable = socket.readable()
        except (WrongState, NotSupported):
            # What is left of a message can be received in any case.
            readable = socket.more
        return (POLLIN if readable else 0) | (POLLOUT if socket.writable() else 0)

    def rearm(self) -> None:
        """After a call, which has taken the expectation back: make the descriptor readable if news came."""
        with UNINTERRUPTED:
            if not self.arm():
                self._end.caller.wake()

    def arm(self) -> bool:
        """Prepare to wait for ``waiting.fileno``; False if there may be something already."""
        return self._end.closed or self.waiting.arm()

    def recv_now(self) -> Any:
        """Return the next part, or raise ``Again``."""
        body = self.socket._recv_leased()
        if body is NOT_YET:
            raise failure(errno.EAGAIN)
        return self.socket.recv(timeout=0) if body is None else body

    def begin_wait(self) -> None:
        """This thread waits from now on, until ``end_wait``."""
        self._end.begin_wait()

    def end_wait(self) -> None:
        """It does not wait any more."""
        if not self.watched:
            self.disarm()
        self._end.end_wait()

    def disarm(self) -> None:
        """Take ``arm`` back."""
        if not self._end.closed:
            self._end.disarm()

    # ------------------------------------------------------------------ the end

    def _check_open(self) -> None:
        if self.closed:
            raise failure(errno.ENOTSOCK)
        if self.context.terminated:
            raise translated(self.context.ended())

    def interrupt(self, reason: str) -> None:
        """Wake whoever waits: the context is terminated.  Any thread."""
        self._end.kernel_closed(reason)

    def close(self) -> None:
        """Close it."""
        if self.closed:
            return
        self.closed = True
        CORES.pop(self.number, None)
        if self.process != os.getpid():
            return  # its threads are those of the process that has made it
        if self.monitor is not None:
            self.monitor.stop()
        linger: float | None = _DEFAULT_LINGER
        if SocketOption.LINGER in self._values:
            linger = self.socket.options["linger"]
        try:
            self.socket.close(linger)
        finally:
            self.context.remove(self, linger)


def core_of(number: int) -> Core:
    """Return the socket of a number."""
    core = CORES.get(number)
    if core is None:
        raise failure(errno.ENOTSOCK, f"there is no socket {number}")
    return core


_TOLD: dict[int, Any] = {
    SocketOption.TYPE: lambda core: core.type,
    SocketOption.RCVMORE: lambda core: int(core.socket.more),
    SocketOption.FD: Core.descriptor,
    SocketOption.EVENTS: Core.events,
    SocketOption.LAST_ENDPOINT: lambda core: core.socket.last_endpoint.encode(),
    SocketOption.MECHANISM: lambda core: core.mechanism,
    SocketOption.TOPICS_COUNT: lambda core: core.socket.topics(),
    SocketOption.THREAD_SAFE: lambda core: int(core.single),
}
"""Options whose values are not kept, but looked up."""
