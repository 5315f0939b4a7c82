"""ZAP (27/ZAP): how whoever handles logins in libzmq is asked, and answers.

The engine asks a socket of its kernel at ``inproc://zeromq.zap.01``: it makes a request of the login
(``request_of``), sends its ``frames``, and reads the answer (``reply_of``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kernel.contracts.errors import LoginRefused, RemoteProtocolError
from kernel.contracts.protocol import Login
from plugins.protocols.zmtp.commands import decode_metadata, encode_metadata
from plugins.protocols.zmtp.z85 import encode_z85

ADDRESS = "inproc://zeromq.zap.01"
VERSION = b"1.0"
ACCEPTED, TEMPORARY, REFUSED, FAILED = "200", "300", "400", "500"
"""Each status.  A peer with a temporary error is not told, so that it tries again."""
_LEAST = 6
"""Parts of a question without credentials."""
_TEXT = 255
"""Octets of a status text at most."""
MEANINGS = {
    "300": "a temporary error; try again",
    "400": "authentication failure",
    "500": "an error of the server",
}
"""What a status means.  libzmq sends it as the reason in ERROR, and reports one that it gets."""


class ZapRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the handler."""

    request: bytes = b"1"
    """Comes back in the reply."""
    domain: str = ""
    address: str = ""
    """The IP address of the peer, without the port."""
    identity: bytes = b""
    mechanism: str
    credentials: tuple[bytes, ...] = ()
    """NULL: none.  PLAIN: user and password.  CURVE: the client's public key, 32 octets."""

    def frames(self) -> list[bytes]:
        """Return the parts of the question, behind the empty delimiter of REQ."""
        head = [VERSION, self.request, self.domain.encode(), self.address.encode(), self.identity]
        return [*head, self.mechanism.encode(), *self.credentials]


class ZapReply(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of a handler."""

    request: bytes
    status: str
    text: str = ""
    user: str = ""
    metadata: Mapping[str, bytes] = {}

    def frames(self) -> list[bytes]:
        """Return the parts of the answer."""
        told = [self.status.encode(), self.text.encode()[:_TEXT], self.user.encode()]
        return [VERSION, self.request, *told, encode_metadata(dict(self.metadata))]


def login_of(frames: Sequence[bytes]) -> tuple[bytes, Login]:
    """Read a question: return its number and the login.  Raises ``RemoteProtocolError``."""
    if len(frames) < _LEAST or frames[0] != VERSION:
        raise RemoteProtocolError(f"no question of ZAP {VERSION.decode()}: {len(frames)} parts")
    _, request, domain, address, identity, mechanism, *credentials = frames
    user, secret = "", b""
    if mechanism == b"PLAIN" and len(credentials) == 2:
        user, secret = credentials[0].decode("latin-1"), credentials[1]
    elif mechanism == b"CURVE" and len(credentials) == 1:
        user, secret = encode_z85(credentials[0]), credentials[0]
    elif credentials:
        raise RemoteProtocolError(
            f"a question of ZAP about {mechanism!r} with {len(credentials)} credentials"
        )
    facts = {"domain": domain.decode("utf-8", "replace"), "identity": identity}
    peer = address.decode("utf-8", "replace")
    return request, Login(mechanism=mechanism.decode(), user=user, secret=secret, peer=peer, facts=facts)


def request_of(login: Mapping[str, Any], request: bytes = b"1") -> ZapRequest:
    """Return the question for a login, as ``operate("authenticate", login)`` gets it."""
    mechanism, secret, facts = login["mechanism"], bytes(login["secret"]), login["facts"]
    credentials: tuple[bytes, ...] = ()
    if mechanism == "PLAIN":
        credentials = (str(login["user"]).encode("latin-1"), secret)
    elif mechanism == "CURVE":
        credentials = (secret,)
    return ZapRequest(
        request=request,
        domain=str(facts.get("domain", "")),
        address=str(facts.get("address", "")),
        identity=bytes(facts.get("identity", b"")),
        mechanism=mechanism,
        credentials=credentials,
    )


def reply_of(frames: Sequence[bytes]) -> ZapReply:
    """Read an answer.  Raises ``RemoteProtocolError``."""
    if len(frames) != 6:
        raise RemoteProtocolError(f"an answer of ZAP with {len(frames)} parts; it has 6")
    version, request, status, text, user, metadata = (bytes(frame) for frame in frames)
    if version != VERSION:
        raise RemoteProtocolError(f"an answer of ZAP {version!r}; this is {VERSION.decode()}")
    # 27/ZAP has three digits. A handler that answers something else has failed, and nobody is let in by it.
    if len(status) != 3 or not status.isdigit():
        raise RemoteProtocolError(f"an answer of ZAP with status {status!r}")
    return ZapReply(
        request=request,
        status=status.decode(),
        text=text.decode("utf-8", "replace"),
        user=user.decode("utf-8", "replace"),
        metadata=dict(decode_metadata(metadata)),
    )


def user_of(reply: ZapReply) -> str:
    """Return the user who was let in.  Raises ``LoginRefused``."""
    if reply.status != ACCEPTED:
        raise LoginRefused(f"{reply.status}: {reply.text or MEANINGS.get(reply.status, 'refused')}")
    return reply.user
