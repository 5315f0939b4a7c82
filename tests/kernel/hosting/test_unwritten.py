"""What is still to be written: its order and its size, however much a wire takes at a time."""

from __future__ import annotations

from collections import deque

import pytest

from kernel.contracts.message import Buffer
from kernel.hosting.unwritten import Unwritten


class SlowWire:
    """Takes so many bytes in all, or is cut."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.written = b""

    def send(self, buffers: deque[Buffer]) -> bool:
        if self.room < 0:
            raise ConnectionResetError("cut")
        while buffers and self.room:
            taken = bytes(buffers[0][: self.room])
            rest = buffers.popleft()[len(taken) :]
            if rest:
                buffers.appendleft(rest)
            self.written += taken
            self.room -= len(taken)
        return not buffers

    def fileno(self) -> int:
        return -1

    def receive(self, most: int) -> bytes | None:
        return None

    def close(self) -> None:
        """Nothing to give back."""


@pytest.mark.parametrize("room", range(12))
def test_what_does_not_go_waits_in_its_order(room: int) -> None:
    out, wire = Unwritten(), SlowWire(room)
    written = out.write([b"abc", b"", b"defg"], wire)
    assert (written, out.size, bool(out)) == (min(room, 7), max(7 - room, 0), room < 7)
    wire.room = 100
    assert out.write([b"hi"], wire) == 9 - written
    assert (wire.written, out.size, bool(out)) == (b"abcdefghi", 0, False)


def test_a_wire_that_is_cut_leaves_all_of_it_to_be_forgotten() -> None:
    out = Unwritten()
    with pytest.raises(ConnectionResetError):
        out.write([b"abc"], SlowWire(-1))
    assert (out.size, bool(out)) == (3, True)
    out.clear()
    assert (out.size, bool(out)) == (0, False)


def test_nothing_to_write_asks_nobody() -> None:
    assert Unwritten().write([], SlowWire(-1)) == 0
