"""Sending through the operating system's SCTP.

The system reports when everything is acknowledged (SCTP_SENDER_DRY_EVENT) and which messages it has
abandoned, but nothing about single messages. A message whose acknowledgement does not matter therefore counts
as sent once the system has it. Others wait for the sender to run dry. Under constant load it would never be
dry: after ``MAX_ACK_WAIT`` seconds nothing more is handed over until it is.
"""

from __future__ import annotations

import contextlib
import socket

from plugins.engines.sctp.system import layout
from plugins.protocols.sctp.schedule import Name, Outgoing, Schedule, Terms

MAX_ACK_WAIT = 0.1
"""Seconds after which no more messages are handed over, so that the system runs dry."""
MESSAGES_PER_TURN = 256


class SystemSender:
    """The messages of a socket. ``tracks``: whether the acknowledgement of each message matters."""

    def __init__(self, sock: socket.socket, streams: int, schedule: Name, *, tracks: bool) -> None:
        self.streams = streams
        self.peer_window = 0
        self.blocked = False
        """Whether the socket's buffer is full."""
        self.bytes = 0
        self._socket = sock
        # A scheduler of our own in front of the system's: while the system's buffer is full messages wait
        # here, and streams have to take turns.
        self._schedule = Schedule(schedule)
        self._ranks = self._schedule.priorities if schedule == "priority" else None
        self._tracks = tracks
        self._waiting: dict[int, Outgoing] = {}
        """Messages that the system has, by context, which count as acknowledged when it is dry."""
        self._context = 0
        self._since = 0.0
        """When the first of them was handed over."""

    def send(self, stream: int, data: bytes, protocol: int, terms: Terms) -> Outgoing:
        """Queue a message."""
        message = Outgoing(stream, data, protocol, terms)
        self._schedule.push((message,), stream)
        return message

    def rank(self, stream: int, priority: int) -> None:
        """Set a stream's priority, here and in the system: lower goes first."""
        if self._ranks is not None:
            self._ranks[stream] = priority
            value = layout.STREAM_VALUE.pack(0, stream, LOWEST + max(priority, -LOWEST))
            # An error means that the association has ended, as a later notification says.
            with contextlib.suppress(OSError):
                self._socket.setsockopt(layout.IPPROTO_SCTP, layout.Option.STREAM_SCHEDULER_VALUE, value)

    def is_empty(self) -> bool:
        """Whether the system has everything."""
        return self._schedule.current() is None

    def hand_over(self, now: float) -> int:
        """Hand over up to ``MESSAGES_PER_TURN`` messages; return how many. Raises ``OSError``."""
        count = 0
        self.blocked = False
        while count < MESSAGES_PER_TURN and (message := self._schedule.current()) is not None:
            # The pause that makes the system run dry, see above.
            if self._waiting and now - self._since > MAX_ACK_WAIT:
                break
            expires = message.terms.expires
            if expires is not None and expires <= now:
                # ``Schedule.current`` then skips it: the loop goes on with the next message.
                message.abandoned = True
                continue
            try:
                self._hand_over(message, now)
            except BlockingIOError:
                self.blocked = True
                break
            count += 1
        return count

    def _hand_over(self, message: Outgoing, now: float) -> None:
        terms, size = message.terms, len(message.data)
        tracked = self._tracks or terms.expires is not None
        flags = layout.UNORDERED if terms.unordered else 0
        context = self._context + 1 & 0xFFFF_FFFF if tracked else 0
        if tracked:
            # The I bit (RFC 7053): the dry event does not wait for the peer's delayed SACK.
            flags |= layout.SACK_IMMEDIATELY
        ancillary = [layout.sending(message.stream, message.protocol, flags, context)]
        if terms.expires is not None:
            ancillary.append(layout.expiring(max(1, round((terms.expires - now) * 1000))))
        # Before anything is recorded: BlockingIOError leaves the message at the head of the schedule.
        self._socket.sendmsg((message.data,), ancillary)
        self.bytes += size
        # The system takes a message as a whole or not at all. A message that is not tracked counts as
        # acknowledged now (``Outgoing.is_acknowledged``: all sent, no fragment outstanding).
        message.offset = size
        self._schedule.sent(message, size)
        if tracked:
            # The time of the oldest one decides when sending pauses.
            if not self._waiting:
                self._since = now
            self._context = context
            self._waiting[context] = message
            message.fragments = 1

    # ------------------------------------------------------------------ what the system tells

    def ran_dry(self) -> None:
        """Process the dry event.

        Messages may have been handed over since the event was queued: the socket's memory counter says
        whether something is outstanding now.
        """
        queued = layout.MEMINFO.unpack(
            self._socket.getsockopt(socket.SOL_SOCKET, layout.SO_MEMINFO, layout.MEMINFO.size)
        )[5]
        # Zero also if messages were handed over and acknowledged meanwhile: all of ``_waiting`` is
        # acknowledged then.
        if not queued:
            for message in self._waiting.values():
                message.fragments = 0
            self._waiting.clear()

    def failed(self, context: int) -> None:
        """Record that the system has abandoned a message."""
        # Messages that are not tracked have context 0, and are not here.
        message = self._waiting.pop(context, None)
        if message is not None:
            message.abandoned = True


LOWEST = 255
"""The value of a stream without a priority in the system's scheduler, which serves lower values first."""
