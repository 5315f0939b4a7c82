"""Routers' marks of congestion: told until they are heard, and answered by half a window, once."""

from __future__ import annotations

import msgspec
import pytest

from plugins.protocols.sctp import chunks, packets
from plugins.protocols.sctp.chunks import Plain, Type
from tests.plugins.protocols.sctp.network import QUICK, Network

MARKED = msgspec.structs.replace(QUICK, ecn=True)


def test_the_chunks_have_the_bytes_of_the_rfc() -> None:
    """RFC 4960, appendix A: type, no flags, length 8, the lowest TSN."""
    assert chunks.encode(Plain(Type.ECHO, b"\0\0\1\2")) == bytes.fromhex("0c 00 0008 00000102")
    assert chunks.encode(Plain(Type.REDUCED, b"\0\0\1\2")) == bytes.fromhex("0d 00 0008 00000102")


def test_a_mark_halves_the_window_once_and_nothing_is_sent_again() -> None:
    network = Network(a=MARKED, b=MARKED)
    ours, theirs = network.open()
    (path,) = ours.paths.all
    path.cwnd, path.ssthresh = 32_000, 16_000  # the slow start is over
    seen: list[int] = []
    marked: list[int] = []

    def marks(packet: bytes) -> bool:
        kinds = [chunks.kind_of(chunk) for chunk in packets.decode(packet).chunks]
        seen.extend(kinds)
        if Type.I_DATA in kinds and seen.count(Type.I_DATA) > 60 and len(marked) < 3:
            marked.append(path.cwnd)
            return True
        return False

    network.marks = marks
    ours.send_many(0, [bytes(1000)] * 200)
    network.run_until(lambda: bool(marked))
    network.run_until(lambda: Type.REDUCED in seen)
    assert 16_000 <= path.ssthresh < 32_000
    assert marked[0] // 2 <= path.cwnd < marked[0] * 0.75  # three marks in one window count once
    network.run_until(lambda: ours.sender.is_empty())
    network.run(1.0)
    assert len(network.b.messages) == 200
    assert path.ssthresh >= 4 * MARKED.packet_size
    assert theirs.output.ecn.echo() == b""
    assert ours.sender.outstanding.retransmitted == 0


def test_the_mark_is_told_until_it_was_heard() -> None:
    network = Network(a=MARKED, b=MARKED)
    ours, theirs = network.open()
    network.marks = lambda packet: True
    ours.send(0, b"x")
    network.run(0.02)
    network.marks = lambda packet: False
    for _ in range(3):
        theirs.receiver.sack_due = network.now
        theirs.touched[theirs] = None
        ((_, packet),) = network.b.endpoint.data_to_send(network.now)
        assert [chunks.kind_of(chunk) for chunk in packets.decode(packet).chunks] == [Type.SACK, Type.ECHO]
    network.inject(network.a, packet, bytes((10, 0, 0, 2)))
    network.run(0.05)
    assert theirs.output.ecn.echo() == b""


@pytest.mark.parametrize("ours, theirs", [(MARKED, QUICK), (QUICK, MARKED), (QUICK, QUICK)])
def test_without_consent_marks_are_nothing(ours: object, theirs: object) -> None:
    network = Network(a=ours, b=theirs)
    sending, _ = network.open()
    network.marks = lambda packet: True
    sending.send_many(0, [bytes(1000)] * 50)
    network.run_until(lambda: len(network.b.messages) == 50)
    assert not sending.output.ecn.agreed
    assert sending.paths.all[0].ssthresh > 1 << 20
