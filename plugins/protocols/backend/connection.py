"""A conversation in the backend protocol: greeting, envelopes, confirmations, heartbeats.  Sans-I/O.

The phases are few enough for one enum: a listener in ``auto`` is LISTENING until the first bytes (or the silence) say which
format the dialler speaks; an end that has greeted is GREETED until the other's greeting is there; then
EXTENDED, or OLD.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope
from plugins.protocols.backend.decoder import Decoder
from plugins.protocols.backend.envelope_memory import KnownEnvelopes, SentEnvelopes
from plugins.protocols.backend.frames import (
    LONG,
    SHORT_HEADERS,
    Control,
    control_frame,
    encode_bodies,
    header,
)
from plugins.protocols.backend.greeting import Greeting, decode_greeting, encode_greeting
from plugins.protocols.backend.options import BackendOptions
from plugins.protocols.backend.peer_subscriptions import PeerSubscriptions
from plugins.protocols.backend.refusals import Refusals

GREETING_BEGINS = b"\xff\x81"
MISSED_HEARTBEATS = 3
PING_LIMIT = 1024


class Phase(Enum):
    """How far the conversation is."""

    LISTENING = "waiting for the dialler's first bytes"
    GREETED = "waiting for the peer's greeting"
    EXTENDED = "open"
    OLD = "open, in the format of 0.x"
    CLOSED = "closed"


class BackendConnection:
    """``kernel.contracts.protocol.StreamProtocol`` for the backend protocol."""

    def __init__(self, options: BackendOptions, side: str) -> None:
        self._options = options
        self._decoder = Decoder(options.max_message, self._on_control)
        self._out: list[Buffer] = []
        self._peer = Greeting()
        self._peer_envelopes = KnownEnvelopes(options.envelopes, options.envelope_bytes)
        self._our_envelopes = SentEnvelopes(0, 0)
        self._current: Envelope = PLAIN
        self._first = b""  # of a dialler's first frame, while that may still be either format's
        self._sent = 0
        self._confirmed = 0
        self._told: int | None = None  # None: the peer has not asked for confirmations
        self._opened: float | None = None
        self._heard = self._spoke = 0.0
        self._peer_subscriptions = PeerSubscriptions(options.max_subscriptions, options.subscription_bytes)
        self.subscriptions = self._peer_subscriptions.news
        """What the peer has asked for: ("subscribe" or "unsubscribe", pattern); the host takes them out."""
        self._refusals = Refusals()
        self.refused = self._refusals.news
        """Why messages were not sent, one entry each; the host takes them out."""
        if options.format == "0.x":
            self.phase = Phase.OLD
        elif side == "client" or options.format == "extended":
            self.phase = Phase.GREETED
            self._greet()
        else:
            self.phase = Phase.LISTENING

    # ------------------------------------------------------------------ receiving

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        """Take bytes; return the batches that are complete."""
        self._heard = now
        if type(data) is not bytes:
            data = bytes(data)
        phase = self.phase
        if phase is Phase.EXTENDED or phase is Phase.OLD:
            return self._decoder.decode(data)
        if phase is Phase.CLOSED:
            return []
        if phase is Phase.LISTENING:
            data = self._first + data
            if data == GREETING_BEGINS[:1] or not data:
                self._first = data  # the next byte will tell
                return []
            self._recognise(data, now)
        batches = self._decoder.decode(data)
        if batches and self.phase is Phase.GREETED:
            raise RemoteProtocolError('the peer does not greet: set format = "0.x" for it', ())
        return batches

    def room(self) -> memoryview:
        """Where the next bytes of a large message belong; empty when there is none under way."""
        return self._decoder.room()

    def read_hint(self, usual: int) -> int:
        """How many bytes are best read next, where ``usual`` would be read otherwise."""
        return self._decoder.read_hint(usual)

    def filled(self, count: int, now: float) -> list[Batch]:
        """``count`` bytes were received into ``room``."""
        self._heard = now
        return self._decoder.filled(count)

    def receive_eof(self, now: float) -> None:
        """The peer has hung up."""
        if self.phase is not Phase.CLOSED and (self._first or self._decoder.in_message()):
            self.phase = Phase.CLOSED
            raise RemoteProtocolError("the peer hung up in the middle of a message")
        self.phase = Phase.CLOSED

    def _recognise(self, data: bytes, now: float) -> None:
        """The first bytes of a dialler say which format it speaks."""
        self._opened = now
        self._first = b""
        if data.startswith(GREETING_BEGINS):
            self.phase = Phase.GREETED
            self._greet()
        else:
            self.phase = Phase.OLD

    def _on_control(self, control: Control, payload: bytes) -> None:
        if self.phase is Phase.OLD:
            raise RemoteProtocolError(f"{control.name} from a peer of the 0.x format")
        if self.phase is Phase.GREETED and control is not Control.GREETING:
            raise RemoteProtocolError(f"{control.name} before the greeting")
        _HANDLERS[control](self, payload)

    def _on_greeting(self, payload: bytes) -> None:
        if self.phase is not Phase.GREETED:
            raise RemoteProtocolError("a second greeting")
        self._peer = decode_greeting(payload)
        if self._peer.version < 1 or self._peer.envelopes < 1:
            raise RemoteProtocolError(f"an impossible greeting: {self._peer}")
        self._refusals.most = self._peer.max_message
        self._our_envelopes = SentEnvelopes(  # whatever it offers, our memory counts, too
            min(self._peer.envelopes, self._options.envelopes),
            min(self._peer.envelope_bytes, self._options.envelope_bytes),
        )
        self.phase = Phase.EXTENDED
        for pattern in self._options.subscriptions:
            self.subscribe(pattern)

    def _on_envelope(self, payload: bytes) -> None:
        envelope = self._peer_envelopes.learn(payload)
        if envelope is not None:
            self._decoder.envelope = envelope

    def _on_use(self, payload: bytes) -> None:
        self._decoder.envelope = self._peer_envelopes.use(payload)

    def _on_confirm(self, payload: bytes) -> None:
        count = int.from_bytes(payload, "big")
        if len(payload) != 8 or not self._confirmed <= count <= self._sent:
            raise RemoteProtocolError(
                f"a confirmation of {count} after {self._confirmed}; {self._sent} were sent"
            )
        self._confirmed = count

    def _on_want_confirm(self, payload: bytes) -> None:
        if self._told is None:
            self._told = 0

    def _on_ping(self, payload: bytes) -> None:
        if len(payload) > PING_LIMIT:
            raise RemoteProtocolError(f"a ping of {len(payload)} bytes; {PING_LIMIT} are allowed")
        self._out.append(control_frame(Control.PONG, payload))

    def _on_pong(self, payload: bytes) -> None:
        """That it came is all it says."""

    def _on_subscribe(self, payload: bytes) -> None:
        self._peer_subscriptions.subscribe(payload)

    def _on_unsubscribe(self, payload: bytes) -> None:
        self._peer_subscriptions.unsubscribe(payload)

    def _on_close(self, payload: bytes) -> None:
        self.phase = Phase.CLOSED

    # ------------------------------------------------------------------ sending

    def ready_to_send(self) -> bool:
        """Whether messages may be sent."""
        return self.phase is Phase.EXTENDED or self.phase is Phase.OLD

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        """Queue batches."""
        self._spoke = now
        extended = self.phase is Phase.EXTENDED
        if not extended and self.phase is not Phase.OLD:
            raise LocalProtocolError(f"messages cannot be sent now: {self.phase.value}")
        out = self._out
        most = self._refusals.most
        for batch in batches:
            kept = self._refusals.sift(batch, self._sent) if batch.size > most or batch.multipart else batch
            if not kept.bodies or (batch.envelope is not self._current and extended and not self._use(kept)):
                continue
            bodies = kept.bodies
            self._sent += len(bodies)
            if batch.multipart:
                if extended:
                    out += [_parts_frame(parts) for parts in bodies]
                    continue
                bodies = [b"".join(parts) for parts in bodies]
            out += encode_bodies(bodies, kept.width)

    def encode_one(self, body: bytes) -> bytes | None:
        """Return the bytes of one plain message, without detours; None when the long way has to be taken."""
        if self._current is not PLAIN or self._out or not self.ready_to_send():
            return None
        size = len(body)
        if size < LONG:
            return SHORT_HEADERS[size] + body if size <= self._refusals.most else None
        return header(size) + body if size <= self._refusals.most else None

    def decode_one(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is just one plain short message; None when the long way has to be taken."""
        if data and len(data) - 1 == data[0] < LONG and self._decoder.idle() and self.ready_to_send():
            return data[1:] if self._told is None else None  # whoever is to confirm counts
        return None

    def _use(self, batch: Batch) -> bool:
        """Make the batch's envelope the one of what follows; False when the peer cannot have it, nor then the batch."""
        try:
            frames = self._our_envelopes.put_into_force(batch.envelope)
        except ValueError as error:
            self._refusals.refuse(batch, self._sent, str(error))
            return False
        self._current = batch.envelope
        self._out += frames
        return True

    def data_to_send(self) -> list[Buffer]:
        """Return and forget what is to be written."""
        out, self._out = self._out, []
        return out

    def subscribe(self, pattern: str) -> None:
        """Ask the peer for messages whose key matches."""
        if self.phase is Phase.EXTENDED:
            self._out.append(control_frame(Control.SUBSCRIBE, pattern.encode()))

    def unsubscribe(self, pattern: str) -> None:
        """Take that back."""
        if self.phase is Phase.EXTENDED:
            self._out.append(control_frame(Control.UNSUBSCRIBE, pattern.encode()))

    def confirm(self, count: int) -> None:
        """Tell the peer that the first ``count`` messages are safe."""
        if self.phase is Phase.EXTENDED and self._told is not None and count > self._told:
            self._told = count
            self._out.append(control_frame(Control.CONFIRM, count.to_bytes(8, "big")))

    def want_confirm(self) -> None:
        """Ask the peer to confirm what it receives; it does not unless it is asked."""
        if self.phase is Phase.EXTENDED:
            self._out.append(control_frame(Control.WANT_CONFIRM))

    def confirmed(self) -> int | None:
        """What the peer has confirmed; None when it cannot."""
        if not self._peer.confirm:
            return None
        return self._refusals.confirmed(self._confirmed)  # also of a peer that has said good-bye since

    def close(self, reason: str, now: float) -> None:
        """Say good-bye."""
        if self.phase is Phase.EXTENDED:
            self._out.append(control_frame(Control.CLOSE, reason.encode()))
        self.phase = Phase.CLOSED

    def closed(self) -> bool:
        """Whether the conversation is over."""
        return self.phase is Phase.CLOSED

    def _greet(self) -> None:
        options = self._options
        greeting = Greeting(
            confirm=True,
            heartbeat=int(options.heartbeat * 1000),
            max_message=options.max_message,
            envelopes=options.envelopes,
            envelope_bytes=options.envelope_bytes,
        )
        self._out.append(control_frame(Control.GREETING, encode_greeting(greeting)))

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """When to call ``handle_timeout``."""
        if self._opened is None:
            return 0.0  # the first call tells us the time
        if self.phase is Phase.LISTENING:
            return self._opened + self._options.recognition
        if self.phase is Phase.GREETED:
            return self._opened + self._options.handshake
        if self.phase is Phase.EXTENDED:
            return min(self._speak_at(), self._silent_at())
        return None

    def handle_timeout(self, now: float) -> None:
        """Do what is due."""
        if self._opened is None:
            self._opened = self._heard = self._spoke = now
        elif self.phase is Phase.LISTENING and now >= self._opened + self._options.recognition:
            self.phase = Phase.OLD  # a listener of 0.x would not greet either
            self._decoder.decode(self._first)
            self._first = b""
        elif self.phase is Phase.GREETED and now >= self._opened + self._options.handshake:
            raise RemoteProtocolError(f"no greeting within {self._options.handshake} s")
        elif self.phase is Phase.EXTENDED:
            if now >= self._silent_at():
                raise RemoteProtocolError(f"nothing heard for {now - self._heard:.1f} s")
            if now >= self._speak_at():
                self._spoke = now
                self._out.append(control_frame(Control.PING))

    def _speak_at(self) -> float:
        return self._spoke + self._options.heartbeat if self._options.heartbeat else float("inf")

    def _silent_at(self) -> float:
        promise = self._peer.heartbeat / 1000
        return self._heard + promise * MISSED_HEARTBEATS if promise else float("inf")


def _parts_frame(parts: Sequence[Buffer]) -> bytes:
    return control_frame(
        Control.PARTS, b"".join([piece for part in parts for piece in (header(len(part)), part)])
    )


_HANDLERS: dict[Control, Callable[[BackendConnection, bytes], None]] = {
    Control.GREETING: BackendConnection._on_greeting,
    Control.ENVELOPE: BackendConnection._on_envelope,
    Control.USE: BackendConnection._on_use,
    Control.CONFIRM: BackendConnection._on_confirm,
    Control.PING: BackendConnection._on_ping,
    Control.PONG: BackendConnection._on_pong,
    Control.SUBSCRIBE: BackendConnection._on_subscribe,
    Control.UNSUBSCRIBE: BackendConnection._on_unsubscribe,
    Control.CLOSE: BackendConnection._on_close,
    Control.WANT_CONFIRM: BackendConnection._on_want_confirm,
}
