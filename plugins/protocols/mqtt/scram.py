"""SCRAM-SHA-256 (RFC 5802, RFC 7677): a client proves that it knows a password, and the server that it does.

The password itself is not sent.  ``ServerExchange`` is the server's part of one exchange, without channel
binding: MQTT sends the four messages in CONNECT, AUTH, AUTH and CONNACK (MQTT 5.0, 4.12).
"""

from __future__ import annotations

import hmac
import re
import stringprep
import unicodedata
from base64 import b64decode, b64encode
from collections.abc import Callable
from hashlib import pbkdf2_hmac, sha256
from typing import NamedTuple

SCRAM = "SCRAM-SHA-256"
ITERATIONS = 4096
"""The least that RFC 7677 allows: a login takes the server one and a half milliseconds."""

_CLIENT_FIRST = re.compile(r"([ny],(?:a=([^,]+))?,)(n=([^,]+),r=([!-+\--~]+)(?:,[A-Za-z]=[^,]+)*)")
"""Header, authorization identity, the rest, name, nonce.  ``p=`` asks for channel binding, ``m=`` for an
extension that must be known; neither is."""
_CLIENT_FINAL = re.compile(r"(c=([^,]+),r=([!-+\--~]+)(?:,[A-Za-z]=[^,]+)*),p=([^,]+)")
"""All but the proof, the header in base64, nonce, proof."""


class ScramFault(ValueError):
    """A message of a client that is no SCRAM message, or not one of this exchange."""


class ScramKeys(NamedTuple):
    """What a server has to know of a password."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes


def scram_keys(password: str, salt: bytes, iterations: int = ITERATIONS) -> ScramKeys:
    """Compute the keys of a password (RFC 5802, 3).  This takes a while, which is its purpose."""
    salted = pbkdf2_hmac("sha256", prepare(password).encode("utf-8", "surrogatepass"), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    server_key = hmac.digest(salted, b"Server Key", "sha256")
    return ScramKeys(salt, iterations, sha256(client_key).digest(), server_key)


class ServerExchange:
    """One exchange: ``first``, then ``final``."""

    def __init__(self, nonce: str, keys_of: Callable[[str], ScramKeys]) -> None:
        """``nonce``: the server's part, which nobody can guess.

        ``keys_of`` returns keys for every name, also for one that does not exist: otherwise ``first`` would
        tell which names do.
        """
        self.name = ""
        """The user, from ``first`` on."""
        self._nonce = nonce
        self._keys_of = keys_of
        self._keys: ScramKeys
        self._header = ""
        self._said = ""
        """The first messages of both, which are signed."""

    def first(self, message: bytes) -> bytes:
        """Return the answer to the client's first message; raise ``ScramFault`` if it is none."""
        found = _CLIENT_FIRST.fullmatch(_text(message))
        if found is None:
            raise ScramFault("the first message is not 'n,,n=NAME,r=NONCE'")
        self._header, identity, bare, name, nonce = found.groups()
        # RFC 5802, 5.1: an authorization identity says for whom the user acts.
        if identity not in (None, name):
            raise ScramFault("a user cannot act for another one")
        self.name = _unescape(name)
        self._keys = keys = self._keys_of(self.name)
        self._nonce = nonce + self._nonce
        answer = f"r={self._nonce},s={b64encode(keys.salt).decode()},i={keys.iterations}"
        self._said = f"{bare},{answer}"
        return answer.encode()

    def final(self, message: bytes) -> bytes | None:
        """Return the answer to the client's final message: the server's signature; None: the proof is wrong.

        Raises ``ScramFault`` if it is no such message.
        """
        found = _CLIENT_FINAL.fullmatch(_text(message))
        if found is None:
            raise ScramFault("the final message is not 'c=HEADER,r=NONCE,p=PROOF'")
        without_proof, header, nonce, proof = found.groups()
        # Both were said before. The header is repeated so that nobody on the way can change whether channel
        # binding was asked for (RFC 5802, 6).
        if nonce != self._nonce or _octets(header) != self._header.encode():
            raise ScramFault("the final message is of another exchange")
        signed = f"{self._said},{without_proof}".encode()
        keys = self._keys
        signature = hmac.digest(keys.stored_key, signed, "sha256")
        given = _octets(proof)
        if len(given) != len(signature):
            raise ScramFault("the proof has another length than a signature")
        client_key = bytes([one ^ other for one, other in zip(given, signature, strict=True)])
        # In constant time: how long a comparison takes must not tell how much of a proof is right.
        if not hmac.compare_digest(sha256(client_key).digest(), keys.stored_key):
            return None
        return b"v=" + b64encode(hmac.digest(keys.server_key, signed, "sha256"))


def prepare(text: str) -> str:
    """Return a password as SASLprep has it (RFC 4013), or as it is if SASLprep forbids it.

    Two ways to type a letter are then the same password.
    """
    mapped = [
        " " if stringprep.in_table_c12(sign) else sign for sign in text if not stringprep.in_table_b1(sign)
    ]
    prepared = unicodedata.normalize("NFKC", "".join(mapped))
    if any(test(sign) for sign in prepared for test in _FORBIDDEN):
        return text
    # RFC 4013, 2.3: text from right to left must not have letters from left to right, and begins and ends
    # with its own.
    if any(map(stringprep.in_table_d1, prepared)) and (
        any(map(stringprep.in_table_d2, prepared))
        or not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1]))
    ):
        return text
    return prepared


_FORBIDDEN = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def _text(message: bytes) -> str:
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise ScramFault("a message is no UTF-8") from None


def _unescape(name: str) -> str:
    if re.search("=(?!2C|3D)", name):
        raise ScramFault("a '=' in a name is written '=3D'")
    return name.replace("=2C", ",").replace("=3D", "=")


def _octets(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except ValueError:
        raise ScramFault("the final message has something that is no base64") from None
