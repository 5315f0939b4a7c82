"""Unpredictable values: tags, initial TSNs, nonces, and the authentication of cookies.

All derive from one key of the host.
"""

from __future__ import annotations

import hmac

_MAC_SIZE = 32


class Secret:
    """HMAC-SHA256 of a counter, and of cookies."""

    def __init__(self, key: bytes, key_lifetime: float) -> None:
        """Make the generator.

        ``key_lifetime`` is in seconds: cookies get a new derived key after that (RFC 9260, 5.1.3).
        """
        if len(key) < 16:
            raise ValueError(f"a key of {len(key)} bytes; at least 16 are needed, 32 are better")
        self._key = key
        self._lifetime = key_lifetime
        self._count = 0

    def nonce(self, size: int) -> bytes:
        """Return ``size`` bytes (32 at most) that were never returned before."""
        self._count += 1
        # The prefix separates the uses of the key: a nonce on the wire must never be a cookie's key.
        return hmac.digest(self._key, b"nonce" + self._count.to_bytes(8, "big"), "sha256")[:size]

    def number(self) -> int:
        """Return a nonzero number of 32 bits."""
        # 0 means "no tag" (5.3.1).
        return int.from_bytes(self.nonce(4), "big") or 1

    def share(self) -> float:
        """Return a number from 0 (included) to 1 (excluded)."""
        return int.from_bytes(self.nonce(4), "big") / (1 << 32)

    def signed(self, data: bytes, now: float) -> bytes:
        """Return ``data`` with a signature that stays valid for at least one ``key_lifetime``."""
        return self._mac(data, self._period(now)) + data

    def opened(self, data: bytes, now: float) -> bytes | None:
        """Return the signed data, or None.

        None: the signature is wrong, or its key is older than the previous one.
        """
        inner, period = data[_MAC_SIZE:], self._period(now)
        # A cookie that was signed just before the key changed must still be accepted (5.1.3).
        for each in (period, period - 1):
            # Compared in constant time: the time must not tell how much of a forged MAC is right.
            if hmac.compare_digest(data[:_MAC_SIZE], self._mac(inner, each)):
                return inner
        return None

    def _period(self, now: float) -> int:
        return int(now // self._lifetime)

    def _mac(self, data: bytes, period: int) -> bytes:
        key = hmac.digest(self._key, b"cookies" + period.to_bytes(8, "big", signed=True), "sha256")
        return hmac.digest(key, data, "sha256")
