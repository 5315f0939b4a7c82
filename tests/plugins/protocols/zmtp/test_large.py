"""Large bodies, which are received into a buffer of their own."""

from __future__ import annotations

import pytest

from kernel.contracts.errors import RemoteProtocolError
from kernel.contracts.message import Batch, batch_of
from plugins.protocols.zmtp.connection import ZmtpConnection
from tests.plugins.protocols.zmtp.conversation import plain, told, written

MESSAGES = [
    b"a" * 1_000_000,
    b"small",
    b"b" * 32 * 1024,
    (b"key", b"c" * 2_000_000, b"", b"d" * 100_000),
    b"e" * 70_000,
]


def octets() -> bytes:
    push = told("PUSH", b"PULL")
    for message in MESSAGES:
        push.send_batches([batch_of([message], multipart=isinstance(message, tuple))], 0)
    return written(push)


def received(end: ZmtpConnection, data: bytes, most: int, into_room: bool) -> list[Batch]:
    """Hand bytes over as a host does, which reads ``most`` at a time."""
    batches: list[Batch] = []
    at = 0
    while at < len(data):
        with end.room() as room:
            count = min(len(room), most, len(data) - at) if into_room else 0
            if count:
                # Nobody allocates what was only announced.
                assert len(room) <= 4 * (at + most)
                room[:count] = data[at : at + count]
        if count:
            batches += end.filled(count, 0)
        else:
            count = min(end.read_hint(most), len(data) - at) if into_room else min(most, len(data) - at)
            batches += end.receive_data(data[at : at + count], 0)
        at += count
    return batches


@pytest.mark.parametrize("into_room", [True, False])
@pytest.mark.parametrize("most", [1_000, 65_536, 262_144, 10_000_000])
def test_large_bodies_arrive(most: int, into_room: bool) -> None:
    end = told("PULL", b"PUSH")
    got = [body for body, _ in plain(received(end, octets() * 3, most, into_room))]
    assert got == MESSAGES * 3
    end.receive_eof(0)


def test_bodies_do_not_share_a_buffer() -> None:
    end = told("PULL", b"PUSH")
    push = told("PUSH", b"PULL")
    push.send_batches([batch_of([bytes((number,)) * 100_000 for number in range(5)])], 0)
    batches = received(end, written(push), 4096, into_room=True)
    assert [body for body, _ in plain(batches)] == [bytes((number,)) * 100_000 for number in range(5)]


def test_the_rest_is_received_where_it_stays() -> None:
    end = told("PULL", b"PUSH")
    end.receive_data(b"\2" + (1 << 20).to_bytes(8, "big") + b"x" * 300_000, 0)
    with end.room() as room:
        assert len(room) == (1 << 20) - 300_000
    # The next bytes go there.
    assert end.read_hint(65_536) == 0


def test_small_ones_behind_a_large_one_are_read_at_once() -> None:
    end = told("PULL", b"PUSH")
    received(end, b"\2" + (1 << 20).to_bytes(8, "big") + b"x" * (1 << 20), 65_536, into_room=True)
    assert end.read_hint(65_536) == 4096
    end.receive_data(b"\0\5hello" * 100, 0)
    assert end.read_hint(65_536) == 65_536


def test_what_is_too_large_is_refused_before_it_comes() -> None:
    end = told("PULL", b"PUSH", max_message=1_000_000)
    with pytest.raises(RemoteProtocolError, match="max_message"):
        end.receive_data(b"\2" + (1_000_001).to_bytes(8, "big"), 0)
    end = told("PULL", b"PUSH", max_message=1_000_000)
    end.receive_data(b"\3" + (999_999).to_bytes(8, "big") + b"x" * 999_999, 0)
    with pytest.raises(RemoteProtocolError, match="max_message"):
        end.receive_data(b"\0\2xx", 0)


def test_hanging_up_in_a_large_body_is_an_error() -> None:
    end = told("PULL", b"PUSH")
    end.receive_data(b"\2" + (1 << 20).to_bytes(8, "big") + b"x", 0)
    with pytest.raises(RemoteProtocolError, match="middle"):
        end.receive_eof(0)


def test_too_many_parts_of_which_the_last_are_large() -> None:
    end = told("PULL", b"PUSH", max_parts=2)
    frame = b"\3" + (100_000).to_bytes(8, "big")
    end.receive_data(b"\1\1a" + frame + b"x" * 99_999, 0)
    with end.room() as room:
        room[:1] = b"x"
    with pytest.raises(RemoteProtocolError, match="max_parts"):
        end.filled(1, 0)
    assert end.closed()
