"""Security mechanisms: the commands between greeting and messages, one class for each side of each.

A mechanism is told of each command and answers with commands.  It is over when the peer's metadata have come,
which are in ``peer`` then, and all of its own commands are out.  CURVE is in ``curve.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from kernel.contracts.errors import LocalProtocolError
from kernel.contracts.protocol import Login, Side
from plugins.protocols.zmtp.commands import decode_metadata, encode_command, encode_metadata, short_strings
from plugins.protocols.zmtp.faults import HandshakeFault
from plugins.protocols.zmtp.frames import Framing
from plugins.protocols.zmtp.options import ZmtpOptions

if TYPE_CHECKING:
    from plugins.protocols.zmtp.sealing import Opener

Send: TypeAlias = Callable[[bytes], None]
"""Sends a command."""
RandomOctets: TypeAlias = Callable[[int], bytes]
"""Returns so many random octets."""


class Mechanism:
    """What all mechanisms have.  This one is NULL: both sides send READY."""

    framing: Framing | None = None
    """Writes what follows the handshake, if that is encrypted."""
    opener: Opener | None = None
    """Reads it."""
    _shown: Login | None = None
    """Credentials of the peer that nobody has asked for yet."""

    def __init__(
        self, options: ZmtpOptions, metadata: dict[str, bytes], send: Send, chance: RandomOctets | None = None
    ) -> None:
        self._options = options
        self._metadata = encode_metadata(metadata)
        self._send = send
        self.peer: dict[str, bytes] | None = None
        """The peer's metadata by lower-case names; None until they have come."""
        self.peer_metadata: dict[str, bytes] = {}
        """The same, by the names that the peer has for them."""

    @property
    def over(self) -> bool:
        """Whether the conversation can begin."""
        return self.peer is not None

    def begin(self) -> None:
        """Send what this side says first.  Called when the peer's greeting has come."""
        self._send(encode_command(b"READY", self._metadata))

    def receive(self, name: str, data: bytes) -> None:
        """Process a command.  Raises ``RemoteProtocolError``."""
        self._expect("READY", name)
        self._learn(data)

    def login(self) -> Login | None:
        """Return the peer's credentials once, when they have come."""
        shown, self._shown = self._shown, None
        return shown

    def accept(self) -> None:
        """Go on: the peer's credentials are good."""
        raise LocalProtocolError("a decision on a login that nobody has asked for")

    def _expect(self, wanted: str, name: str) -> None:
        # Nothing of the handshake may come behind the peer's metadata, which are its last word in it.
        if name != wanted or self.peer is not None:
            raise HandshakeFault(f"{name} in the handshake; {wanted} was to come", "unexpected-command")

    def _learn(self, data: bytes) -> None:
        self.peer_metadata = dict(decode_metadata(data))
        # 37/ZMTP: names are compared without regard to case.
        self.peer = {name.lower(): value for name, value in self.peer_metadata.items()}


class AskingNull(Mechanism):
    """NULL of a side that lets only those in whom its engine accepts, by their address (27/ZAP)."""

    _accepted = False

    @property
    def over(self) -> bool:
        """Whether the peer was let in, and its metadata have come."""
        return self._accepted and self.peer is not None

    def begin(self) -> None:
        """Have the engine decide.  READY waits for that."""
        self._shown = Login(mechanism="NULL")

    def accept(self) -> None:
        """Send READY."""
        self._accepted = True
        super().begin()


class PlainClient(Mechanism):
    """PLAIN (24/ZMTP-PLAIN): HELLO, then INITIATE after WELCOME, and READY of the server."""

    _welcomed = False

    def begin(self) -> None:
        """Show the credentials."""
        # The options allow printable ASCII of at most 63 characters, so an octet is enough for each length.
        user, password = (text.encode() for text in (self._options.username, self._options.password))
        hello = bytes((len(user),)) + user + bytes((len(password),)) + password
        self._send(encode_command(b"HELLO", hello))

    def receive(self, name: str, data: bytes) -> None:
        """Process WELCOME, and then READY."""
        if self._welcomed:
            super().receive(name, data)
            return
        self._expect("WELCOME", name)
        if data:
            raise HandshakeFault("a WELCOME with data", "malformed-WELCOME")
        self._welcomed = True
        self._send(encode_command(b"INITIATE", self._metadata))


class PlainServer(Mechanism):
    """The other side of PLAIN.  The engine decides on the credentials."""

    _hello = False
    _accepted = False

    def begin(self) -> None:
        """Wait: the client speaks first."""

    def receive(self, name: str, data: bytes) -> None:
        """Process HELLO, and after the decision INITIATE."""
        if not self._hello:
            self._expect("HELLO", name)
            user, password = short_strings("HELLO", data, 2)
            self._hello = True
            # Any octets may come; latin-1 has a character for each of them.
            self._shown = Login(mechanism="PLAIN", user=user.decode("latin-1"), secret=password)
            return
        # 24/ZMTP-PLAIN: the client waits for WELCOME. One that does not has not been let in yet.
        if not self._accepted:
            raise HandshakeFault(f"{name} before WELCOME", "unexpected-command")
        self._expect("INITIATE", name)
        self._learn(data)
        self._send(encode_command(b"READY", self._metadata))

    def accept(self) -> None:
        """Welcome the client."""
        self._accepted = True
        self._send(encode_command(b"WELCOME"))


def mechanism_of(options: ZmtpOptions, side: Side) -> type[Mechanism]:
    """Return the mechanism of this side."""
    if options.mechanism == "NULL":
        return AskingNull if options.zap_domain else Mechanism
    if options.mechanism == "CURVE":
        # It needs PyNaCl, and nothing else does.
        from plugins.protocols.zmtp.curve import CurveClient, CurveServer

        return CurveClient if options.curve_server_key else CurveServer
    return PlainServer if is_plain_server(options, side) else PlainClient


def is_plain_server(options: ZmtpOptions, side: Side) -> bool:
    """Whether this side of PLAIN has the credentials of the other one decided on."""
    return side == "server" if options.plain_server is None else options.plain_server
