"""What nobody else can guess: tags, first TSNs, nonces, and the authentication of cookies.  All from one key of the host's."""

from __future__ import annotations

import hmac

_MAC_SIZE = 32


class Secret:
    """HMAC-SHA256 of a counter, and of cookies."""

    def __init__(self, key: bytes, key_lifetime: float) -> None:
        """``key_lifetime``: seconds after which cookies have another key, derived from this (RFC 9260, 5.1.3)."""
        if len(key) < 16:
            raise ValueError(f"a key of {len(key)} bytes; it takes 16 at least, 32 are better")
        self._key = key
        self._lifetime = key_lifetime
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

    def signed(self, data: bytes, now: float) -> bytes:
        """Return ``data`` with a proof that it comes from here, which lasts for one key's time at the least."""
        return self._mac(data, self._period(now)) + data

    def opened(self, data: bytes, now: float) -> bytes | None:
        """Return what was signed; None if it was not signed here, or with a key before the last."""
        inner, period = data[_MAC_SIZE:], self._period(now)
        for each in (period, period - 1):
            if hmac.compare_digest(data[:_MAC_SIZE], self._mac(inner, each)):
                return inner
        return None

    def _period(self, now: float) -> int:
        return int(now // self._lifetime)

    def _mac(self, data: bytes, period: int) -> bytes:
        key = hmac.digest(self._key, b"cookies" + period.to_bytes(8, "big", signed=True), "sha256")
        return hmac.digest(key, data, "sha256")
