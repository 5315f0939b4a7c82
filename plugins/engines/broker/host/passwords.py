"""Passwords: in plain text, or in the form in which RabbitMQ keeps and exports them.

That form is base64 of four octets of salt followed by the digest of salt and password.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64decode, b64encode

import msgspec

from plugins.engines.broker.host.options import Hashing

_SALT = 4
"""Octets of salt in RabbitMQ's form."""


class Password(msgspec.Struct, frozen=True):
    """A password that is known by its digest.  Without a digest, no password is right."""

    digest: bytes = b""
    salt: bytes = b""
    hashing: Hashing = "sha256"
    plain: str = ""
    """In plain text, where it was given so: proofs such as SCRAM's need it.  Empty: it is not known."""

    def __repr__(self) -> str:
        return "<Password>"

    @classmethod
    def from_hash(cls, text: str, hashing: Hashing) -> Password:
        """Read RabbitMQ's form; ``ValueError`` if it is none."""
        try:
            octets = b64decode(text, validate=True)
        except ValueError as error:
            raise ValueError(f"the password hash is no base64: {error}") from None
        wanted = _SALT + hashlib.new(hashing, usedforsecurity=False).digest_size
        if len(octets) != wanted:
            raise ValueError(f"a {hashing} password hash has {wanted} octets in base64, not {len(octets)}")
        return cls(octets[_SALT:], octets[:_SALT], hashing)

    @classmethod
    def from_plain(cls, text: str, salt: bytes) -> Password:
        """Salt and digest a password.  The empty password lets nobody in, as in RabbitMQ."""
        return cls(_digest("sha256", salt, text.encode()), salt, plain=text) if text else cls()

    def is_given_by(self, given: str) -> bool:
        """Whether ``given`` is the password.  A wrong one takes as long as the right one."""
        # Computed also where there is no password.  Octets of a client that are no UTF-8 are hashed as they
        # came.
        digest = _digest(self.hashing, self.salt, given.encode("utf-8", "surrogateescape"))
        return bool(self.digest) and hmac.compare_digest(digest, self.digest)

    def as_hash(self) -> str:
        """Return RabbitMQ's form; empty if nobody has the password."""
        return b64encode(self.salt + self.digest).decode() if self.digest else ""


def _digest(hashing: Hashing, salt: bytes, password: bytes) -> bytes:
    # One round, as RabbitMQ does it: the form is for moving users between brokers.  ``usedforsecurity=False``
    # lets a system that forbids MD5 (FIPS) read the hashes that an old RabbitMQ has exported.
    return hashlib.new(hashing, salt + password, usedforsecurity=False).digest()
