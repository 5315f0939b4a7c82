"""What tests of stream dissectors have in common."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from kernel.contracts.dissector import Line, StreamDissector

Said = Sequence[tuple[int, bytes]]
"""Who has sent which bytes, in order."""


def heard(dissector: StreamDissector, said: Said) -> list[Line]:
    """Show all of it to a dissector, a millisecond apart."""
    return [
        line for at, (sender, data) in enumerate(said) for line in dissector.receive(sender, data, at / 1000)
    ]


def names(lines: Sequence[Line]) -> list[str]:
    """What the lines are called."""
    return [line.what for line in lines]


def damaged(make: Callable[[], StreamDissector], said: Said, seed: int) -> list[dict[str, Any]]:
    """Change bytes, cut them anywhere, drop some, say that others are missing; whatever happens, it is lines."""
    chance = random.Random(seed)
    dissector = make()
    time = 0.0
    for sender, data in [*said, *said]:
        rest = bytearray(data)
        for _ in range(chance.choice((0, 0, 1, 5))):
            rest[chance.randrange(len(rest))] = chance.randrange(256)
        while rest:
            size = chance.choice((1, 3, 20, 1000))
            piece, rest = bytes(rest[:size]), rest[size:]
            time += 0.001
            fate = chance.random()
            if fate < 0.9:
                lines = dissector.receive(sender, piece, time)
            elif fate < 0.95:
                lines = dissector.lose(sender, len(piece), time)
            else:
                lines = dissector.lose(sender, None, time)
            assert all(isinstance(line, Line) for line in lines)
    return [dict(dissector.figures())]
