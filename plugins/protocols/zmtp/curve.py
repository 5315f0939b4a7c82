"""CURVE (25/ZMTP-CURVE, 26/CURVEZMQ): the handshake of both sides.

The names of keys are those of 26/CURVEZMQ: C and S are the permanent ones of client and server, C' and S'
those of this connection.  A secret key has a small letter.

The server forgets S' and C' after WELCOME; the cookie, which the client sends back, has them.  It keeps the
key of the cookie, which is another one for each connection.  So whoever has recorded a conversation cannot
begin another one with its INITIATE.
"""

from __future__ import annotations

import msgspec

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.protocol import Login
from plugins.protocols.zmtp.boxes import (
    BOX_OVERHEAD,
    public_key,
    random_octets,
    seal,
    seal_for_oneself,
    shared_key,
    unseal,
    unseal_own,
)
from plugins.protocols.zmtp.commands import encode_command
from plugins.protocols.zmtp.faults import MALFORMED, HandshakeFault
from plugins.protocols.zmtp.mechanisms import Mechanism, RandomOctets, Send
from plugins.protocols.zmtp.options import ZmtpOptions
from plugins.protocols.zmtp.sealing import SHORT_NONCE, Nonces, Opener, SealedFraming
from plugins.protocols.zmtp.z85 import KEY_SIZE, decode_key, encode_z85

_VERSION = b"\1\0"
# It makes HELLO larger than WELCOME, so that a server cannot be used to flood somebody else (26/CURVEZMQ).
# The grammar has 72 octets, which libzmq sends, and the text of the same document 70.
_PADDING = bytes(72)
_SIGNATURE = bytes(64)
_LONG_NONCE = 16
_COOKIE_SIZE = _LONG_NONCE + 2 * KEY_SIZE + BOX_OVERHEAD
_VOUCH_SIZE = _LONG_NONCE + 2 * KEY_SIZE + BOX_OVERHEAD
_HELLO_SIZE = len(_VERSION + _PADDING) + KEY_SIZE + SHORT_NONCE + len(_SIGNATURE) + BOX_OVERHEAD
_WELCOME_SIZE = _LONG_NONCE + KEY_SIZE + _COOKIE_SIZE + BOX_OVERHEAD
_INITIATE_SIZE = _COOKIE_SIZE + SHORT_NONCE + KEY_SIZE + _VOUCH_SIZE + BOX_OVERHEAD

# Both directions have one key and count from 1. These beginnings keep their nonces apart.
_FROM_CLIENT, _FROM_SERVER = b"CurveZMQMESSAGEC", b"CurveZMQMESSAGES"


class _Curve(Mechanism):
    """What both sides have."""

    def __init__(
        self, options: ZmtpOptions, metadata: dict[str, bytes], send: Send, chance: RandomOctets | None = None
    ) -> None:
        super().__init__(options, metadata, send, chance)
        self._chance = chance or random_octets
        # One count for the handshake and the messages: 26/CURVEZMQ has each command of a connection with
        # another number.
        self._own_nonces = Nonces()
        self._peers_nonces = Nonces()

    def _check_size(self, name: str, data: bytes, least: int, most: int | None = None) -> None:
        if len(data) < least or (most is not None and len(data) > most):
            raise HandshakeFault(
                f"{name} of {len(data)} bytes; it has {least}{'' if most else ' or more'}", MALFORMED[name]
            )

    def _open_traffic(self, key: bytes, own: bytes, peers: bytes) -> None:
        self.framing = SealedFraming(key, own, self._own_nonces)
        self.opener = Opener(key, peers, self._peers_nonces)


class CurveClient(_Curve):
    """HELLO, and INITIATE after WELCOME."""

    _secret = b""
    """c'"""
    _key = b""
    """The key of boxes between C' and S'; empty before WELCOME."""

    def begin(self) -> None:
        """Say who shall be able to read, and nothing of who speaks."""
        self._servers = decode_key(self._options.curve_server_key)
        self._secret = self._chance(KEY_SIZE)
        self._public = public_key(self._secret)
        short = self._own_nonces.next()
        # Zeros in a box show that the sender has c', and has made this HELLO for this server.
        box = seal(_SIGNATURE, b"CurveZMQHELLO---" + short, shared_key(self._servers, self._secret))
        self._send(encode_command(b"HELLO", _VERSION + _PADDING + self._public + short + box))

    def receive(self, name: str, data: bytes) -> None:
        """Process WELCOME, and then READY."""
        if not self._key:
            self._expect("WELCOME", name)
            self._welcome(data)
            return
        self._expect("READY", name)
        self._check_size(name, data, SHORT_NONCE + BOX_OVERHEAD)
        short = data[:SHORT_NONCE]
        self._peers_nonces.check(short)
        metadata = unseal(data[SHORT_NONCE:], b"CurveZMQREADY---" + short, self._key, name)
        self._open_traffic(self._key, _FROM_CLIENT, _FROM_SERVER)
        self._learn(metadata)

    def _welcome(self, data: bytes) -> None:
        self._check_size("WELCOME", data, _WELCOME_SIZE, _WELCOME_SIZE)
        nonce, box = b"WELCOME-" + data[:_LONG_NONCE], data[_LONG_NONCE:]
        text = unseal(box, nonce, shared_key(self._servers, self._secret), "WELCOME")
        theirs, cookie = text[:KEY_SIZE], text[KEY_SIZE:]
        self._key = shared_key(theirs, self._secret)
        # Without a key of its own a client is somebody else in each conversation.
        own = self._options.curve_secret_key
        permanent = decode_key(own) if own else self._chance(KEY_SIZE)
        long_nonce = self._chance(_LONG_NONCE)
        # Shows that the owner of C vouches for C'. 26/CURVEZMQ has S in it as well, to reduce the risk that
        # somebody else passes for the client.
        vouch = seal(self._public + self._servers, b"VOUCH---" + long_nonce, shared_key(theirs, permanent))
        short = self._own_nonces.next()
        text = public_key(permanent) + long_nonce + vouch + self._metadata
        box = seal(text, b"CurveZMQINITIATE" + short, self._key)
        self._secret = b""
        self._send(encode_command(b"INITIATE", cookie + short + box))


class CurveServer(_Curve):
    """WELCOME, and READY if the engine lets the client in."""

    _cookie_key = b""
    """Empty before HELLO and after INITIATE."""
    _key = b""
    """The key of boxes between C' and S' while a decision is waited for."""

    @property
    def over(self) -> bool:
        """Whether the client was let in."""
        return self.framing is not None

    def begin(self) -> None:
        """Wait: the client speaks first."""

    def receive(self, name: str, data: bytes) -> None:
        """Process HELLO, and then INITIATE."""
        if not self._cookie_key and self.peer is None:
            self._expect("HELLO", name)
            self._hello(data)
        else:
            self._expect("INITIATE", name)
            self._initiate(data)

    def _hello(self, data: bytes) -> None:
        self._check_size("HELLO", data, _HELLO_SIZE, _HELLO_SIZE)
        head = len(_VERSION + _PADDING)
        if data[:head] != _VERSION + _PADDING:
            raise HandshakeFault(
                "HELLO of another version of CurveZMQ, or without padding", "malformed-HELLO"
            )
        permanent = decode_key(self._options.curve_secret_key)
        theirs, short = data[head : head + KEY_SIZE], data[head + KEY_SIZE : head + KEY_SIZE + SHORT_NONCE]
        key = shared_key(theirs, permanent)
        self._peers_nonces.check(short)
        signature = unseal(data[-len(_SIGNATURE) - BOX_OVERHEAD :], b"CurveZMQHELLO---" + short, key, "HELLO")
        if signature != _SIGNATURE:
            raise HandshakeFault("HELLO with another signature than zeros", "malformed-HELLO")
        # s', the secret of this connection. It is forgotten at the end of this method, and comes back in the
        # cookie.
        secret = self._chance(KEY_SIZE)
        self._cookie_key = self._chance(KEY_SIZE)
        long_nonce = self._chance(_LONG_NONCE)
        cookie = seal_for_oneself(theirs + secret, b"COOKIE--" + long_nonce, self._cookie_key)
        text = public_key(secret) + long_nonce + cookie
        long_nonce = self._chance(_LONG_NONCE)
        self._send(encode_command(b"WELCOME", long_nonce + seal(text, b"WELCOME-" + long_nonce, key)))

    def _initiate(self, data: bytes) -> None:
        self._check_size("INITIATE", data, _INITIATE_SIZE)
        cookie, short = data[:_COOKIE_SIZE], data[_COOKIE_SIZE : _COOKIE_SIZE + SHORT_NONCE]
        nonce, box = b"COOKIE--" + cookie[:_LONG_NONCE], cookie[_LONG_NONCE:]
        # Only this connection has the key of its cookie, so one of another connection does not open.
        transient = unseal_own(box, nonce, self._cookie_key, "the cookie of INITIATE")
        theirs, secret = transient[:KEY_SIZE], transient[KEY_SIZE:]
        key = shared_key(theirs, secret)
        self._peers_nonces.check(short)
        box = data[_COOKIE_SIZE + SHORT_NONCE :]
        text = unseal(box, b"CurveZMQINITIATE" + short, key, "INITIATE")
        client, vouch = text[:KEY_SIZE], text[KEY_SIZE : KEY_SIZE + _VOUCH_SIZE]
        nonce = b"VOUCH---" + vouch[:_LONG_NONCE]
        vouched = unseal(vouch[_LONG_NONCE:], nonce, shared_key(client, secret), "the vouch of INITIATE")
        # The box says that C has made it. Its content says for which keys: otherwise a vouch for another
        # connection could be used here.
        if vouched != theirs + public_key(decode_key(self._options.curve_secret_key)):
            raise HandshakeFault(
                "INITIATE vouches for other keys than those of this conversation", "key-exchange"
            )
        self._learn(text[KEY_SIZE + _VOUCH_SIZE :])
        self._key = key
        # 26/CURVEZMQ: it is discarded with the first valid INITIATE. ``peer`` is set now, so ``_expect``
        # refuses a second one.
        self._cookie_key = b""
        # The public key: in Z85 as the user, and as octets.
        self._shown = Login(mechanism="CURVE", user=encode_z85(client), secret=client)

    def accept(self) -> None:
        """Send READY."""
        if not self._key:
            raise LocalProtocolError("a decision on a login that nobody has asked for")
        key, self._key = self._key, b""
        short = self._own_nonces.next()
        box = seal(self._metadata, b"CurveZMQREADY---" + short, key)
        self._send(encode_command(b"READY", short + box))
        self._open_traffic(key, _FROM_SERVER, _FROM_CLIENT)


class KeyPair(msgspec.Struct, frozen=True):
    """A pair of keys in Z85."""

    public: str
    secret: str


def pair_of(secret: bytes) -> KeyPair:
    """Return the pair that a secret key belongs to."""
    return KeyPair(encode_z85(public_key(secret)), encode_z85(secret))
