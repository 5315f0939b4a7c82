"""Connection host: the socket of one connection and its session, hosted passively."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernel.hosting.read_size import FIRST_READ_SIZE, next_read_size
from kernel.hosting.unwritten import Unwritten
from kernel.hosting.wire import Wire
from plugins.protocols.amqp091.connection import ClientConnection

if TYPE_CHECKING:
    from plugins.engines.amqp_client.link import Link

UNWRITTEN_BYTES = 1024 * 1024
"""While the socket leaves so much behind, nothing more is published."""


class ConnectionHost:
    """One connection, from the moment that the wire is there."""

    def __init__(self, link: Link, wire: Wire, connection: ClientConnection) -> None:
        self.ended = False
        self._link = link
        self._host = link.host
        self._wire = wire
        self._connection = connection
        self.session = link.make_session(link, connection, self.finish)
        self._out = Unwritten()
        self._watched: tuple[bool, bool] = (False, False)
        self._armed: float | None = None
        self._read_size = FIRST_READ_SIZE
        self._soon = False

    def __repr__(self) -> str:
        return f"<ConnectionHost {self.session!r}, {self._out.size} bytes unwritten>"

    def start(self) -> None:
        """Say hello."""
        self.finish()

    def pending(self) -> bool:
        """Whether the server has something to read or to confirm."""
        return self._out.size > 0 or self.session.unconfirmed > 0

    def hang_up(self, reason: str) -> None:
        """Say good-bye as far as it goes at once, and end."""
        if not self.ended:
            self.session.end(reason)
            self._connection.close(200, reason)
            self._write()
            self._end(reason)

    def finish(self) -> None:
        """End a turn: hand over, publish, write."""
        if self.ended:
            return
        more = self.session.finish(publish=self._out.size < UNWRITTEN_BYTES)
        self._write()
        if self.ended:
            return
        if self._connection.closed():
            self._end(self.session.reason)
            return
        self._watch()
        self._arm()
        if more and not self._soon and self._out.size < UNWRITTEN_BYTES:
            self._soon = True
            self._host.soon(self._on_soon)

    # From the thread

    def _on_soon(self) -> None:
        self._soon = False
        self.finish()

    def _on_readable(self) -> None:
        self._read()
        self.finish()

    def _read(self) -> None:
        try:
            data = self._wire.receive(self._read_size)
        except OSError as error:
            self._lost(str(error))
            return
        if data is None:
            return
        self._read_size = next_read_size(self._read_size, len(data), self._read_size)
        now = self._host.now()
        if not data:
            self.session.handle(self._connection.receive_eof(now))
            self._lost("the server hung up")
            return
        self._link.counters.bytes_in += len(data)
        self.session.handle(self._connection.receive_data(data, now))

    def _on_timer(self) -> None:
        self._armed = None
        now = self._host.now()
        deadline = self._connection.next_deadline()
        if deadline is not None and deadline <= now:
            self._look_before_giving_up(now)
            if not self.ended:
                self.session.handle(self._connection.handle_timeout(now))
        self.finish()

    def _look_before_giving_up(self, now: float) -> None:
        """A thread that was busy, or does not read on purpose, must not call its peer silent."""
        if self.session.holds_back:
            self._connection.receive_data(b"", now)
        else:
            self._read()

    # To the socket

    def _write(self) -> None:
        try:
            self._link.counters.bytes_out += self._out.write(self._connection.data_to_send(), self._wire)
        except OSError as error:
            self._lost(str(error))

    def _watch(self) -> None:
        wanted = (not self.session.holds_back, bool(self._out))
        if wanted != self._watched:
            self._watched = wanted
            readable, writable = wanted
            self._host.poller.watch(
                self._wire.fileno(),
                readable=self._on_readable if readable else None,
                writable=self.finish if writable else None,
            )

    def _arm(self) -> None:
        """Set a timer, unless one is set for earlier: the deadline moves with every read, the timer need not."""
        deadline = self._connection.next_deadline()
        if deadline is not None and (self._armed is None or deadline < self._armed):
            self._armed = deadline
            self._host.set_timer(deadline, self._on_timer, self)

    def _lost(self, reason: str) -> None:
        if not self.ended:
            self._end(reason)

    def _end(self, reason: str) -> None:
        self.ended = True
        self.session.end(reason)
        self._host.poller.watch(self._wire.fileno(), readable=None, writable=None)
        self._host.set_timer(None, self._on_timer, self)
        self._wire.close()
        self._out.clear()
        self._link.has_ended(self.session.reason or reason, refused=self.session.login_refused)
