"""A conversation in ZMTP: greeting, security handshake, messages, subscriptions, heartbeats.  Sans-I/O.

Phases
------

* SIGNATURE: this side has sent ten bytes that mean something to each version, and waits for as many.
* VERSION: the peer is of 2.0 or later.  This side has sent its own highest version, and waits for the peer's.
* GREETING: the rest of a greeting of 2.0 (to twelve bytes) or 3.x (to 64) is to come.
* HANDSHAKE: the commands of the security mechanism.  Older versions have none.
* OPEN: messages, subscriptions, heartbeats.
* CLOSED: the conversation is over.

Nothing of the handshake is sent before the peer's greeting has come: libzmq drops a peer that sends greeting,
READY and a message in one go.

Older versions
--------------

Versions 2.0 and 1.0 have no mechanisms, so they are refused unless the mechanism is NULL and nobody decides
on peers.  A peer of 1.0 does not say its type; if it subscribes, it sifts what comes and does not tell (ØMQ
before 3.0).  So it gets everything.  Before 3.1 a subscription is a message: 1 or 0, and the prefix.  Both
forms are accepted from each peer.

Invariants
----------

* ``_decoder`` and ``_framing`` are those of the lower of both versions; they are set when the peer's greeting
  is complete.
* ``_theirs`` has the peer's subscriptions, ``_ours`` those of this side.  What does not match is not sent,
  and what has come without matching is dropped: routes may ask for more than is wanted (``prefixes.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from types import MappingProxyType
from typing import Any

from kernel.contracts.errors import LocalProtocolError, RemoteProtocolError
from kernel.contracts.message import Batch, Buffer, batch_of
from kernel.contracts.protocol import Login, Refusal, Side
from plugins.protocols.zmtp.addressing import Addressing, Naming, addressing_of
from plugins.protocols.zmtp.commands import METADATA_LIMIT, PING_CONTEXT, encode_command, split_command
from plugins.protocols.zmtp.decoder import Decoder
from plugins.protocols.zmtp.faults import Fault, HandshakeFault, fault_of
from plugins.protocols.zmtp.frames import COMMAND, FRAMINGS, REFERENCE_FROM, Framing, short_heads
from plugins.protocols.zmtp.greeting import (
    GREETING_2_SIZE,
    GREETING_3_SIZE,
    MAJOR,
    SIGNATURE_SIZE,
    decode_greeting,
    encode_rest,
    encode_signature,
    is_version_1,
)
from plugins.protocols.zmtp.keys import KEY_LIMIT, GroupSplitter, KeySplitter, group_of, key_of
from plugins.protocols.zmtp.mechanisms import Mechanism, RandomOctets, is_plain_server, mechanism_of
from plugins.protocols.zmtp.options import IDENTITY_LIMIT, ZmtpOptions, hello_of, identity_of
from plugins.protocols.zmtp.prefixes import exact_pattern_of, pattern_of, prefix_of, subscriptions_of
from plugins.protocols.zmtp.socket_types import NUMBERED, SOCKET_TYPES
from plugins.protocols.zmtp.zap import MEANINGS, TEMPORARY

MISSED_HEARTBEATS = 3
"""Heartbeat intervals of silence after which a peer counts as lost, if the options do not
say another time."""

SUBSCRIBE, CANCEL = b"\1", b"\0"
"""First bytes of a message that subscribes, or takes it back (before 3.1)."""

_OF_GROUPS = {"JOIN": SUBSCRIBE, "LEAVE": CANCEL}
"""Commands of a DISH (48/RADIO-DISH), and the verbs that do the same with a group."""

_MOST_SHARED = 64 * 1024
"""Bytes of a batch that is encoded once for all who subscribe to it: what is made takes as
much memory again."""


class Phase(Enum):
    """The phase of a conversation; the text says what it means."""

    SIGNATURE = "waiting for the peer's first bytes"
    VERSION = "waiting for the peer's version"
    GREETING = "waiting for the rest of the peer's greeting"
    HANDSHAKE = "in the security handshake"
    OPEN = "open"
    CLOSED = "closed"


class ZmtpConnection:
    """``kernel.contracts.protocol.StreamProtocol`` for ZMTP."""

    def __init__(
        self,
        options: ZmtpOptions,
        side: Side,
        name_peer: Callable[[bytes], Naming] | None = None,
        chance: RandomOctets | None = None,
    ) -> None:
        """``chance`` returns random octets for keys and nonces; not set: libsodium does."""
        self._options = options
        self._type = SOCKET_TYPES[options.type]
        self._name_peer = name_peer or _named_by_itself
        self.peer_name = ""
        """From the identity of the peer, if this type sends by identity (``Named``)."""
        self.peer_options: MappingProxyType[str, Any] = MappingProxyType({})
        self._awaits_identity = False
        """Whether a peer of 1.0 or 2.0 has to say its identity before its port can be opened."""
        self.addresses: Addressing | None = addressing_of(options)
        """What stands before messages; None: nothing."""
        self._before_one: bytes | None = None
        """What stands before a message that has no addresses; None: the short way is not possible."""
        self._short_heads: Sequence[bytes] = ()
        """The same and the header of the message, by its size."""
        self._keyed = options.key_part if options.key_part is not None else self._type_has_keys()
        self._pattern_of = pattern_of if self._keyed and not self._type.grouped else exact_pattern_of
        self._key_of = group_of if self._type.grouped else key_of
        # 24/ZMTP-PLAIN: as-server says who decides.
        # Those of CURVE agree on it by the keys that they have.
        self._as_server = {
            "NULL": False,
            "PLAIN": is_plain_server(options, side),
            "CURVE": not options.curve_server_key,
        }[options.mechanism]
        metadata = {"Socket-Type": options.type.encode()}
        self._identity = identity_of(options) if self._type.identified else b""
        # 37/ZMTP: the identity is ignored from other types. libzmq writes it also if it is empty.
        if self._type.identified:
            metadata["Identity"] = self._identity
        self._mechanism: Mechanism = mechanism_of(options, side)(
            options, metadata, self._send_command, chance
        )
        self.phase = Phase.SIGNATURE
        self.version = "unknown"
        """The version that both speak."""
        # Then a batch becomes the same octets for each peer: the route has chosen the peers, there is no key
        # to put in front, and no nonce.
        self._shares = options.chosen_by_route and not self._keyed and options.mechanism != "CURVE"
        """Whether other conversations send the same octets for a batch."""
        # With other mechanisms a peer of 1.0 is refused, and nobody is to learn how long the identity is.
        in_signature = self._identity if options.mechanism == "NULL" else b""
        self._out: list[Buffer] = [encode_signature(in_signature)]
        self._first_bytes = b""
        """What has come of the greeting."""
        self._framing: Framing = FRAMINGS[MAJOR]
        self._use_decoder(self._decoder_of(self._framing))
        self._peer_type = ""
        self._minor = 0
        self._splitter = GroupSplitter() if self._type.grouped else KeySplitter()
        self._hello = hello_of(options)
        """What the peer is to get first, and has not got yet."""
        self._holds = self._type.sifts and not options.invert_matching
        """Whether readers could not subscribe yet, so that what does not match now is held back."""
        self._held: list[Batch] = []
        self._ours, self._theirs = subscriptions_of(options), subscriptions_of(options)
        self.subscriptions: list[tuple[str, str]] = []
        """("subscribe" or "unsubscribe", pattern) of the peer.  The host reads and removes the entries."""
        self.sent = 0
        """Messages given to ``send_batches``, or written as ``encode_one`` has returned them."""
        self.refused: list[Refusal] = []
        """An entry for each message that was not sent.  The host reads and removes the entries."""
        self.refused_with: str | None = None
        """The reason in the peer's ERROR: the status of ZAP, if it is libzmq.  None: it has sent none."""
        self._fault: Fault | None = None
        self._begun: float | None = None
        self._last_received = 0.0
        self._pinged = False
        """Whether a PING is out since the last byte of the peer."""
        self._lifetime: float | None = None
        """The time to live of the peer's last PING in seconds; None: it has not set any."""

    def _type_has_keys(self) -> bool:
        return self._type.publishes or self._type.subscribes

    def _decoder_of(self, framing: Framing) -> Decoder:
        options = self._options
        kind = Decoder
        if options.mechanism == "CURVE":
            from plugins.protocols.zmtp.sealed_decoder import SealedDecoder

            kind = SealedDecoder
        decoder = kind(framing, options.max_message, options.max_parts, self._on_command, self._on_identity)
        decoder.max_command = METADATA_LIMIT
        decoder.parts_alone = options.parts_alone
        return decoder

    def _use_decoder(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self.read_hint: Callable[[int], int] = decoder.read_hint
        """Returns how many bytes to read next (``LargeBodies``)."""

    # ------------------------------------------------------------------ receiving

    def receive_data(self, data: Buffer, now: float) -> list[Batch]:
        """Process bytes from the peer; return complete batches.  Raises ``RemoteProtocolError``."""
        self._last_received = now
        self._pinged = False
        # Bodies are slices of it, and have to be bytes.
        if type(data) is not bytes:
            data = bytes(data)
        phase = self.phase
        if phase is Phase.CLOSED:
            return []
        taken: list[Batch] = []
        if phase is Phase.OPEN:
            # What comes in a later read than the end of the handshake finds the subscriptions of the readers.
            self._holds = False
        try:
            if phase is not Phase.OPEN and phase is not Phase.HANDSHAKE:
                # From its beginning each time: a greeting is short, and most come in one piece or two.
                data = self._greet(self._first_bytes + data)
                if not data:
                    return []
            self._decode(self._decoder.decode, data, taken)
        except RemoteProtocolError as error:
            # They came before the fault, and the host passes them on before it ends the conversation.
            error.batches = taken
            # Before ``_fail``, which closes: only the end of a handshake is noted.
            self._note(fault_of(error))
            self._fail(str(error))
            raise
        return taken

    def _decode(self, decode: Callable[[Any], list[Batch]], what: Any, taken: list[Batch]) -> None:
        batches: Sequence[Batch] = ()
        try:
            batches = decode(what)
        except RemoteProtocolError as error:
            batches = error.batches
            raise
        finally:
            # Also after an error: what was complete before it counts as received.
            self._take(batches, taken)

    def room(self) -> memoryview:
        """Return the memory for the rest of a large body."""
        return self._decoder.room()

    def filled(self, count: int, now: float) -> list[Batch]:
        """Process ``count`` bytes that were received into ``room``.  Raises ``RemoteProtocolError``."""
        self._last_received = now
        self._pinged = False
        taken: list[Batch] = []
        try:
            self._decode(self._decoder.filled, count, taken)
        except RemoteProtocolError as error:
            error.batches = taken
            self._fail(str(error))
            raise
        return taken

    def _greet(self, data: bytes) -> bytes:
        """Process what has come so far; return what is behind the greeting, if that is complete."""
        if self.phase is Phase.SIGNATURE:
            old = is_version_1(data)
            if old is None:
                self._first_bytes = data
                return b""
            if old:
                # 1.0 has no greeting: these are its first frames.
                self._open_old(1, "")
                return data
            self.phase = Phase.VERSION
            # One octet, and the rest when the peer has said its version: 2.0 expects something else there.
            self._out.append(bytes((MAJOR,)))
        if self.phase is Phase.VERSION and len(data) > SIGNATURE_SIZE:
            self.phase = Phase.GREETING
            # A version above 3 is one that speaks 3 with us: 37/ZMTP has the higher side downgrade.
            if data[SIGNATURE_SIZE] >= MAJOR:
                self._out.append(encode_rest(self._options.mechanism, as_server=self._as_server))
            elif data[SIGNATURE_SIZE] == 0:
                raise RemoteProtocolError("a greeting with revision 0, which no version of ZMTP has")
            else:
                # 15/ZMTP: the type, and a frame with the identity.
                self._out.append(bytes((self._number("2.0"), 0, len(self._identity))) + self._identity)
        if self.phase is Phase.GREETING:
            size = GREETING_3_SIZE if data[SIGNATURE_SIZE] >= MAJOR else GREETING_2_SIZE
            if len(data) >= size:
                self._first_bytes = b""
                if size == GREETING_3_SIZE:
                    self._begin_handshake(data[:size])
                else:
                    number = data[SIGNATURE_SIZE + 1]
                    self._open_old(2, NUMBERED[number] if number < len(NUMBERED) else str(number))
                return data[size:]
        self._first_bytes = data
        return b""

    def _number(self, version: str) -> int:
        """Return the number of the type in older versions.

        Raises ``RemoteProtocolError`` if they do not have it.
        """
        number = self._type.number
        if number is None:
            raise RemoteProtocolError(f"the peer speaks ZMTP {version}, which has no type {self._type.name}")
        return number

    def _begin_handshake(self, octets: bytes) -> None:
        greeting = decode_greeting(octets)
        # 37/ZMTP: a later version has to speak ours.
        self._minor = greeting.minor if greeting.major == MAJOR else 1
        self.version = f"{MAJOR}.{min(self._minor, 1)}"
        # 37/ZMTP: the connection must be closed. No ERROR is sent, since that is a command of a mechanism
        # that both have.
        if greeting.mechanism != self._options.mechanism:
            raise HandshakeFault(
                f"the peer has the mechanism {greeting.mechanism!r}, this side {self._options.mechanism}",
                "mechanism-mismatch",
            )
        self.phase = Phase.HANDSHAKE
        self._mechanism.begin()

    def _open_old(self, version: int, peer_type: str) -> None:
        """Open the conversation with a peer of 1.0 or 2.0."""
        if self._options.mechanism != "NULL":
            raise HandshakeFault(
                f"the peer speaks ZMTP {version}.0, which has no mechanism {self._options.mechanism}",
                "mechanism-mismatch",
            )
        if self._options.zap_domain:
            raise RemoteProtocolError(
                f"the peer speaks ZMTP {version}.0, which has no handshake in which it could be decided on"
            )
        self._number(f"{version}.0")
        self.version = f"{version}.0"
        self._framing = FRAMINGS[version]
        self._use_decoder(self._decoder_of(self._framing))
        self._first_bytes = b""
        self._awaits_identity = self._type.names_peers
        if version == 2:
            self._check_type(peer_type)
        else:
            if self._identity:
                # The signature was the head of this frame.
                self._out.append(self._identity)
            # 1.0 does not say what it wants, see above.
            if self._type.publishes:
                self._theirs.add(b"")
                self.subscriptions.append(("subscribe", pattern_of(b"")))
        self._open()

    def _open(self) -> None:
        self.phase = Phase.OPEN
        self._decoder.messages_allowed = True
        kind = self._type
        if (
            # A message in the short way is its header and its body: no keys, no subscriptions, nothing to be
            # looked at.
            self._decoder.one_possible
            and (kind.gives and kind.takes)
            and not (self._keyed or kind.publishes or kind.subscribes or kind.raw)
        ):
            self._before_one = b"" if self.addresses is None else self.addresses.before_one
        if self._before_one is not None:
            self._short_heads = short_heads(self._before_one)
        if self._type.publishes:
            # The sum of all prefixes has a limit, so none of them is larger.
            self._decoder.max_command = max(
                METADATA_LIMIT, self._options.subscription_bytes + len("_SUBSCRIBE")
            )
        # Each conversation begins without subscriptions at the peer.
        for topic in self._options.subscribe:
            self._subscribe(topic.encode())
        # A subscriber may not have subscribed yet when its READY comes; one of 1.0 does not tell.
        if self._hello is not None and (not self._type.publishes or self._theirs.match(self._hello)):
            self._say_hello()

    def _say_hello(self) -> None:
        """Send the peer the message that each new peer gets, once."""
        hello, self._hello = self._hello, None
        if hello is not None:
            self._encode(batch_of([hello]), ())

    def _on_identity(self, identity: bytes) -> None:
        """Name the peer, if this type sends by identity."""
        if len(identity) > IDENTITY_LIMIT:
            raise RemoteProtocolError(
                f"an identity of {len(identity)} bytes; it has {IDENTITY_LIMIT} at most"
            )
        if self._type.names_peers:
            self._awaits_identity = False
            naming = self._name_peer(identity)
            self.peer_name = naming.peer
            assert self.addresses is not None  # types that name peers have one
            self.addresses.reply_to = naming.reply_to

    def _check_type(self, peer_type: str) -> None:
        self._peer_type = peer_type
        if peer_type not in self._type.peers:
            wanted = " or ".join(sorted(self._type.peers))
            raise HandshakeFault(
                f"the peer is {peer_type or 'of no type'}; {self._type.name} needs {wanted}",
                "invalid-metadata",
            )

    @property
    def fault(self) -> Fault | None:
        """What was wrong with the peer's handshake; None: nothing, or this side or an ERROR ended it."""
        if self._fault is None and self.phase is not Phase.OPEN and self.phase is not Phase.CLOSED:
            # The connection was reset.
            return "closed"
        return self._fault

    def _note(self, fault: Fault) -> None:
        """Remember what was wrong, if it is the handshake that it ends."""
        if self.phase is not Phase.OPEN and self.phase is not Phase.CLOSED and self.refused_with is None:
            self._fault = fault

    def _fail(self, reason: str) -> None:
        """Tell the peer why, while it can still understand it (23/ZMTP: ERROR belongs to the handshake)."""
        if self.phase is Phase.HANDSHAKE:
            text = reason.encode("ascii", "replace")[:255]
            self._send_command(encode_command(b"ERROR", bytes((len(text),)) + text))
        self.phase = Phase.CLOSED

    # ------------------------------------------------------------------ commands

    def _on_command(self, body: bytes) -> None:
        name, data = split_command(body)
        if name == "ERROR":
            # An octet of length, which the misspelt form has as well.
            if not data or len(data) < 1 + data[0]:
                raise HandshakeFault("ERROR that ends too early", "malformed-ERROR")
            reason = data[1 : 1 + data[0]].decode("ascii", "replace")
            self.refused_with = reason
            reason = f"{reason}, {MEANINGS[reason]}" if reason in MEANINGS else reason
            raise RemoteProtocolError(f"the peer refuses: {reason or 'it does not say why'}")
        if self.phase is Phase.HANDSHAKE:
            self._mechanism.receive(name, data)
            self._look_for_end_of_handshake()
            return
        if name == "PING":
            self._on_ping(data)
        elif name == "SUBSCRIBE":
            self._on_subscription(SUBSCRIBE, data)
        elif name == "CANCEL":
            self._on_subscription(CANCEL, data)
        elif name in _OF_GROUPS and self._type.grouped:
            self._on_group(_OF_GROUPS[name], data)
        elif name == "READY":
            raise RemoteProtocolError("a second READY")
        # PONG: that bytes have come is all that it says.  Others are of later versions.

    def _look_for_end_of_handshake(self) -> None:
        """Look at the peer's metadata, and open the conversation if the mechanism is over."""
        mechanism = self._mechanism
        if mechanism.peer is None:
            return
        # As soon as it is known: nobody has to decide on a peer that cannot be talked with.
        self._check_type(mechanism.peer.get("socket-type", b"").decode("ascii", "replace"))
        if not mechanism.over:
            return
        self._on_identity(mechanism.peer.get("identity", b""))
        if mechanism.framing is not None:
            self._framing = mechanism.framing
            # Set in the middle of a read: the frames behind this command are in boxes already.
            self._decoder.opener = mechanism.opener
        self._open()

    def _on_ping(self, data: bytes) -> None:
        if not 2 <= len(data) <= 2 + PING_CONTEXT:
            raise RemoteProtocolError(f"a PING with {len(data)} bytes; it has 2 to {2 + PING_CONTEXT}")
        # Tenths of a second.  0: no limit.
        lifetime = int.from_bytes(data[:2], "big") / 10
        # Of the last PING only: a peer may change its mind.
        self._lifetime = lifetime or None
        self._send_command(encode_command(b"PONG", data[2:]))

    def _on_group(self, verb: bytes, group: bytes) -> None:
        if len(group) > KEY_LIMIT:
            raise RemoteProtocolError(f"a group of {len(group)} bytes; it has {KEY_LIMIT} at most")
        self._on_subscription(verb, group)

    def _on_subscription(self, verb: bytes, prefix: bytes) -> None:
        if not self._type.publishes:
            raise RemoteProtocolError(f"a subscription at {self._type.name}, which does not publish")
        theirs, options = self._theirs, self._options
        if verb == CANCEL:
            if theirs.remove(prefix):
                self.subscriptions.append(("unsubscribe", self._pattern_of(prefix)))
            return
        # libzmq tells each subscription of its application, and takes back only the last one of a prefix. So
        # the subscriptions of a peer are a set.
        if prefix in theirs and not self._type.grouped:
            return
        # Here and not in ``Prefixes``: the subscriptions of this side have no limit, for they are ours.
        if theirs.number >= options.max_subscriptions:
            raise RemoteProtocolError(
                f"{theirs.number + 1} subscriptions; max_subscriptions is {options.max_subscriptions}"
            )
        if theirs.size + len(prefix) > options.subscription_bytes:
            raise RemoteProtocolError(
                f"subscriptions of {theirs.size + len(prefix)} bytes; "
                f"subscription_bytes is {options.subscription_bytes}"
            )
        # A DISH may join a group several times, and has to leave it as often: libzmq counts.
        if theirs.add(prefix):
            self.subscriptions.append(("subscribe", self._pattern_of(prefix)))
        if self._hello is not None and theirs.match(self._hello):
            self._say_hello()

    # ------------------------------------------------------------------ messages of the peer

    def _take(self, batches: Sequence[Batch], taken: list[Batch]) -> None:
        """Append what is for the routes: without subscriptions, without what nobody wants, with keys."""
        for batch in batches:
            rest: Batch | None = batch
            if self._type.single and batch.multipart is not self._type.grouped and self._type.takes:
                rest = self._of_one_part(batch)
            elif self._type.publishes and not self._type.grouped:
                rest = self._without_subscriptions(batch)
            if not self._type.takes:
                # PUB and PUSH: 29/PUBSUB and 30/PIPELINE have nothing come from the peer.
                rest = None
            elif self._type.sifts and rest is not None:
                if self._holds:
                    self._hold_back(rest)
                rest = self._ours.sift(rest)
            if rest is None:
                continue
            if self._keyed:
                taken += self._splitter.split(rest)
            elif self.addresses is not None:
                taken += self.addresses.take(rest)
            else:
                taken.append(rest)

    def _of_one_part(self, batch: Batch) -> Batch | None:
        """Drop messages of several parts, as libzmq does; a message without its group is an error."""
        if self._type.grouped:
            raise RemoteProtocolError("a message without a group before it")
        return None

    def _hold_back(self, batch: Batch) -> None:
        """Keep what nobody here has subscribed to so far."""
        rest = [body for body in batch.bodies if not self._ours.match(body[0] if batch.multipart else body)]
        if rest:
            self._held.append(batch_of(rest, batch.envelope, multipart=batch.multipart))

    def held_back(self) -> list[Batch]:
        """Return what readers want of what came with the end of the handshake, once (``HoldsBack``)."""
        held, self._held = self._held, []
        self._holds = False
        taken: list[Batch] = []
        self._take(held, taken)
        return taken

    def _without_subscriptions(self, batch: Batch) -> Batch | None:
        rest: list[Any] = []
        for body in batch.bodies:
            parts = body if batch.multipart else (body,)
            # As libzmq: a first part that subscribes has those behind it looked at in any case.
            if self._is_subscription(parts[0]):
                parts = [part for part in parts[1:] if not self._is_subscription(part)]
            elif batch.multipart and not self._options.only_first_subscribe:
                parts = [parts[0], *(part for part in parts[1:] if not self._is_subscription(part))]
            if parts:
                rest.append(tuple(parts) if batch.multipart else body)
        if not rest:
            return None
        return batch_of(rest, batch.envelope, multipart=batch.multipart)

    def _is_subscription(self, part: Any) -> bool:
        """Whether it is one; take notice of it."""
        verb = part[:1]
        if verb not in (SUBSCRIBE, CANCEL):
            return False
        self._on_subscription(verb, part[1:])
        return True

    def receive_eof(self, now: float) -> None:
        """The peer has closed the wire.  Raises ``RemoteProtocolError`` if a message is incomplete."""
        self._note("closed")
        broken = self.phase is not Phase.CLOSED and (self._first_bytes or self._decoder.in_message())
        self.phase = Phase.CLOSED
        if broken:
            raise RemoteProtocolError("the peer hung up in the middle of a message")

    # ------------------------------------------------------------------ sending

    def ready_to_send(self) -> bool:
        """Whether messages may be sent."""
        return self.phase is Phase.OPEN and not self._awaits_identity

    def send_batches(self, batches: Sequence[Batch], now: float) -> None:
        """Encode batches.  Raises ``LocalProtocolError`` if the conversation is not open."""
        if self.phase is not Phase.OPEN or self._awaits_identity:
            raise LocalProtocolError(f"messages cannot be sent now: {self.phase.value}")
        if self.addresses is not None:
            self._send_addressed(self.addresses, batches)
            return
        framing = self._framing if self._shares else None
        for batch in batches:
            # Before anything is refused: refusals name messages by this count.
            self.sent += len(batch.bodies)
            encoded = batch.encoded
            # Another conversation has encoded it.  With the same framing its octets are the same.
            if encoded is not None and encoded[0] is framing:
                self._out += encoded[1]
                continue
            if not self._type.gives:
                self._refuse(batch, f"{self._type.name} does not send")
                continue
            if self._type.single and batch.multipart:
                self._refuse(batch, f"{self._type.name} sends messages of one part")
                continue
            key = self._key_of(batch.envelope) if self._keyed else b""
            wanted: Batch | None = batch
            if self._type.publishes:
                wanted = self._wanted(batch, key)
            # Sifted out, and not refused: to the route it counts as sent.
            if wanted is None:
                continue
            self._encode(wanted, (key,) if key or self._type.grouped else ())

    def _send_addressed(self, addressing: Addressing, batches: Iterable[Batch]) -> None:
        """Encode batches, with addresses before their messages."""
        for batch in batches:
            for head, part in addressing.put(batch):
                self.sent += len(part.bodies)
                if self._type.single and part.multipart:
                    self._refuse(part, f"{self._type.name} sends messages of one part")
                    continue
                self._encode(part, head)

    def _encode(self, batch: Batch, before: Sequence[bytes]) -> None:
        """Encode messages, each behind the parts ``before``."""
        framing = self._framing
        if not batch.multipart:
            buffers = framing.encode(batch.bodies, batch.width, before)
            self._out += buffers
            if self._shares and batch.size <= _MOST_SHARED:
                batch.encoded = (framing, buffers)
        # Frames cannot say a message of no parts: each message ends with a part without MORE.
        elif all(batch.bodies):
            self._out += framing.encode_parts(batch.bodies, before)
        else:
            self._refuse(batch, "a message of no parts")

    def _wanted(self, batch: Batch, key: bytes) -> Batch | None:
        """Return the messages that the peer has subscribed to; None if there are none."""
        if not key and not self._type.grouped:
            # The router has compared already, and the conversation would do so for each message again
            # (docs/decisions/0033-zmtp.md).
            return batch if self._options.chosen_by_route else self._theirs.sift(batch)
        return batch if self._theirs.match(key) else None

    def encode_one(self, body: bytes) -> bytes | None:
        """Return the bytes of one small message of one part.

        None if ``send_batches`` has to be used (``ShortMessages``).
        """
        before, addresses = self._before_one, self.addresses
        # ``_out``: something waits to be written, and must go first.
        if (
            before is None
            or self._out
            or self.phase is not Phase.OPEN
            or self._awaits_identity
            or (addresses is not None and addresses.asked is not None)
        ):
            return None
        size = len(body)
        if size < len(self._short_heads):
            return self._short_heads[size] + body
        return before + self._framing.header(size) + body if size < REFERENCE_FROM else None

    def decode_one(self, data: bytes) -> bytes | None:
        """Return the body if ``data`` is one small message without addresses.

        None: ``receive_data`` has to be used.
        """
        before, addresses = self._before_one, self.addresses
        if (
            before is None
            # What was not asked for is no answer.
            or (addresses is not None and addresses.asks and addresses.asked is None)
            or self.phase is not Phase.OPEN
            or self._awaits_identity
        ):
            return None
        return self._decoder.one(data, before)

    def _refuse(self, batch: Batch, reason: str) -> None:
        first = self.sent - len(batch.bodies) + 1
        self.refused += [Refusal(number, reason) for number in range(first, self.sent + 1)]

    def data_to_send(self) -> list[Buffer]:
        """Return what has to be written now, once."""
        out, self._out = self._out, []
        return out

    def _send_command(self, body: bytes) -> None:
        self._out.append(self._framing.frame(body, COMMAND))

    # ------------------------------------------------------------------ subscriptions of this side

    def subscribe(self, pattern: str) -> None:
        """Subscribe at the peer to what a reader here wants, or to something more."""
        if self._type.subscribes:
            self._subscribe(prefix_of(pattern))

    def unsubscribe(self, pattern: str) -> None:
        """Take back a ``subscribe``."""
        if self._type.subscribes:
            prefix = prefix_of(pattern)
            if self._ours.remove(prefix):
                self._tell(b"CANCEL", CANCEL, prefix)

    def _subscribe(self, prefix: bytes) -> None:
        # Counted here, so that the peer is told of the first and of the last reader only.
        if self._ours.add(prefix):
            self._tell(b"SUBSCRIBE", SUBSCRIBE, prefix)

    def _tell(self, command: bytes, verb: bytes, prefix: bytes) -> None:
        if self._type.grouped:
            self._send_command(encode_command(b"JOIN" if verb == SUBSCRIBE else b"LEAVE", prefix))
        elif self._framing.version == MAJOR and self._minor >= 1:
            self._send_command(encode_command(command, prefix))
        # A peer of 1.0 does not read what a subscriber sends; it sends everything.
        elif self._framing.version > 1:
            self._out.append(self._framing.frame(verb + prefix))

    # ------------------------------------------------------------------ logins

    @property
    def peer_metadata(self) -> Mapping[str, bytes]:
        """What the peer has said of itself in the handshake."""
        return self._mechanism.peer_metadata

    def login(self) -> Login | None:
        """Return the peer's credentials once."""
        return self._mechanism.login()

    def decide(self, reason: str | None, now: float) -> None:
        """Accept the peer (None), or refuse it."""
        # The peer may have gone, or its time may be over, while somebody decided.
        if self.phase is not Phase.HANDSHAKE:
            return
        if reason == TEMPORARY:
            # As libzmq: no ERROR, so that the peer tries again.
            self.phase = Phase.CLOSED
            return
        if reason is not None:
            self._fail(reason)
            return
        self._mechanism.accept()
        try:
            self._look_for_end_of_handshake()
        # Another peer may have taken the identity in the meantime.
        except RemoteProtocolError as error:
            self._note(fault_of(error))
            self._fail(str(error))

    # ------------------------------------------------------------------ time

    def next_deadline(self) -> float | None:
        """Return when ``handle_timeout`` has something to do."""
        # The first ``handle_timeout`` says when the conversation began.  The host calls it at once.
        if self.phase is Phase.CLOSED or self._begun is None:
            return None
        if self.phase is not Phase.OPEN:
            # From the beginning, whatever comes in between: a peer that sends an octet now and then does not
            # keep its connection for longer.
            return self._begun + self._options.handshake if self._options.handshake else None
        deadlines = []
        if self._lifetime is not None:
            deadlines.append(self._last_received + self._lifetime)
        interval = self._interval()
        if interval:
            deadlines.append(self._last_received + (self._time_limit() if self._pinged else interval))
        return min(deadlines, default=None)

    def _interval(self) -> float:
        """Return the interval of heartbeats; 0 if the peer does not know PING."""
        return self._options.heartbeat if self._framing.version == MAJOR and self._minor >= 1 else 0.0

    def _time_limit(self) -> float:
        """Return how long a peer may be silent."""
        interval, timeout = self._options.heartbeat, self._options.heartbeat_timeout
        return interval + timeout if timeout else interval * MISSED_HEARTBEATS

    def handle_timeout(self, now: float) -> None:
        """Send a PING, or give the peer up.  Raises ``RemoteProtocolError``."""
        if self._begun is None:
            self._begun = self._last_received = now
        deadline = self.next_deadline()
        if deadline is None or now < deadline:
            return
        silence = now - self._last_received
        if self.phase is not Phase.OPEN:
            self._note("timed-out")
            self._fail("the handshake takes too long")
            raise RemoteProtocolError(f"no READY within {self._options.handshake:g} s")
        interval = self._interval()
        if self._lifetime is not None and silence >= self._lifetime:
            self.phase = Phase.CLOSED
            raise RemoteProtocolError(f"silent for {silence:.1f} s; its own PING allows {self._lifetime:g} s")
        if silence >= self._time_limit():
            self.phase = Phase.CLOSED
            raise RemoteProtocolError(f"silent for {silence:.1f} s, without an answer to PING")
        # One PING at a time: any octet answers it (``receive_data``).
        if not self._pinged:
            self._pinged = True
            # In tenths of a second.
            # Two octets. The limits of ``heartbeat`` and ``heartbeat_ttl`` are such that it always fits.
            lifetime = max(1, round((self._options.heartbeat_ttl or interval * MISSED_HEARTBEATS) * 10))
            self._send_command(encode_command(b"PING", lifetime.to_bytes(2, "big")))

    # ------------------------------------------------------------------ the rest of the contract

    def confirm(self, count: int) -> None:
        """Do nothing: ZMTP has no confirmations."""

    def want_confirm(self) -> None:
        """Do nothing: ZMTP has no confirmations."""

    def confirmed(self) -> int | None:
        """Return None: a message counts as confirmed when the operating system has it."""
        return None

    def counters(self) -> dict[str, int]:
        """Return nothing: the host counts messages and bytes."""
        return {}

    def status(self) -> dict[str, str | int]:
        """Return what an operator wants to know of the peer."""
        return {
            "version": self.version,
            "peer_type": self._peer_type,
            "subscriptions": self._theirs.number if self._type.publishes else self._ours.number,
        }

    def close(self, reason: str, now: float) -> None:
        """End the conversation.  ZMTP has no farewell."""
        if self.phase is Phase.HANDSHAKE:
            self._fail(reason)
        self.phase = Phase.CLOSED

    def closed(self) -> bool:
        """Return whether the conversation has ended."""
        return self.phase is Phase.CLOSED


class RequestingConnection(ZmtpConnection):
    """A conversation of REQ.

    Its peer gets the next question behind the answer to the last (``Crediting``).
    """

    def may_send(self) -> int | None:
        """Return how many questions may be sent now."""
        return None if self.addresses is None else self.addresses.may_send()


def connection_of(
    options: ZmtpOptions, side: Side, name_peer: Callable[[bytes], Naming] | None = None
) -> ZmtpConnection:
    """Return a new conversation.  ``name_peer(identity)`` names the peers of ROUTER and REP."""
    kind = RequestingConnection if options.type == "REQ" else ZmtpConnection
    return kind(options, side, name_peer)


def _named_by_itself(identity: bytes) -> Naming:
    return Naming(identity.decode("latin-1"), "")
