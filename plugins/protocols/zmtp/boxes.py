"""Boxes of NaCl, which CURVE is made of (26/CURVEZMQ).

This module needs PyNaCl, so it is imported when a conversation with CURVE begins.
"""

from __future__ import annotations

from nacl import bindings
from nacl._sodium import ffi, lib
from nacl.exceptions import CryptoError

from plugins.protocols.zmtp.faults import HandshakeFault

BOX_OVERHEAD = 16
"""Octets by which a box is larger than its text."""


def random_octets(count: int) -> bytes:
    """Return random octets from libsodium's generator, which is good enough for keys."""
    return bindings.randombytes(count)


def public_key(secret: bytes) -> bytes:
    """Return the public key that belongs to a secret key."""
    return bindings.crypto_scalarmult_base(secret)


def shared_key(theirs: bytes, secret: bytes) -> bytes:
    """Return the key of boxes between the owner of ``secret`` and the owner of the public key ``theirs``.

    Raises ``RemoteProtocolError`` for octets that are no key: libsodium refuses points of a low order.
    """
    try:
        return bindings.crypto_box_beforenm(theirs, secret)
    except CryptoError:
        raise HandshakeFault("octets that are no public key", "cryptographic") from None


seal = bindings.crypto_box_easy_afternm
"""Returns a box: ``seal(text, nonce, key)``."""

# What follows is for messages: it writes into memory that is there.  PyNaCl's own wrappers copy, and cost
# more than the cryptography.  Nothing is checked: a box needs BOX_OVERHEAD octets more than its text.
memory_of, octets_of, new_memory = ffi.from_buffer, ffi.buffer, ffi.new
"""cffi's access to a buffer, its way back, and memory of its own."""

seal_into = lib.crypto_box_easy_afternm
"""Writes a box: ``seal_into(memory, text, size of the text, nonce, key)``."""

unseal_into = lib.crypto_box_open_easy_afternm
"""Writes a text: ``unseal_into(memory, box, size of the box, nonce, key)``; returns 0, or -1 if
it does not open."""


def unseal(box: bytes, nonce: bytes, key: bytes, what: str) -> bytes:
    """Open a box.  Raises ``RemoteProtocolError`` if another key has made it, or if it was changed."""
    try:
        return bindings.crypto_box_open_easy_afternm(box, nonce, key)
    except CryptoError:
        text = f"{what} does not open: another key, or changed on its way"
        raise HandshakeFault(text, "cryptographic") from None


def seal_for_oneself(text: bytes, nonce: bytes, key: bytes) -> bytes:
    """Return a box with one secret key."""
    return bindings.crypto_secretbox(text, nonce, key)


def unseal_own(box: bytes, nonce: bytes, key: bytes, what: str) -> bytes:
    """Open a box with one secret key.  Raises ``RemoteProtocolError``."""
    try:
        return bindings.crypto_secretbox_open(box, nonce, key)
    except CryptoError:
        raise HandshakeFault(f"{what} is none of this conversation", "cryptographic") from None
