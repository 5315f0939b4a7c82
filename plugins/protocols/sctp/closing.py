"""Graceful shutdown (RFC 9260, 9.2).

The side that closes waits until everything is acknowledged (SHUTDOWN-PENDING), and sends SHUTDOWN
(SHUTDOWN-SENT). The other side sends what it still has (SHUTDOWN-RECEIVED), then SHUTDOWN ACK
(SHUTDOWN-ACK-SENT). SHUTDOWN COMPLETE ends it at both. T2-shutdown repeats SHUTDOWN and SHUTDOWN ACK;
T5-shutdown-guard limits the whole.

SHUTDOWN COMPLETE is not repeated by a timer. If it is lost, the peer repeats its SHUTDOWN ACK after its RTO,
and the endpoint, which has no association any more, answers that (8.4, rule 5). So a host that has sent
SHUTDOWN COMPLETE keeps its endpoint for a while (``repeat_time``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from plugins.protocols.sctp import chunks
from plugins.protocols.sctp.chunks import Plain, Sack, Shutdown, Type
from plugins.protocols.sctp.events import Event, What
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.sequence import MASK32
from plugins.protocols.sctp.states import DRAINING, SENDING, SHUTDOWN_SENT, SHUTTING_DOWN, State

if TYPE_CHECKING:
    from plugins.protocols.sctp.association import Association

_EXPECTED_RTOS = 10
"""RTOs in which a shutdown is complete unless the path has failed: time to send a chunk, and to repeat it
three times, with a timeout that doubles."""
_GUARD_RTOS = 5
"""T5-shutdown-guard in multiples of ``rto_max``: 5 times RTO.Max, as section 9.2 recommends."""


class Closing:
    """The shutdown part of an association."""

    def __init__(self, association: Association) -> None:
        self._association = association
        self._timer: float | None = None
        """When T2-shutdown expires; None: it is not running."""
        self._guard: float | None = None
        """When T5-shutdown-guard expires."""
        self.completed_peer = False
        """Whether we have sent SHUTDOWN COMPLETE."""

    def expected_time(self) -> float:
        """Return the seconds in which the shutdown is complete, by the measured round trip."""
        return _EXPECTED_RTOS * self._association.paths.current().rto

    def repeat_time(self) -> float:
        """Return the seconds in which the peer repeats SHUTDOWN ACK if our SHUTDOWN COMPLETE is lost.

        The peer's RTO is not known. Ours was measured on the same path.
        """
        path = self._association.paths.current()
        return path.rto + (path.srtt or 0.0)

    def begin(self, now: float) -> None:
        """Start the shutdown, at the host's request. An association that is not established is aborted."""
        association = self._association
        if association.state is State.ESTABLISHED:
            association.state = State.SHUTDOWN_PENDING
            # The last DATA chunks ask for SACKs at once: the shutdown waits for them.
            association.sender.immediate_acks = True
        elif association.state in (State.COOKIE_WAIT, State.COOKIE_ECHOED):
            association.abort("closed before the handshake was complete")

    def advance(self, now: float) -> bool:
        """Send SHUTDOWN or SHUTDOWN ACK once everything is acknowledged; return whether that was done now."""
        association = self._association
        if association.state not in DRAINING or not association.sender.is_empty():
            return False
        association.state = (
            SHUTDOWN_SENT if association.state is State.SHUTDOWN_PENDING else State.SHUTDOWN_ACK_SENT
        )
        # T2-shutdown now tests the path; a heartbeat's failure must not end a shutdown earlier than that.
        association.paths.stop_heartbeats()
        # A peer that goes on to send data could prolong a shutdown for ever: each packet restarts T2-shutdown
        # (9.2).
        self._guard = now + _GUARD_RTOS * association.options.rto_max
        self._send_shutdown(now)
        return True

    def _send_shutdown(self, now: float) -> None:
        association = self._association
        path = association.paths.current()
        if association.state is SHUTDOWN_SENT:
            assert association.receiver is not None
            chunk = chunks.encode(Shutdown(association.receiver.received.cumulative & MASK32))
        else:
            chunk = chunks.encode(Plain(Type.SHUTDOWN_ACK))
        association.output.reply(path.address, chunk)
        self._timer = now + path.rto

    def deadlines(self) -> list[float]:
        return [at for at in (self._timer, self._guard) if at is not None]

    def handle_timeout(self, now: float) -> None:
        association = self._association
        if self._guard is not None and self._guard <= now:
            association.abort("the shutdown was not completed in time")
        elif self._timer is not None and self._timer <= now and association.state in SHUTTING_DOWN:
            path = association.paths.current()
            path.back_off()
            if association.paths.failed(path):
                association.end(What.LOST, "no answer to the shutdown")
            else:
                self._send_shutdown(now)

    def data_received(self, now: float) -> None:
        """Answer data that arrives in SHUTDOWN-SENT with another SHUTDOWN, which acknowledges it (9.2)."""
        if self._association.state is SHUTDOWN_SENT:
            self._send_shutdown(now)

    def repeat_shutdown_ack(self, now: float) -> None:
        """Repeat SHUTDOWN ACK: it, or the peer's SHUTDOWN COMPLETE, was lost."""
        self._send_shutdown(now)

    def on_shutdown(self, chunk: Shutdown, path: Path, now: float) -> None:
        association = self._association
        # Both sides shut down at once: the SHUTDOWNs have crossed.
        if association.state is SHUTDOWN_SENT:
            association.state = State.SHUTDOWN_ACK_SENT
            self._send_shutdown(now)
        elif association.state is State.SHUTDOWN_ACK_SENT:
            self.repeat_shutdown_ack(now)
        elif association.state in SENDING:
            if association.state is not State.SHUTDOWN_RECEIVED:
                association.state = State.SHUTDOWN_RECEIVED
                association.events.append(Event(what=What.SHUTTING_DOWN))
            # SHUTDOWN acknowledges like a SACK without gap blocks (9.2). It has no window, so that the last
            # one stays valid.
            acknowledged = Sack(cumulative=chunk.cumulative, window=association.sender.peer_window)
            association.sender.on_sack(acknowledged, now, names_gaps=False)

    def on_shutdown_ack(self, chunk: Plain, path: Path, now: float) -> None:
        association = self._association
        if association.state in SHUTTING_DOWN:
            # SHUTDOWN COMPLETE must be alone in its packet (6.10).
            association.output.alone(path.address, chunks.encode(Plain(Type.SHUTDOWN_COMPLETE)))
            self.completed_peer = True
            association.end(What.CLOSED)

    def on_shutdown_complete(self, chunk: Plain, path: Path, now: float) -> None:
        # In any other state the chunk is discarded (9.2).
        if self._association.state is State.SHUTDOWN_ACK_SENT:
            self._association.end(What.CLOSED)
