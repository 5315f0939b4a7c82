"""Losses are told at once, and then once a second at the most."""

from __future__ import annotations

from plugins.engines.pgm.group_receiver import Losses
from plugins.protocols.pgm.events import Event, What

ONE, OTHER = b"one.....", b"other..."


def _lost(tsi: bytes, first: int, last: int, why: str = "gone") -> Event:
    return Event(what=What.LOST, tsi=tsi, first=first, last=last, detail=why)


def test_the_first_is_told_at_once_and_the_rest_together() -> None:
    told: list[tuple[bytes, str]] = []
    losses = Losses(lambda tsi, text: told.append((tsi, text)))
    losses.add(_lost(ONE, 5, 7))
    losses.handle_timeout(100.0)
    assert told == [(ONE, "3 packets from 5 to 7: gone")]
    for number in range(10, 20, 2):
        losses.add(_lost(ONE, number, number, "full" if number == 10 else "gone"))
        losses.handle_timeout(100.1)
    losses.add(_lost(OTHER, 0xFFFFFFFF, 1))
    losses.handle_timeout(100.2)
    assert told[1:] == [(OTHER, "3 packets from 4294967295 to 1: gone")]
    assert losses.next_deadline() == 101.0
    losses.handle_timeout(101.0)
    assert told[2:] == [(ONE, "5 packets from 10 to 18: full, gone")]
    assert losses.next_deadline() is None


def test_what_is_left_to_tell_of_a_source_that_goes_is_told() -> None:
    told: list[tuple[bytes, str]] = []
    losses = Losses(lambda tsi, text: told.append((tsi, text)))
    for number in (1, 3):
        losses.add(_lost(ONE, number, number))
        losses.handle_timeout(100.0)
    losses.forget(ONE)
    losses.forget(ONE)
    assert told == [(ONE, "1 packet from 1 to 1: gone"), (ONE, "1 packet from 3 to 3: gone")]
