"""A receiver of a feed alone: frames by hand, in an order that a network seldom has."""

from __future__ import annotations

from plugins.protocols.switchover import frames
from plugins.protocols.switchover.frames import NUMBER
from plugins.protocols.switchover.receiving import ReceivingSide

FEED = b"feed-one"


def _unit(number: int) -> bytes:
    return NUMBER.pack(number) + b"%d" % number


def _side() -> ReceivingSide:
    side = ReceivingSide(max_unit=100, reorder_bytes=10)
    side.connected()
    side.receive(frames.welcome(FEED, 0), 1.0)
    return side


def test_units_behind_a_loss_that_came_early_are_delivered_and_no_longer_count_as_early() -> None:
    side = _side()
    side.receive_group([_unit(number) for number in (2, 3, 5, 6, 8)], 1.0)
    assert side.take() == []
    side.disconnected()
    side.connected()
    # The sender has units from 5 on.
    side.receive(frames.welcome(FEED, 5), 2.0)
    assert side.statistics.lost_units == 5
    assert (side.take(), side.next) == ([b"5", b"6"], 7)
    # The sender repeats what HELLO did not name.
    side.receive(b"".join(frames.unit_header(number, 1) + b"%d" % number for number in (5, 6, 7)), 2.0)
    assert (side.take(), side.next) == ([b"7", b"8"], 9)
    assert side.statistics.duplicates == 2
    # All ten bytes are there again for units that come early.
    side.receive_group([_unit(number) for number in range(10, 15)], 2.0)
    side.receive_group([_unit(number) for number in range(9, 20)], 2.0)
    assert side.take() == [b"%d" % number for number in range(9, 20)]
