"""The feed of the demonstration: all airports of the package ``airportsdata``, some 28,000 records.

With the environment variable ``RECORDS`` it is only so many of them.
"""

from __future__ import annotations

import csv
import importlib.resources
import json
import os
import time
from collections.abc import Iterator
from itertools import islice

PARTS = 2
"""The feed is published by this many programs."""
PATIENT = 10
"""One record of so many goes to the program that waits for each confirm."""


def records(part: int) -> Iterator[tuple[int, str, dict[str, str]]]:
    """Return number, routing key and record of the airports that one of the programs publishes.

    Part 0 has every ``PATIENT``-th airport, and part 1 the others.
    """
    source = importlib.resources.files("airportsdata") / "airports.csv"
    most = int(os.environ["RECORDS"]) if os.environ.get("RECORDS") else None
    with source.open(encoding="utf-8", newline="") as lines:
        for number, record in enumerate(islice(csv.DictReader(lines), most)):
            if (number % PATIENT > 0) == part:
                yield number, f"airport.{record['country'].lower()}.{record['icao'].lower()}", record


def encode(number: int, record: dict[str, str], sequence: int) -> bytes:
    """Return the body of a message: the record, its number, and the time at which it is sent.

    ``sequence``: how many the program has published before.
    """
    head = {"number": number, "sent": time.time_ns(), "sequence": sequence}
    return json.dumps({**head, **record}).encode()


class Pace:
    """The rate of a program that publishes."""

    def __init__(self) -> None:
        self._begun = time.monotonic()

    def report(self, published: int) -> dict[str, float]:
        """The figures; the last message is confirmed now."""
        return {"published": published, "per_second": published / (time.monotonic() - self._begun)}


class Arrivals:
    """The messages of one receiver: their number, duplicates, and latencies."""

    def __init__(self) -> None:
        self.numbers: set[int] = set()
        self.duplicates = 0
        self.latencies: list[int] = []

    def take(self, body: bytes) -> None:
        """Count one message."""
        now = time.time_ns()
        record = json.loads(body)
        self.latencies.append(now - record["sent"])
        if record["number"] in self.numbers:
            self.duplicates += 1
        self.numbers.add(record["number"])

    def report(self) -> dict[str, float]:
        """The figures; latencies in milliseconds."""
        ordered = sorted(self.latencies) or [0]
        return {
            "delivered": len(self.numbers),
            "duplicates": self.duplicates,
            "p50": ordered[len(ordered) // 2] / 1e6,
            "p99": ordered[len(ordered) * 99 // 100] / 1e6,
            "most": ordered[-1] / 1e6,
        }


def say(**what: object) -> None:
    """Tell the demonstration something: one JSON object a line."""
    print(json.dumps(what), flush=True)
