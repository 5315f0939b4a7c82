"""Durations: any number of them, in a bounded number of buckets."""

from __future__ import annotations

from math import ceil, log
from typing import Any

WIDTH = 1.05
"""Each bucket is wider than the one before by this factor, which is the precision of a percentile."""
_SHORTEST = 1e-6
_LONGEST = 1e6


class Durations:
    """Durations in seconds; reports are in milliseconds."""

    def __init__(self) -> None:
        self.count: int = 0
        self.longest: float = 0.0
        self._buckets: dict[int, int] = {}

    def add(self, seconds: float) -> None:
        """Add a duration."""
        self.count += 1
        self.longest = max(self.longest, seconds)
        # The bucket is the exponent: a logarithm to the base WIDTH.  Durations of a microsecond to 11 days
        # need about 570 buckets.
        bucket = round(log(min(max(seconds, _SHORTEST), _LONGEST) / _SHORTEST, WIDTH))
        self._buckets[bucket] = self._buckets.get(bucket, 0) + 1

    def percentile(self, share: float) -> float:
        """Return the duration in seconds that this share of all does not exceed; 0 if there are none."""
        left = ceil(share * self.count)
        for bucket in sorted(self._buckets):
            left -= self._buckets[bucket]
            if left <= 0:
                # The middle of a bucket may be above the longest duration in it.
                return min(_SHORTEST * WIDTH**bucket, self.longest)
        return 0.0

    def facts(self, name: str) -> dict[str, Any]:
        """Return median, 99th percentile and maximum in milliseconds, under names with this prefix.

        Nothing if there are none.
        """
        if not self.count:
            return {}
        values = {"p50": self.percentile(0.5), "p99": self.percentile(0.99), "max": self.longest}
        return {f"{name}_{which}_ms": round(seconds * 1e3, 3) for which, seconds in values.items()}
