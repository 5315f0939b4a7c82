"""Which paths there are, which of them live, and which is taken (RFC 9260, 5.4, 6.4, 8)."""

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
    """The peer's addresses.  ``all`` is one list for the life of the association; the first is preferred."""

    def __init__(self, options: SctpOptions, secret: Secret, events: list[Event]) -> None:
        self.all: list[Path] = []
        self.unknown: list[bytes] = []
        """Addresses that the endpoint has not taken note of yet."""
        self.errors = 0
        """In a row, on all paths together."""
        self._options = options
        self._secret = secret
        self._events = events

    def add(self, addresses: list[bytes], *, confirmed: bytes) -> None:
        """Add those that are new; only the one that the peer was heard from is confirmed."""
        known = {path.address for path in self.all}
        for address in addresses:
            if address not in known:
                self.unknown.append(address)
                self.all.append(Path(address, self._options, confirmed=address == confirmed))

    def at(self, address: bytes) -> Path | None:
        for path in self.all:
            if path.address == address:
                return path
        return None

    def current(self) -> Path:
        """Return the path for new data: the first that is usable, else the first."""
        for path in self.all:
            if path.usable():
                return path
        return self.all[0]

    def other_than(self, path: Path) -> Path:
        """Return a usable path that is not ``path``; without one, the next that is confirmed, or ``path`` itself."""
        at = self.all.index(path)
        others = [other for other in self.all[at + 1 :] + self.all[:at] if other.confirmed]
        for other in others:
            if other.active:
                return other
        return others[0] if others and not path.active else path

    # ------------------------------------------------------------------ health

    def failed(self, path: Path) -> bool:
        """Count a time-out on a path; return whether the association is lost."""
        path.errors += 1
        if path.confirmed:
            self.errors += 1
        if path.active and path.errors > self._options.path_tries:
            path.active = False
            self._events.append(Event(what=What.PATH_DOWN, address=path.address))
        return self.errors > self._options.association_tries

    def heard(self, path: Path) -> None:
        """The peer has answered on that path."""
        self.errors = path.errors = 0
        path.confirmed = True
        if not path.active:
            path.active = True
            self._events.append(Event(what=What.PATH_UP, address=path.address))

    def deadline(self) -> list[float]:
        """Return the times at which something is due on a path."""
        return [
            due
            for path in self.all
            for due in (path.retransmission_due, path.heartbeat_due, path.probing.due)
            if due is not None
        ]

    # ------------------------------------------------------------------ heartbeats

    def start_heartbeats(self, now: float) -> None:
        for path in self.all:
            path.heartbeat_due = now if not path.confirmed else self._next_heartbeat(path, now)
            if path.confirmed:
                path.probing.begin(now)

    def stop_heartbeats(self) -> None:
        for path in self.all:
            path.heartbeat_due = path.heartbeat_sent = None
            path.probing.stop()

    def _next_heartbeat(self, path: Path, now: float) -> float:
        pause = self._options.heartbeat if path.confirmed else 0.0
        return now + pause + path.rto * (0.5 + self._secret.share())

    def heartbeat(self, path: Path, now: float) -> bytes | None:
        """Return the chunk that is due; None while data shows how the path is."""
        path.heartbeat_due = self._next_heartbeat(path, now)
        if path.flight:
            return None
        nonce = self._secret.nonce(_NONCE)
        path.heartbeat_sent = (now, nonce)
        return _heartbeat(nonce)

    def probe(self, path: Path, now: float) -> bytes:
        """Return the chunks of a packet that shows whether its size passes; none when it is not the time."""
        nonce = self._secret.nonce(_NONCE)
        return path.probing.next(_heartbeat(nonce), nonce, path.rto, now)

    def on_heartbeat_ack(self, chunk: Listed, now: float) -> None:
        """Take an answer in, if it is one: the nonce says of which path."""
        answered = parameters.first(chunk.parameters, Kind.HEARTBEAT_INFO)
        for path in self.all:
            if answered is None or path.probing.answered(answered, now):
                return
            if path.heartbeat_sent is None:
                continue
            sent, nonce = path.heartbeat_sent
            if answered == nonce:
                if not path.confirmed:
                    path.probing.begin(now)
                path.heartbeat_sent = None
                path.measured(now - sent)
                self.heard(path)
                path.heartbeat_due = self._next_heartbeat(path, now)
                return


def _heartbeat(nonce: bytes) -> bytes:
    return chunks.encode(Listed(Type.HEARTBEAT, (Parameter(Kind.HEARTBEAT_INFO, nonce),)))
