"""Greetings: what comes before the first frame, in each version.

37/ZMTP, "Detecting ZMTP 1.0 and 2.0 Peers".
"""

from __future__ import annotations

import msgspec

SIGNATURE = b"\xff\0\0\0\0\0\0\0\1\x7f"
"""To a peer of 1.0 these ten bytes are a long frame of one byte, its flags: an empty identity."""
SIGNATURE_SIZE, GREETING_2_SIZE, GREETING_3_SIZE = 10, 12, 64
MAJOR, MINOR = 3, 1
_MECHANISM_SIZE = 20


class Greeting(msgspec.Struct, frozen=True):
    """A greeting of version 3."""

    major: int
    minor: int
    mechanism: str
    as_server: bool


def encode_signature(identity: bytes) -> bytes:
    """Return the first ten bytes.

    To a peer of 1.0 they are the head of a frame with the identity, which follows once the peer is known to
    be one.  Later versions do not look at the size (37/ZMTP: padding).
    """
    return SIGNATURE[:1] + (len(identity) + 1).to_bytes(8, "big") + SIGNATURE[9:]


def encode_rest(mechanism: str, *, as_server: bool) -> bytes:
    """Return what follows signature and major version."""
    return (
        bytes((MINOR,)) + mechanism.encode().ljust(_MECHANISM_SIZE, b"\0") + bytes((as_server,)) + bytes(31)
    )


def decode_greeting(octets: bytes) -> Greeting:
    """Read a greeting of 64 bytes."""
    mechanism = octets[12:32].rstrip(b"\0").decode("ascii", "replace")
    return Greeting(octets[10], octets[11], mechanism, bool(octets[32]))


def is_version_1(data: bytes) -> bool | None:
    """Whether a peer whose first bytes are these speaks 1.0; None if they do not tell yet."""
    if not data:
        return None
    # 1.0 begins with the length of the identity.  Only a long one has 0xFF there; then the tenth byte is its
    # flags, whose lowest bit (MORE) is 0 in an identity.
    if data[0] != SIGNATURE[0]:
        return True
    return None if len(data) < SIGNATURE_SIZE else not data[9] & 1
