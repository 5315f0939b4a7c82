"""An association that the operating system runs, on a one-to-one socket (RFC 6458, 4).

It offers what ``AnyAssociation`` lists. Messages and notifications are read from the same socket, in the
order in which the system queued them; notifications become the events and states that our own protocol would
report. The states are those of RFC 9260 as far as the system tells them: COOKIE_WAIT until the association is
up, SHUTDOWN_PENDING while messages wait here to be handed over, SHUTDOWN_SENT when the rest is the system's
work.

What the system does not tell is which messages were acknowledged: see ``sender``.
"""

from __future__ import annotations

import os
import socket

import msgspec

from plugins.engines.sctp.options import SctpEngineOptions
from plugins.engines.sctp.system import layout, notifications
from plugins.engines.sctp.system.layout import IPPROTO_SCTP, MSG_NOTIFICATION, Option
from plugins.engines.sctp.system.notifications import Change, Reachability
from plugins.engines.sctp.system.sender import SystemSender
from plugins.protocols.sctp import parameters
from plugins.protocols.sctp.errors import MalformedPacket
from plugins.protocols.sctp.events import Event, Message, What
from plugins.protocols.sctp.schedule import Outgoing, Terms
from plugins.protocols.sctp.states import OPEN, State

READ_SIZE = 64 * 1024
"""Bytes of a read. A larger message is read in several parts."""
_ANSWER = 1024
"""Bytes of an option's value that are read at most."""
SHUTDOWN_TIME = 2.0
"""Seconds that a shutdown may take. The system does not tell the round trip."""
_ORDINARY = Terms()


class PeerAddress(msgspec.Struct):
    """A path to the peer."""

    address: bytes
    is_down: bool = False


class PeerAddresses(msgspec.Struct):
    """All paths."""

    all: list[PeerAddress]


class SystemAssociation:
    """An association on ``sock``, which connects or was accepted.

    ``tracks``: whether the acknowledgement of each message matters.
    """

    def __init__(
        self,
        sock: socket.socket,
        addresses: list[bytes],
        peer_port: int,
        options: SctpEngineOptions,
        *,
        tracks: bool,
    ) -> None:
        self.state = State.COOKIE_WAIT
        self.events: list[Event] = []
        self.socket = sock
        self.peer_port = peer_port
        self.paths = PeerAddresses([PeerAddress(address) for address in addresses])
        self.bytes_in = 0
        self.finishes = False
        """Whether the system completes the shutdown after the socket is closed: it has all data, and SHUTDOWN
        was requested."""
        self._options = options
        self._tracks = tracks
        self.sender = self._new_sender()
        self._inbox: list[Message] = []
        self.left: list[Message] = []
        self._fragments: dict[int, list[bytes]] = {}
        """By stream: the parts of messages whose end has not been read."""
        self._fragments_size = 0
        self._notification: list[bytes] = []
        """The parts of a notification that has not been read completely."""

    def _new_sender(self) -> SystemSender:
        options = self._options
        return SystemSender(self.socket, options.streams, options.sctp.schedule, tracks=self._tracks)

    # ------------------------------------------------------------------ the conversation's side

    def send(self, stream: int, data: bytes, protocol: int = 0, terms: Terms = _ORDINARY) -> Outgoing:
        """Queue a message. The returned object tells later whether it was acknowledged."""
        return self.sender.send(stream, data, protocol, terms)

    def receive(self, now: float) -> list[Message]:
        """Return the messages that were read, so that the socket is read again."""
        # An empty inbox makes the host read the socket again; until then the system's receive window fills,
        # and stops the peer.
        messages, self._inbox = self._inbox, []
        return messages

    def rank_stream(self, stream: int, *, priority: int = 0) -> None:
        """Set a stream's priority: lower goes first."""
        self.sender.rank(stream, priority)

    def close(self, now: float) -> None:
        """Shut down gracefully when the peer has everything."""
        if self.state in OPEN:
            self.state = State.SHUTDOWN_PENDING

    def round_trip(self) -> None:
        """None: the system is not asked for it."""

    def shutdown_time(self) -> float:
        """Seconds in which a shutdown is complete unless the path has failed."""
        return SHUTDOWN_TIME

    def buffered(self) -> int:
        """0: the system does not tell what the peer has acknowledged."""
        return 0

    def abort(self, reason: str = "") -> None:
        """Abort at once.

        The peer gets ABORT when the socket is closed, without a reason: a one-to-one socket cannot pass one.
        """
        if self.state is not State.CLOSED:
            # The system has everything and has sent SHUTDOWN: closing the socket lets it complete that,
            # instead of aborting.
            self.finishes = self.state is State.SHUTDOWN_SENT
            self.end(What.LOST, reason or "aborted here")

    def end(self, what: What, detail: str = "") -> None:
        """Enter CLOSED, and report why."""
        self.state = State.CLOSED
        self.events.append(Event(what=what, detail=detail))

    # ------------------------------------------------------------------ the host's side

    def has_messages(self) -> bool:
        """Whether messages were read that the conversation has not taken."""
        return bool(self._inbox)

    def hand_over(self, now: float) -> int:
        """Hand messages to the system while it accepts them; return how many."""
        if self.state not in (State.ESTABLISHED, State.SHUTDOWN_PENDING):
            return 0
        try:
            count = self.sender.hand_over(now)
            if self.state is State.SHUTDOWN_PENDING and self.sender.is_empty():
                self.state = State.SHUTDOWN_SENT
                # RFC 6458, 4.1.7: SHUTDOWN goes out when the peer has everything; until then the socket is
                # read.
                self.socket.shutdown(socket.SHUT_WR)
        except OSError as error:
            self._fail(error)
            return 0
        return count

    def read(self, reads: int, buffer: memoryview) -> None:
        """Read messages and notifications, with ``reads`` system calls at most."""
        # A bound, so that one busy association does not keep the thread's other engines from their turn.
        for _ in range(reads):
            if self.state is State.CLOSED:
                return
            try:
                size, ancillary, flags, _ = self.socket.recvmsg_into((buffer,), layout.ANCILLARY_SPACE)
            except BlockingIOError:
                return
            except OSError as error:
                self._fail(error)
                return
            # End of file: the shutdown is complete.
            if not size:
                self.end(What.CLOSED)
                return
            # A message or notification that is larger than the buffer comes in several parts, of which the
            # last one has MSG_EOR (RFC 6458, 3.1.4).
            whole = bool(flags & socket.MSG_EOR)
            if flags & MSG_NOTIFICATION:
                self._on_notification(bytes(buffer[:size]), whole=whole)
            else:
                self._on_data(bytes(buffer[:size]), ancillary, whole=whole)

    def _fail(self, error: OSError) -> None:
        self.end(What.LOST, os.strerror(error.errno) if error.errno else str(error))

    def _on_data(self, data: bytes, ancillary: list[layout.Ancillary], *, whole: bool) -> None:
        self.bytes_in += len(data)
        stream, protocol, unordered = layout.received(ancillary)
        if not whole:
            self._fragments.setdefault(stream, []).append(data)
            self._fragments_size += len(data)
            if self._fragments_size > self._options.max_message:
                self.abort(f"a message of more than {self._options.max_message} bytes")
            return
        if stream in self._fragments:
            fragments = self._fragments.pop(stream)
            self._fragments_size -= sum(map(len, fragments))
            data = b"".join((*fragments, data))
        self._inbox.append(Message(stream, data, protocol, unordered))

    # ------------------------------------------------------------------ notification

    def _on_notification(self, data: bytes, *, whole: bool) -> None:
        self._notification.append(data)
        if not whole:
            return
        notification = notifications.decode(b"".join(self._notification))
        self._notification.clear()
        match notification:
            case notifications.AssociationChange():
                self._on_change(notification)
            case notifications.AddressChange():
                self._on_address(notification)
            case notifications.Dry():
                self.sender.ran_dry()
            case notifications.Failed():
                self.sender.failed(notification.context)
            case notifications.ShuttingDown():
                self.state = State.SHUTDOWN_RECEIVED
                self.events.append(Event(what=What.SHUTTING_DOWN))
            case notifications.PartialAborted():
                self._fragments_size -= sum(map(len, self._fragments.pop(notification.stream, ())))
            case notifications.RemoteError():
                self.events.append(Event(what=What.PEER_ERROR, detail=str([notification.cause])))

    def _on_change(self, notification: notifications.AssociationChange) -> None:
        if notification.change == Change.COMM_UP:
            self._on_up(notification, What.UP)
        elif notification.change == Change.RESTART:
            # The old sender's messages are lost with the association that had them; the conversation sends
            # again what was not confirmed.
            self.sender = self._new_sender()
            self.left += self._inbox
            self._inbox, self._fragments, self._fragments_size = [], {}, 0
            self._on_up(notification, What.RESTARTED)
        elif notification.change == Change.SHUTDOWN_COMP:
            self.end(What.CLOSED)
        elif notification.change in (Change.COMM_LOST, Change.CANT_STR_ASSOC):
            self.end(What.LOST, _abort_text(notification.causes) or self._error())

    def _on_up(self, notification: notifications.AssociationChange, what: What) -> None:
        sock, sender = self.socket, self.sender
        self.state = State.ESTABLISHED
        # The peer may allow fewer streams than were asked for.
        sender.streams = min(sender.streams, notification.streams_out)
        # The largest message is what fits into the peer's window and into our send buffer: the system takes a
        # message as a whole.
        sender.peer_window = sock.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
        try:
            status = sock.getsockopt(IPPROTO_SCTP, Option.STATUS, _ANSWER)
            known = sock.getsockopt(IPPROTO_SCTP, Option.GET_PEER_ADDRS, _ANSWER)
        except OSError:
            # It has ended already, as a later notification says: a peer may send and close before its
            # association is accepted.  It is up all the same, since its messages wait to be read.
            pass
        else:
            sender.peer_window = min(layout.STATUS.unpack_from(status)[2], sender.peer_window)
            self.paths = PeerAddresses([PeerAddress(address) for address in layout.peer_addresses(known)])
        # The system gives a new stream priority 0, the most urgent one; ours without a priority are the least
        # urgent.
        for stream in range(sender.streams):
            sender.rank(stream, 0)
        self.events.append(Event(what=what))

    def _on_address(self, notification: notifications.AddressChange) -> None:
        for path in self.paths.all:
            # A report that changes nothing makes no event.
            if path.address == notification.address and notification.state == (
                Reachability.AVAILABLE if path.is_down else Reachability.UNREACHABLE
            ):
                path.is_down = not path.is_down
                what = What.PATH_DOWN if path.is_down else What.PATH_UP
                self.events.append(Event(what=what, address=path.address))

    def _error(self) -> str:
        number = self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        return os.strerror(number) if number else "connection lost"


def _abort_text(causes: bytes) -> str:
    """Return the text of an ABORT's causes; empty if there are none."""
    try:
        found = parameters.decode(causes)
    except MalformedPacket:
        found = ()
    texts = ", ".join(
        cause.value.decode("ascii", "replace")[:200] or f"cause {cause.kind}" for cause in found
    )
    return f"aborted by the peer: {texts}" if found else ""
