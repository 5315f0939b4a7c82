"""A conversation in the backend protocol: greeting, envelopes, confirmations, heartbeats.  Sans-I/O.

``docs/backend_protocol.md`` is the specification; an example of the bytes of each frame is there.

Phases
------

* LISTENING: a listener with ``format = "auto"``, until it knows which format the dialler uses.  If the first
  two bytes begin a GREETING, the listener greets, too, and goes to GREETED.  After any other bytes, or
  ``recognition`` seconds of silence, it goes to OLD.
* GREETED: this side has sent its GREETING and waits for that of the peer.  Nothing else may be sent or
  received.
* EXTENDED: both have greeted.  OLD: messages only, in the format of 0.x.  Messages flow in these two phases.
* CLOSED: CLOSE or the end of the wire came, or ``close`` was called.

Invariants
----------

* ``sent`` counts the messages that were sent.  The peer's CONFIRM frames have such a count; it never goes
  backwards and never exceeds ``sent``.
* ``_current`` is the envelope that applies at the peer to the next message; a batch with another envelope is
  preceded by an ENVELOPE or USE frame.  ``_decoder.envelope`` is the same for the other direction.
* Messages that the peer would not accept are not sent (``refusals.py``).  The host learns of them from
  ``refused``.  ``confirmed`` counts them, too.
* ``_questions`` has the numbers of the peer's SYNC frames that are not answered, ``_own_questions`` those of
  this side.  Both are limited: the first by ``OPEN_SYNCS``, the second by the host.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from kernel.contracts.message import PLAIN, Batch, Buffer, Envelope, batch_of
from kernel.contracts.mixed_batch import MIXED, EnvelopesByKey, MixedBatch, envelope_of
from plugins.protocols.backend.decoder import Decoder
from plugins.protocols.backend.envelope_memory import KnownEnvelopes, SentEnvelopes
from plugins.protocols.backend.frames import (
    LONG,
    REFERENCE_FROM,
    SHORT_HEADERS,
    Control,
    control_frame,
    encode_bodies,
    header,
)
from plugins.protocols.backend.greeting import Greeting, decode_greeting, encode_greeting
from plugins.protocols.backend.mixed import KEYS, TOGETHER, MixedSender, count_of, decode_mixed
from plugins.protocols.backend.options import BackendOptions
from plugins.protocols.backend.peer_subscriptions import PeerSubscriptions
from plugins.protocols.backend.refusals import Refusals

GREETING_BEGINS = b"\xff\x81"
"""No message of the old format begins with these bytes: it would have 2**63 bytes or more."""
MISSED_HEARTBEATS = 3
"""Heartbeat intervals of silence after which a peer counts as lost."""
PING_LIMIT = 1024
"""Bytes of the payload of a PING: each is answered with as many, so that a peer must not ask for more."""

OPEN_SYNCS = 64
"""SYNC frames of the peer that may be open at a time.  A kernel has one open for each number of hops, which
is 16 at the most (``kernel.contracts.engine.HOPS``)."""
SYNC_SIZE, SYNCED_SIZE = 9, 8
"""Bytes of their payloads: a number, and the hops."""


class Phase(Enum):
    """The phase of a conversation; the text says what it means."""

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
        self.read_hint: Callable[[int], int] = self._decoder.read_hint
        """Returns how many bytes to read next (``LargeBodies``)."""
        self._out: list[Buffer] = []
        self._peer = Greeting()
        self._peer_envelopes = KnownEnvelopes(options.envelopes, options.envelope_bytes)
        self._our_envelopes = SentEnvelopes(0, 0)
        self._mixed: MixedSender | None = None
        """None: the peer does not read MIXED frames."""
        self.mixing: bool = False
        """Whether the host accepts mixed batches (``Mixing``)."""
        self._by_key = EnvelopesByKey()
        self._current: Envelope = PLAIN
        self._first_bytes = b""
        """What a dialler has sent while its format is unknown: nothing, or the byte 0xFF."""
        self.sent: int = 0
        self._confirmed = 0
        self._confirmed_to_peer: int | None = None
        """None: the peer has not asked for confirmations."""
        self._opened: float | None = None
        self._last_received = self._last_sent = 0.0
        self._peer_subscriptions = PeerSubscriptions(options.max_subscriptions, options.subscription_bytes)
        self.subscriptions = self._peer_subscriptions.news
        """("subscribe" or "unsubscribe", pattern) of the peer's frames.  The host reads and removes the
        entries."""
        self._on_sync: Callable[[int, int], Any] | None = None
        """None: the host does not take part, so SYNC frames are neither answered nor sent."""
        self._on_synced: Callable[[int], Any] | None = None
        self._questions: set[int] = set()
        self._own_questions: set[int] = set()
        self._interval = options.heartbeat or math.inf
        """Seconds without a byte of this side after which it pings."""
        self._time_limit = math.inf
        """Seconds without a byte of the peer after which it counts as lost."""
        self._refusals = Refusals()
        self.refused = self._refusals.news
        """An entry for each message that was not sent.  The host reads and removes the entries."""
        if options.format == "0.x":
            self.phase = Phase.OLD
        # A dialler greets at once.  So does a listener that serves nothing but the extension.
        elif side == "client" or options.format == "extended":
            self.phase = Phase.GREETED
            self._greet()
        else:
            self.phase = Phase.LISTENING

    # ------------------------------------------------------------------ receiving

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        """Process bytes from the peer; return complete batches.  Raises ``RemoteProtocolError``."""
        self._last_received = now
        if type(data) is not bytes:
            data = bytes(data)
        phase = self.phase
        # The two phases in which messages flow come first.  The others are passed once a connection.
        if phase is Phase.EXTENDED or phase is Phase.OLD:
            return self._decoder.decode(data)
        if phase is Phase.CLOSED:
            return []
        if phase is Phase.LISTENING:
            data = self._first_bytes + data
            # One byte does not decide: the byte 0xFF begins both a long message of the old format and a
            # GREETING.  The second byte does.
            if data == GREETING_BEGINS[:1] or not data:
                self._first_bytes = data
                return []
            self._recognise(data, now)
        batches = self._decoder.decode(data)
        # A peer of the extension sends nothing before it has greeted, so this one has the old format.
        if batches and self.phase is Phase.GREETED:
            raise RemoteProtocolError('the peer does not greet: set format = "0.x" for it', ())
        return batches

    def room(self) -> memoryview:
        """Return the buffer for the next bytes of a large message; empty if none is being received."""
        return self._decoder.room()

    def filled(self, count: int, now: float) -> list[Batch]:
        """``count`` bytes were received into ``room``; return the batches that they complete."""
        self._last_received = now
        return self._decoder.filled(count)

    def receive_eof(self, now: float) -> None:
        """The peer has closed the wire.  Raises ``RemoteProtocolError`` if a message is incomplete."""
        if self.phase is not Phase.CLOSED and (self._first_bytes or self._decoder.in_message()):
            self.phase = Phase.CLOSED
            raise RemoteProtocolError("the peer hung up in the middle of a message")
        self.phase = Phase.CLOSED

    def _recognise(self, data: bytes, now: float) -> None:
        """Recognise the format of the dialler by its first bytes."""
        self._opened = now
        self._first_bytes = b""
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
        # An ENVELOPE has to have a number below ``envelopes``, so there must be one.
        if self._peer.version < 1 or self._peer.envelopes < 1:
            raise RemoteProtocolError(f"an impossible greeting: {self._peer}")
        self._refusals.most = self._peer.max_message
        # The peer has announced its own interval; ours does not matter here.
        if self._peer.heartbeat:
            self._time_limit = self._peer.heartbeat / 1000 * MISSED_HEARTBEATS
        # The peer may offer more than our own limits, which also bound the memory of this side.
        self._our_envelopes = SentEnvelopes(
            min(self._peer.envelopes, self._options.envelopes),
            min(self._peer.envelope_bytes, self._options.envelope_bytes),
        )
        if self._peer.mixed:
            self._mixed = MixedSender(self._our_envelopes, keys=self._peer.mixed >= KEYS)
        self.phase = Phase.EXTENDED
        # Subscriptions may be sent only now: nothing but the GREETING goes out before the peer has greeted.
        for pattern in self._options.subscriptions:
            self.subscribe(pattern)

    def _on_envelope(self, payload: bytes) -> None:
        envelope = self._peer_envelopes.learn(payload)
        if envelope is not None:
            self._decoder.envelope = envelope

    def _on_mixed(self, payload: bytes) -> None:
        by_key = None if self.mixing else self._by_key
        self._decoder.insert(decode_mixed(payload, self._peer_envelopes, self._options.max_message, by_key))

    def _on_use(self, payload: bytes) -> None:
        self._decoder.envelope = self._peer_envelopes.use(payload)

    def _on_confirm(self, payload: bytes) -> None:
        # No more than eight bytes: Python refuses to write numbers of over 4,300 digits into a message.
        count = int.from_bytes(payload[:8], "big")
        # A count beyond what was sent would make the source forget messages that nobody has.
        if len(payload) != 8 or not self._confirmed <= count <= self.sent:
            raise RemoteProtocolError(
                f"a confirmation of {count} after {self._confirmed}; {self.sent} were sent"
            )
        self._confirmed = count

    def _on_want_confirm(self, payload: bytes) -> None:
        # A second WANT_CONFIRM changes nothing: the count goes on.
        if self._confirmed_to_peer is None:
            self._confirmed_to_peer = 0

    def _on_ping(self, payload: bytes) -> None:
        if len(payload) > PING_LIMIT:
            raise RemoteProtocolError(f"a ping of {len(payload)} bytes; {PING_LIMIT} are allowed")
        self._out.append(control_frame(Control.PONG, payload))

    def _on_pong(self, payload: bytes) -> None:
        """Nothing to do: ``receive_data`` has noted that the peer is alive."""

    def _on_subscribe(self, payload: bytes) -> None:
        self._peer_subscriptions.subscribe(payload)

    def _on_unsubscribe(self, payload: bytes) -> None:
        self._peer_subscriptions.unsubscribe(payload)

    def _on_sync_frame(self, payload: bytes) -> None:
        if self._on_sync is None:
            raise RemoteProtocolError("SYNC, which the greeting of this side does not offer")
        if len(payload) != SYNC_SIZE:
            raise RemoteProtocolError(f"a SYNC of {len(payload)} bytes; it has {SYNC_SIZE}")
        number = int.from_bytes(payload[:8], "big")
        if number in self._questions:
            raise RemoteProtocolError(f"SYNC {number} again, before it was answered")
        # The host remembers something for each open one, so there is a limit.
        if len(self._questions) == OPEN_SYNCS:
            raise RemoteProtocolError(f"more than {OPEN_SYNCS} SYNC frames that are not answered")
        self._questions.add(number)
        self._on_sync(number, payload[8])

    def _on_synced_frame(self, payload: bytes) -> None:
        number = int.from_bytes(payload[:8], "big")
        if len(payload) != SYNCED_SIZE or number not in self._own_questions:
            raise RemoteProtocolError(f"SYNCED {number}, which this side has not asked for")
        self._own_questions.remove(number)
        # There are own questions only if the host has called ``offer_sync``.
        assert self._on_synced is not None
        self._on_synced(number)

    def _on_close(self, payload: bytes) -> None:
        self.phase = Phase.CLOSED

    # ------------------------------------------------------------------ sending

    def ready_to_send(self) -> bool:
        """Whether messages may be sent."""
        return self.phase is Phase.EXTENDED or self.phase is Phase.OLD

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        """Encode batches.  Raises ``LocalProtocolError`` if messages cannot be sent in this phase."""
        self._last_sent = now
        extended = self.phase is Phase.EXTENDED
        if not extended and self.phase is not Phase.OLD:
            raise LocalProtocolError(f"messages cannot be sent now: {self.phase.value}")
        # One batch, which is not mixed, is what mostly comes.
        if (len(batches) != 1 or batches[0].envelope is MIXED) and self._send_together(batches, now):
            return
        out = self._out
        most = self._refusals.most
        for batch in batches:
            # ``batch.size`` is the size of all bodies: if it is small enough, so is each of them.
            accepted = batch
            if batch.size > most or batch.multipart:
                accepted = self._refusals.sift(batch, self.sent)
            if not accepted.bodies:
                continue
            # Envelopes are compared by identity, see ``Envelope``.  A batch that has lost all its messages
            # does not change the envelope at the peer.
            if batch.envelope is not self._current and extended and not self._use(accepted):
                continue
            bodies = accepted.bodies
            self.sent += len(bodies)
            if batch.multipart:
                if extended:
                    out += [_parts_frame(parts) for parts in bodies]
                    continue
                bodies = [b"".join(parts) for parts in bodies]
            out += encode_bodies(bodies, accepted.width)

    def _send_together(self, batches: Sequence[Batch], now: float) -> bool:
        """Send batches in few frames; False if each has to be sent by itself."""
        if MIXED in map(envelope_of, batches):
            self._send_all_mixed(batches, now)
        elif batches and self._mixed is not None:
            self._send_runs(self._mixed, batches, now)
        else:
            return False
        return True

    def _send_runs(self, mixed: MixedSender, batches: Sequence[Batch], now: float) -> None:
        """Send several batches: small ones under different envelopes in one frame."""
        for run, mixes in mixed.runs(batches, self._refusals.most):
            envelope = run[0].envelope
            if mixes and all(batch.envelope is envelope for batch in run):
                # One batch after all, for example of messages that an application has sent one by one.
                run = (batch_of([body for batch in run for body in batch.bodies], envelope),)
            elif mixes:
                frames, current = mixed.number(map(envelope_of, run))
                self._out += frames
                self._current = current or self._current
                frame = mixed.encoded(run)
                if frame is not None:
                    self._out.append(frame)
                    self.sent += count_of(run)
                    continue
            # One at a time goes the usual way.
            for batch in run:
                self.send_batches((batch,), now)

    def _send_all_mixed(self, batches: Sequence[Batch], now: float) -> None:
        """Send batches with mixed ones among them, in order."""
        for batch in batches:
            if type(batch) is not MixedBatch:
                self.send_batches((batch,), now)
                continue
            count = len(batch.bodies)
            for at in range(0, count, TOGETHER):
                self._send_mixed(batch.slice(at, at + TOGETHER) if count > TOGETHER else batch, now)

    def _send_mixed(self, batch: MixedBatch, now: float) -> None:
        """Send a mixed batch as one frame if the peer reads it, and in the usual way otherwise."""
        mixed = self._mixed
        if mixed is not None and mixed.accepts(batch, self._refusals.most):
            frames, current, frame = mixed.encoded_mixed(batch)
            self._out += frames
            self._current = current or self._current
            if frame is not None:
                self._out.append(frame)
                self.sent += len(batch.bodies)
                return
        self.send_batches(batch.divided(self._by_key), now)

    def encode_one(self, body: bytes) -> bytes | None:
        """Return the bytes of one small plain message; None if ``send_batches`` has to be used."""
        # ``_out``: something waits to be written, and must go first.
        if self._current is not PLAIN or self._out or not self.ready_to_send():
            return None
        size = len(body)
        if size < LONG:
            return SHORT_HEADERS[size] + body if size <= self._refusals.most else None
        return header(size) + body if size <= self._refusals.most else None

    def decode_one(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is one small plain message; None if ``receive_data`` has to be used."""
        # Exactly one message and nothing else: the size says that the rest is its body.
        if not data:
            return None
        at, size = 1, len(data) - 1
        if data[0] == LONG:
            at, size = 9, size - 8
            if not LONG <= size < REFERENCE_FROM or not data.startswith(header(size)):
                return None
        elif data[0] != size:
            return None
        if size <= self._options.max_message and self._decoder.idle() and self.ready_to_send():
            # A host that has to confirm must count messages, which it does on the usual way only.
            return data[at:] if self._confirmed_to_peer is None else None
        return None

    def _use(self, batch: Batch) -> bool:
        """Switch to the envelope of a batch; if it cannot be sent, refuse the batch and return False."""
        try:
            frames = self._our_envelopes.activate(batch.envelope)
        except ValueError as error:
            self._refusals.refuse(batch, self.sent, str(error))
            return False
        self._current = batch.envelope
        self._out += frames
        return True

    def data_to_send(self) -> list[Buffer]:
        """Return the buffers that have to be written, and forget them."""
        out, self._out = self._out, []
        return out

    def subscribe(self, pattern: str) -> None:
        """Ask the peer for messages whose key matches.  Does nothing with a peer of the old format."""
        if self.phase is Phase.EXTENDED:
            self._out.append(control_frame(Control.SUBSCRIBE, pattern.encode()))

    def unsubscribe(self, pattern: str) -> None:
        """Take a subscription back."""
        if self.phase is Phase.EXTENDED:
            self._out.append(control_frame(Control.UNSUBSCRIBE, pattern.encode()))

    def offer_sync(self, on_sync: Callable[[int, int], Any], on_synced: Callable[[int], Any]) -> None:
        """Take part in SYNC, and say so in the greeting."""
        self._on_sync, self._on_synced = on_sync, on_synced
        # The constructor has made the greeting, which is not sent yet: make it anew.
        if self._out:
            self._out.clear()
            self._greet()

    def can_sync(self) -> bool:
        """Whether the peer answers SYNC frames."""
        return self._peer.sync > 0

    def sync(self, number: int, hops: int) -> None:
        """Ask the peer whether all that was subscribed to so far is in effect at its sources."""
        if self.phase is Phase.EXTENDED:
            self._own_questions.add(number)
            payload = number.to_bytes(8, "big") + bytes((hops,))
            self._out.append(control_frame(Control.SYNC, payload))

    def answer_sync(self, number: int) -> None:
        """Answer a SYNC of the peer."""
        if self.phase is Phase.EXTENDED and number in self._questions:
            self._questions.remove(number)
            self._out.append(control_frame(Control.SYNCED, number.to_bytes(8, "big")))

    def confirm(self, count: int) -> None:
        """Confirm the first ``count`` messages of the peer, if it has asked for confirmations."""
        before = self._confirmed_to_peer
        # A CONFIRM is cumulative, so an equal or smaller count says nothing new.
        if self.phase is Phase.EXTENDED and before is not None and count > before:
            self._confirmed_to_peer = count
            self._out.append(control_frame(Control.CONFIRM, count.to_bytes(8, "big")))

    def want_confirm(self) -> None:
        """Ask the peer to confirm what it receives; without this it does not."""
        if self.phase is Phase.EXTENDED:
            self._out.append(control_frame(Control.WANT_CONFIRM))

    def confirmed(self) -> int | None:
        """Return how many messages the peer has confirmed; None if it cannot confirm.

        Messages that were refused here count, too; see ``refusals.py``.
        """
        if not self._peer.confirm:
            return None
        # Also after the peer has closed: what it confirmed before remains confirmed.
        return self._refusals.confirmed(self._confirmed)

    def close(self, reason: str, now: float) -> None:
        """End the conversation: queue a CLOSE frame with the reason."""
        if self.phase is Phase.EXTENDED:
            self._out.append(control_frame(Control.CLOSE, reason.encode()))
        self.phase = Phase.CLOSED

    def closed(self) -> bool:
        """Whether the conversation has ended."""
        return self.phase is Phase.CLOSED

    def _greet(self) -> None:
        options = self._options
        greeting = Greeting(
            confirm=True,
            heartbeat=int(options.heartbeat * 1000),
            max_message=options.max_message,
            envelopes=options.envelopes,
            envelope_bytes=options.envelope_bytes,
            sync=int(self._on_sync is not None),
            mixed=KEYS,
        )
        self._out.append(control_frame(Control.GREETING, encode_greeting(greeting)))

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """Return when to call ``handle_timeout``; None: never."""
        # The constructor does not get the time, so the conversation begins with the first ``handle_timeout``.
        if self._opened is None:
            return 0.0
        if self.phase is Phase.LISTENING:
            return self._opened + self._options.recognition
        if self.phase is Phase.GREETED:
            return self._opened + self._options.handshake
        if self.phase is Phase.EXTENDED:
            return min(self._last_sent + self._interval, self._last_received + self._time_limit)
        return None

    def handle_timeout(self, now: float) -> None:
        """Do what is due at ``now``.  Raises ``RemoteProtocolError`` if the peer is too slow or silent."""
        if self._opened is None:
            self._opened = self._last_received = self._last_sent = now
        elif self.phase is Phase.LISTENING and now >= self._opened + self._options.recognition:
            # A dialler of 0.x that only receives sends nothing at all.
            self.phase = Phase.OLD
            # If 0xFF has come, it begins a long message.  It cannot complete one, so no batch is lost here.
            self._decoder.decode(self._first_bytes)
            self._first_bytes = b""
        elif self.phase is Phase.GREETED and now >= self._opened + self._options.handshake:
            raise RemoteProtocolError(f"no greeting within {self._options.handshake} s")
        elif self.phase is Phase.EXTENDED:
            # First the end, then the PING: a peer that counts as lost needs none.
            if now >= self._last_received + self._time_limit:
                raise RemoteProtocolError(f"nothing heard for {now - self._last_received:.1f} s")
            if now >= self._last_sent + self._interval:
                self._last_sent = now
                self._out.append(control_frame(Control.PING))


def _parts_frame(parts: Sequence[Buffer]) -> bytes:
    return control_frame(
        Control.PARTS, b"".join([buffer for part in parts for buffer in (header(len(part)), part)])
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
    Control.SYNC: BackendConnection._on_sync_frame,
    Control.SYNCED: BackendConnection._on_synced_frame,
    Control.MIXED: BackendConnection._on_mixed,
}
