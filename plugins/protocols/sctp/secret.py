"""What nobody else can guess: tags, first TSNs, nonces, and the authentication of cookies.  All from one key of the host's."""

from __future__ import annotations

import hmac

_MAC_SIZE = 32


class Secret:
    """HMAC-SHA256 of a counter, and of cookies."""

    def __init__(self, key: bytes) -> None:
        if len(key) < 16:
            raise ValueError(f"a key of {len(key)} bytes; it takes 16 at least, 32 are better")
        self._key = key
        self._count = 0

    def nonce(self, size: int) -> bytes:
        """Return ``size`` bytes, 32 at the most, that were not given out before."""
        self._count += 1
        return hmac.digest(self._key, b"nonce" + self._count.to_bytes(8, "big"), "sha256")[:size]

    def number(self) -> int:
        """Return a number of 32 bits that is not zero."""
        return int.from_bytes(self.nonce(4), "big") or 1

    def share(self) -> float:
        """Return a number from 0 up to, but not including, 1."""
        return int.from_bytes(self.nonce(4), "big") / (1 << 32)

    def signed(self, data: bytes) -> bytes:
        return self._mac(data) + data

    def opened(self, data: bytes) -> bytes | None:
        """Return what was signed; None if it was not signed here."""
        inner = data[_MAC_SIZE:]
        return inner if hmac.compare_digest(data[:_MAC_SIZE], self._mac(inner)) else None

    def _mac(self, data: bytes) -> bytes:
        return hmac.digest(self._key, b"cookie" + data, "sha256")
