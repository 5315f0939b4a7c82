"""Stream reconfiguration: resetting streams to SSN 0, and adding streams (RFC 6525).

One request of ours is outstanding at a time, and is repeated until it is answered. Messages for streams that
we reset wait meanwhile. Of the peer's requests, resetting its outgoing streams, resetting ours, and adding
outgoing streams are performed; all others are denied.

An outgoing reset is sent only when everything on those streams is acknowledged, abandoned messages included.
Otherwise the peer could be told an old number in a FORWARD-TSN after the reset, and would take it for a new
one: messages were lost that way.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from plugins.protocols.sctp import chunks
from plugins.protocols.sctp.chunks import Listed, Type
from plugins.protocols.sctp.events import Event, What
from plugins.protocols.sctp.parameters import Kind, Parameter
from plugins.protocols.sctp.path import Path
from plugins.protocols.sctp.sequence import MASK16, MASK32, unwrapped
from plugins.protocols.sctp.states import SENDING, State

if TYPE_CHECKING:
    from plugins.protocols.sctp.association import Association

_OUTGOING = Struct(">III")
_PAIR = Struct(">II")
_MAX_STREAMS = 200
"""Streams in one request, which has to fit into a packet."""
NOTHING_TO_DO, PERFORMED, DENIED, BAD_NUMBER, IN_PROGRESS = 0, 1, 2, 5, 6
_DEFINITE = frozenset((NOTHING_TO_DO, PERFORMED))


def _four(number: int) -> bytes:
    return (number & MASK32).to_bytes(4, "big")


def _streams(value: bytes) -> tuple[int, ...]:
    return tuple(int.from_bytes(value[at : at + 2], "big") for at in range(0, len(value) - 1, 2))


class Reconfiguration:
    """The stream reconfiguration part of an association."""

    def __init__(self, association: Association) -> None:
        self.agreed = False
        """Whether the peer supports it."""
        self.timer: float | None = None
        """When our outstanding request is repeated."""
        self._association = association
        # RFC 6525: request numbers begin with the sender's first TSN.
        self._number = association.first_tsn
        """Sequence number of our next request."""
        self._queued: dict[Kind, tuple[int, ...]] = {}
        """Requests that wait to be sent, and their streams."""
        self._in_reply_to = 0
        self._request: bytes | None = None
        """The encoded request that is outstanding; its kind is ``_kind``, its streams are ``_requested``."""
        self._kind = Kind.OUTGOING_RESET
        self._requested: tuple[int, ...] = ()
        self._expected = 0
        """Sequence number of the peer's next request."""
        self._response = Parameter(Kind.RECONFIGURATION_RESPONSE)
        self._deferred: tuple[int, int, tuple[int, ...]] | None = None
        """A request of the peer that waits for data: its number, the TSN that it waits for, and its streams.
        """

    def agree(self, peer_tsn: int, *, agreed: bool) -> None:
        self.agreed = agreed
        self._expected = peer_tsn
        self._in_reply_to = peer_tsn - 1

    # ------------------------------------------------------------------ ours

    def reset(self, streams: set[int]) -> None:
        """Reset streams of ours once everything that was queued on them is acknowledged.

        Raises ``LocalProtocolError``.
        """
        sender = self._association.sender
        self._check(Kind.OUTGOING_RESET, streams, sender.streams)
        self._queued[Kind.OUTGOING_RESET] = tuple(sorted(streams))
        # From now on new messages of these streams wait: numbers must not be used both before and after the
        # reset.
        sender.paused = frozenset(streams)

    def ask_for_reset(self, streams: set[int]) -> None:
        """Ask the peer to reset its outgoing streams. Raises ``LocalProtocolError``."""
        receiver = self._association.receiver
        self._check(Kind.INCOMING_RESET, streams, receiver.streams if receiver is not None else 0)
        self._queued[Kind.INCOMING_RESET] = tuple(sorted(streams))

    def add(self, count: int) -> None:
        """Ask the peer for more outbound streams. Raises ``LocalProtocolError``."""
        current = self._association.sender.streams
        self._check(Kind.ADD_OUTGOING, {0}, 1)
        if not 0 < count <= MASK16 - current:
            raise LocalProtocolError(f"1 to {MASK16 - current} streams can be added to {current}")
        self._queued[Kind.ADD_OUTGOING] = tuple(range(current, current + count))

    def _check(self, kind: Kind, streams: set[int], available: int) -> None:
        """Raise ``LocalProtocolError`` if this cannot be requested now."""
        if not self.agreed or self._association.state is not State.ESTABLISHED:
            raise LocalProtocolError(
                "streams cannot be reset or added: the peer does not support it, or the association is not established"
            )
        if not streams or max(streams) >= available or min(streams) < 0 or len(streams) > _MAX_STREAMS:
            raise LocalProtocolError(f"1 to {_MAX_STREAMS} streams of 0 to {available - 1} can be reset")
        if kind in self._queued or (self._request is not None and self._kind is kind):
            raise LocalProtocolError("this was requested already; an event will report the outcome")

    def send_requests(self, now: float) -> bool:
        """Send the next request that nothing prevents; return whether one was sent."""
        # One request is outstanding at a time (RFC 6525).
        if self._request is not None:
            return False
        for kind, streams in self._queued.items():
            # Another request may overtake this one: it does not depend on these streams.
            if kind is Kind.OUTGOING_RESET and self._association.sender.has_unacknowledged(streams):
                continue
            del self._queued[kind]
            self._kind, self._requested = kind, streams
            # Encoded once, when it is sent for the first time: a repetition must be identical.
            parameter = Parameter(kind, _four(self._number) + self._request_body())
            self._request = chunks.encode(Listed(Type.RE_CONFIG, (parameter,)))
            self._send_request(now)
            return True
        return False

    def _request_body(self) -> bytes:
        """Return the body of the request, behind its sequence number (RFC 6525, 4.1, 4.2, 4.5)."""
        if self._kind is Kind.ADD_OUTGOING:
            return len(self._requested).to_bytes(2, "big") + b"\0\0"
        streams = b"".join(stream.to_bytes(2, "big") for stream in self._requested)
        if self._kind is Kind.INCOMING_RESET:
            return streams
        # The peer resets only when it has everything up to this TSN.
        last = self._association.sender.outstanding.next_tsn - 1
        return _four(self._in_reply_to) + _four(last) + streams

    def _send_request(self, now: float) -> None:
        assert self._request is not None
        path = self._association.paths.current()
        self._association.output.reply(path.address, self._request)
        self.timer = now + path.rto

    def handle_timeout(self, now: float) -> None:
        association = self._association
        if self.timer is None or self.timer > now:
            return
        path = association.paths.current()
        path.back_off()
        if association.state not in SENDING:
            self.timer = None
        # Counts as an error of the association, like a retransmission of data.
        elif association.paths.failed(path):
            association.end(What.LOST, "no response to a reset of streams")
        else:
            self._send_request(now)

    def _on_response(self, value: bytes) -> None:
        if len(value) < _PAIR.size:
            raise RemoteProtocolError("a re-configuration response that is too short")
        number, result = _PAIR.unpack_from(value)
        # In progress: the timer repeats the request, until the peer has the data that it waits for.
        if result != IN_PROGRESS:
            self._finish_request(number, done=result in _DEFINITE)

    def _finish_request(self, number: int, *, done: bool) -> None:
        """Finish our request with that number, if it is outstanding."""
        if self._request is None or number != self._number & MASK32:
            return
        # The next request gets the next number only when this one is answered.
        self._number += 1
        self._request = self.timer = None
        sender, streams = self._association.sender, self._requested
        if self._kind is Kind.ADD_OUTGOING:
            sender.streams += len(streams) if done else 0
            self._report(What.STREAMS_ADDED if done else What.ADDING_REFUSED, streams, "ours")
        elif self._kind is Kind.OUTGOING_RESET:
            sender.resume(reset=done)
            self._report(What.STREAMS_RESET if done else What.RESET_REFUSED, streams, "ours")
        # Success is reported when the peer's own request to reset has been performed.
        elif not done:
            self._report(What.RESET_REFUSED, streams, "the peer's")

    def _report(self, what: What, streams: tuple[int, ...], whose: str) -> None:
        self._association.events.append(Event(what=what, streams=streams, detail=whose))

    # ------------------------------------------------------------------ theirs

    def on_chunk(self, chunk: Listed, path: Path, now: float) -> None:
        """Process a RE-CONFIG chunk."""
        if not self.agreed or self._association.receiver is None or self._association.state not in SENDING:
            return
        for parameter in chunk.parameters:
            if parameter.kind == Kind.RECONFIGURATION_RESPONSE:
                self._on_response(parameter.value)
            elif Kind.OUTGOING_RESET <= parameter.kind <= Kind.ADD_INCOMING:
                self._on_request(parameter, path)

    def _on_request(self, parameter: Parameter, path: Path) -> None:
        value = parameter.value
        if len(value) < 4:
            raise RemoteProtocolError("a re-configuration request that is too short")
        number = unwrapped(int.from_bytes(value[:4], "big"), self._expected)
        # The next request is performed once; a repetition of the last one gets the same response again, since
        # the response was lost or has changed since (IN_PROGRESS).
        if number == self._expected:
            self._expected += 1
            self._in_reply_to = number
            self._set_response(number, self._perform_request(parameter, number))
        elif number != self._expected - 1:
            response = Parameter(Kind.RECONFIGURATION_RESPONSE, _PAIR.pack(number & MASK32, BAD_NUMBER))
            self._send_response(response, path)
            return
        self._send_response(self._response, path)

    def _set_response(self, number: int, result: int) -> None:
        self._response = Parameter(Kind.RECONFIGURATION_RESPONSE, _PAIR.pack(number & MASK32, result))

    def _send_response(self, response: Parameter, path: Path) -> None:
        self._association.output.reply(path.address, chunks.encode(Listed(Type.RE_CONFIG, (response,))))

    def _perform_request(self, parameter: Parameter, number: int) -> int:
        """Perform a new request of the peer; return the result code."""
        association, value = self._association, parameter.value
        receiver = association.receiver
        assert receiver is not None
        if parameter.kind == Kind.OUTGOING_RESET and len(value) >= _OUTGOING.size:
            _, in_reply_to, wire_last = _OUTGOING.unpack_from(value)
            # The peer's outgoing reset is also the answer to our request for it: it names that request.
            if self._kind is Kind.INCOMING_RESET:
                self._finish_request(in_reply_to, done=True)
            last = unwrapped(wire_last, receiver.received.cumulative)
            # Performed at once if all data is here, else when it has arrived (``data_received``).
            self._deferred = (number, last, _streams(value[12:]))
            return PERFORMED if self._reset_if_complete() else IN_PROGRESS
        if parameter.kind == Kind.INCOMING_RESET:
            return self._reset_for_peer(set(_streams(value[4:])))
        if parameter.kind == Kind.ADD_OUTGOING and len(value) >= 6:
            return PERFORMED if receiver.add_streams(int.from_bytes(value[4:6], "big")) else DENIED
        return DENIED

    def _reset_for_peer(self, streams: set[int]) -> int:
        """Reset our outgoing streams at the peer's request; no ``streams`` means all."""
        try:
            self.reset(streams or set(range(min(self._association.sender.streams, _MAX_STREAMS))))
        except LocalProtocolError:
            return DENIED
        return PERFORMED

    def data_received(self, path: Path) -> None:
        """Perform a deferred request if the data that it waited for has arrived."""
        if self._deferred is not None:
            number = self._deferred[0]
            if self._reset_if_complete():
                self._set_response(number, PERFORMED)
                self._send_response(self._response, path)

    def _reset_if_complete(self) -> bool:
        """Reset the peer's streams if all data sent before the request has arrived.

        Return whether it was done.
        """
        assert self._deferred is not None
        assert self._association.receiver is not None
        _, last, streams = self._deferred
        if self._association.receiver.received.cumulative < last:
            return False
        # Before the report: the streams are reset once only.
        self._deferred = None
        self._association.receiver.reset_streams(streams)
        self._report(What.STREAMS_RESET, streams, "the peer's")
        return True
