"""SCTP alone, both ends in one process and no network: messages a second, beside usrsctp, which is C.

One way, one stream, batches of messages.  Packets are passed on when they are made, and the clock is advanced
only as timers need it.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.connection import Connection

from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side, Unavailable
from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.options import SctpOptions
from tests.plugins.protocols.sctp import usrsctp_peer

COUNTS = {100: 200_000, 1024: 60_000, 65536: 1_500}
BATCH = 64
QUEUED = 1 << 18
"""Bytes that wait to be sent at the most."""
PACKET = 1460

_HERE, _THERE = b"\x0a\0\0\1", b"\x0a\0\0\2"


def ours(link: Connection, size: int, count: int) -> None:
    """Say what one way between two endpoints of ours takes."""
    options = SctpOptions(packet_size=PACKET)
    client, server = Endpoint(options, 5001, bytes(32)), Endpoint(options, 5000, bytes(31) + b"1")
    association = client.connect([_THERE], 5000, 0.0)
    while not server.associations or not association.sender.peer_window:
        _exchange(client, server, 0.0)
    link.send({"rate": count / _timed(partial(_one_way, client, server, association, size, count))})


def _one_way(client: Endpoint, server: Endpoint, association: Association, size: int, count: int) -> None:
    bodies = [bytes(size)] * min(BATCH, max(QUEUED // size, 1))
    (receiving,) = server.associations
    sent = received = 0
    now = 1.0
    while received < count:
        now += 1e-4
        while sent < count and association.sender.buffered() < QUEUED:
            association.send_many(0, bodies)
            sent += len(bodies)
        _exchange(client, server, now)
        received += len(receiving.receive(now))


def _exchange(client: Endpoint, server: Endpoint, now: float) -> None:
    """Carry the packets of both, and do what is due."""
    for here, there, source in ((client, server, _HERE), (server, client, _THERE)):
        for _, packet in here.data_to_send(now):
            there.receive_data(packet, source, now)
        if (due := here.next_deadline()) is not None and due <= now:
            here.handle_timeout(now)


def usrsctp(link: Connection, size: int, count: int) -> None:
    """The same with two sockets of usrsctp."""
    with usrsctp_peer.peer(5000) as server, usrsctp_peer.peer(5001) as client:
        server.listen()
        client.connect(5000)
        for _ in range(20):
            _hand_over(client, server)
        link.send({"rate": count / _timed(partial(_their_one_way, client, server, size, count))})


def _their_one_way(client: usrsctp_peer.Peer, server: usrsctp_peer.Peer, size: int, count: int) -> None:
    data = bytes(size)
    buffer = ctypes.create_string_buffer(1 << 20)
    sent = received = 0
    while received < count * size:
        for _ in range(BATCH):
            if sent == count or not client.send(0, data):
                break
            sent += 1
        moved = _hand_over(client, server)
        received += server.receive_into(buffer)
        if not moved:
            client.pass_time(10)


def _hand_over(client: usrsctp_peer.Peer, server: usrsctp_peer.Peer) -> int:
    moved = 0
    for here, there in ((client, server), (server, client)):
        packets, here.sent[:] = list(here.sent), []
        for packet in packets:
            there.packet_in(packet)
        moved += len(packets)
    return moved


def _timed(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _measure(role: Callable[[Connection, int, int], None], size: int, scale: float) -> Figures:
    if role is usrsctp and not usrsctp_peer.is_there():
        raise Unavailable("libusrsctp is not installed (make peers)")
    with Child(role, size, int(COUNTS[size] * scale)) as child:
        figures: Figures = child.hear()
        return figures


def _row(size: int) -> Row:
    return Row(
        name=f"sctp_in_memory_{size}",
        what=f"SCTP, both ends in one process, {size:,} B",
        figure="rate",
        unit="msg/s",
        bar=">= 1.0",
        ours=f"kernel, {size} B",
        peers=(f"usrsctp, {size} B",),
    )


SCENARIO = Scenario(
    name="sctp_in_memory",
    sides=tuple(
        Side(f"{name}, {size} B", partial(_measure, role, size))
        for size in COUNTS
        for name, role in (("kernel", ours), ("usrsctp", usrsctp))
    ),
    rows=tuple(_row(size) for size in COUNTS),
)
