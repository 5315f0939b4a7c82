"""What a message costs as an object, and as a part of a batch.

These are the figures of docs/decisions/0001-batches-not-messages.md.

python -m benchmarks.batch_costs
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from kernel.contracts.message import PLAIN, Message, batch_of
from plugins.protocols.backend.frames import encode_bodies, equal_bodies, equal_headers

COUNT = 1000
ROUNDS = 300


class Plain:
    """A message as a class is usually written."""

    __slots__ = ("body", "envelope")

    def __init__(self, body: bytes, envelope: object) -> None:
        self.body = body
        self.envelope = envelope


def best_ns(function: Callable[[], Any]) -> float:
    """Return the nanoseconds for each message in the best of many rounds, the least disturbed one."""
    best = float("inf")
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - begin)
    return best / COUNT * 1e9


def main() -> None:
    bodies = [bytes(100)] * COUNT
    mixed = [bytes(1 + number % 200) for number in range(COUNT)]
    data = bytes(encode_bodies(bodies, 100)[0])
    head = data[:1]
    rows: dict[str, Callable[[], Any]] = {
        "an object with __slots__ and __init__": lambda: [Plain(body, PLAIN) for body in bodies],
        "a tuple": lambda: [(body, PLAIN, ()) for body in bodies],
        "a msgspec.Struct(gc=False)": lambda: [Message(body, PLAIN) for body in bodies],
        "a run: looking at the sizes": lambda: batch_of(bodies),
        "a run: one header joined between the bodies": lambda: head + head.join(bodies),
        "a run: encoding": lambda: encode_bodies(bodies, 100),
        "a run: encoding mixed sizes": lambda: encode_bodies(mixed),
        "a run: decoding by blocks": lambda: equal_bodies(data, 0, 100, equal_headers(data, 0, 101, COUNT)),
    }
    for name, function in rows.items():
        print(f"{name:46}{best_ns(function):6.0f} ns")


if __name__ == "__main__":
    main()
