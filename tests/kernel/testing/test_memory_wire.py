"""The wire without a socket takes the same buffers as one with a socket."""

from __future__ import annotations

from collections import deque

from kernel.contracts.message import Buffer
from kernel.testing.memory_wire import SimulatedHost


def test_an_empty_buffer_takes_no_other_with_it() -> None:
    host = SimulatedHost()
    ours, theirs = host.wire()
    buffers: deque[Buffer] = deque([b"", b"message", b""])
    assert ours.send(buffers)
    host.run()
    assert theirs.receive(100) == b"message"
    assert not buffers
