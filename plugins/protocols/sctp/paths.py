"""The peer's addresses: path selection, failure detection and heartbeats (RFC 9260, 5.4, 6.4, 8).

A path has two properties. It is *confirmed* if the peer was configured with this address, was heard from it
in the handshake, or has answered a heartbeat there. An unconfirmed one gets heartbeats only, since the peer
may have listed the address of a third party. It is *active* until timeouts and unanswered heartbeats exceed
``path_tries``; an inactive one is tested by heartbeats, and becomes active with the first answer.

New data goes to the first path that is both, so that it returns to the primary path when that works again.
What has timed out is repeated on another path. Each path has its own round trip, window and packet size
(``Path``).

There are two counters of errors. That of a path makes the path inactive, that of the association ends the
association. An answer resets both. A path that is not used for data may be silent for ever: its heartbeats
count for that path alone.
"""

from __future__ import annotations

from plugins.protocols.sctp import chunks, parameters
from plugins.protocols.sctp.chunks import Listed, Type
from plugins.protocols.sctp.events import Event, What
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.parameters import Kind, Parameter
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.secret import Secret

_NONCE = 16


class Paths:
    """The paths of an association.

    ``all`` stays one list object for its whole life; the first is the primary path.
    """

    def __init__(self, options: SctpOptions, secret: Secret, events: list[Event]) -> None:
        self.all: list[Path] = []
        self.unknown: list[bytes] = []
        """Addresses that the endpoint has not registered yet."""
        self.errors = 0
        """Consecutive timeouts on all paths together (8.1)."""
        self._options = options
        self._secret = secret
        self._events = events

    def add(self, addresses: list[bytes], *, confirmed: bytes) -> None:
        """Add new addresses.

        Only the one that the peer was heard from is confirmed; the others are verified first (5.4).
        """
        known = {path.address for path in self.all}
        for address in addresses:
            if address not in known:
                # The endpoint takes them from here (``Endpoint._note_addresses``).
                self.unknown.append(address)
                self.all.append(Path(address, self._options, confirmed=address == confirmed))

    def at(self, address: bytes) -> Path | None:
        for path in self.all:
            if path.address == address:
                return path
        return None

    def current(self) -> Path:
        """Return the path for new data: the first that is active and confirmed, else the first (6.4)."""
        for path in self.all:
            if path.usable():
                return path
        return self.all[0]

    def other_than(self, path: Path) -> Path:
        """Return an active path other than ``path`` for retransmissions (6.4.1).

        Without one: the next confirmed path if ``path`` is inactive, else ``path``.
        """
        at = self.all.index(path)
        # Only confirmed addresses may get data (5.4).
        others = [other for other in self.all[at + 1 :] + self.all[:at] if other.confirmed]
        # Start after the failed path, so that repeated failures visit all others in turn.
        for other in others:
            if other.active:
                return other
        # All paths are inactive: still change the path with each timeout, since any of them may be the first
        # to work again.
        return others[0] if others and not path.active else path

    # ------------------------------------------------------------------ health

    def failed(self, path: Path, *, heartbeat: bool = False) -> bool:
        """Count a timeout on a path; return whether the association has failed (8.1, 8.2).

        Timeouts of an unconfirmed path count for that path alone (5.4), and so does an unanswered
        ``heartbeat`` of a path that data does not take (8.1).
        """
        path.errors += 1
        # An unconfirmed address may be nobody's: its silence says nothing about the peer (5.4). Nor do
        # heartbeats of another path, while the path for data is idle and works (8.1). ``current`` is asked
        # before this path becomes inactive. With no usable path it is the first one, whose heartbeats then
        # end the association.
        if path.confirmed and (not heartbeat or path is self.current()):
            self.errors += 1
        # PATH_DOWN is reported once, when the counter passes the limit (8.2).
        if path.active and path.errors > self._options.path_tries:
            path.active = False
            self._events.append(Event(what=What.PATH_DOWN, address=path.address))
        return self.errors > self._options.association_tries

    def heard(self, path: Path) -> None:
        """Record an answer on a path: its error counters are reset (8.1, 8.2)."""
        self.errors = path.errors = 0
        path.confirmed = True
        if not path.active:
            path.active = True
            self._events.append(Event(what=What.PATH_UP, address=path.address))

    def deadline(self) -> list[float]:
        """Return the deadlines of all timers of all paths."""
        return [
            due
            for path in self.all
            for due in (path.retransmission_due, path.heartbeat_due, path.probing.due)
            if due is not None
        ]

    # ------------------------------------------------------------------ heartbeats

    def start_heartbeats(self, now: float) -> None:
        for path in self.all:
            # Unconfirmed addresses are tested at once and, as long as they do not answer, once per RTO (5.4).
            path.heartbeat_due = now if not path.confirmed else self._next_heartbeat(path, now)
            # An address that may not be the peer's gets nothing but HEARTBEATs (5.4).
            if path.confirmed:
                path.probing.begin(now)

    def stop_heartbeats(self) -> None:
        for path in self.all:
            path.heartbeat_due = path.heartbeat_sent = None
            path.probing.stop()

    def _next_heartbeat(self, path: Path, now: float) -> float:
        # Jitter of half an RTO around it, so that associations do not send heartbeats at the same time (8.3).
        pause = self._options.heartbeat if path.confirmed else 0.0
        return now + pause + path.rto * (0.5 + self._secret.share())

    def heartbeat(self, path: Path, now: float) -> bytes | None:
        """Return a HEARTBEAT if the path is idle (8.3), else None: data in flight tests the path as well."""
        path.heartbeat_due = self._next_heartbeat(path, now)
        if path.flight:
            return None
        # 5.4 asks for 64 random bits and a path indicator. Each path has a nonce of its own here, which
        # serves as both.
        nonce = self._secret.nonce(_NONCE)
        path.heartbeat_sent = (now, nonce)
        return _heartbeat(nonce)

    def probe(self, path: Path, now: float) -> bytes:
        """Return a probe packet for the path MTU; empty if none is due."""
        nonce = self._secret.nonce(_NONCE)
        return path.probing.next(_heartbeat(nonce), nonce, path.rto, now)

    def on_heartbeat_ack(self, chunk: Listed, now: float) -> None:
        """Process a HEARTBEAT ACK.

        Its nonce, which nobody else can know, says which path was tested (5.4).
        """
        answered = parameters.first(chunk.parameters, Kind.HEARTBEAT_INFO)
        for path in self.all:
            # A probe's answer says that its size passes, and does not count as a heartbeat.
            if answered is None or path.probing.answered(answered, now):
                return
            if path.heartbeat_sent is None:
                continue
            sent, nonce = path.heartbeat_sent
            if answered == nonce:
                # The path MTU search starts once the address is known to be the peer's.
                if not path.confirmed:
                    path.probing.begin(now)
                path.heartbeat_sent = None
                path.measured(now - sent)
                self.heard(path)
                path.heartbeat_due = self._next_heartbeat(path, now)
                return


def _heartbeat(nonce: bytes) -> bytes:
    return chunks.encode(Listed(Type.HEARTBEAT, (Parameter(Kind.HEARTBEAT_INFO, nonce),)))
