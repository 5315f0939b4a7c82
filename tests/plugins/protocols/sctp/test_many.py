"""Thousands of associations on one endpoint: what a packet or a deadline costs does not depend on their number."""

from __future__ import annotations

import gc
import tracemalloc
from unittest import mock

import msgspec
import pytest

from plugins.protocols.sctp.association import Association
from plugins.protocols.sctp.chunks import Plain, Type
from plugins.protocols.sctp.endpoint import Endpoint
from plugins.protocols.sctp.events import What
from plugins.protocols.sctp.options import SctpOptions
from plugins.protocols.sctp.states import State
from tests.plugins.protocols.sctp.test_setup import INIT, packet

PORT = 5000
SERVER = b"\x0a\x00\x00\x01"
OPTIONS = SctpOptions()


def opened(count: int) -> tuple[Endpoint, list[tuple[Endpoint, Association]]]:
    """One server, and clients of one association each."""
    server, clients = Endpoint(OPTIONS, PORT, bytes(32)), []
    for number in range(count):
        client = Endpoint(OPTIONS, 1000, number.to_bytes(32, "big"))
        clients.append((client, client.connect([SERVER], PORT, 0.0)))
        pump(server, client, number.to_bytes(4, "big"), 0.0)
    return server, clients


def pump(server: Endpoint, client: Endpoint, address: bytes, now: float) -> None:
    for _ in range(5):
        for _, data in client.data_to_send(now):
            server.receive_data(data, address, now)
        for _, data in server.data_to_send(now):
            client.receive_data(data, SERVER, now)


@pytest.mark.slow
def test_a_packet_makes_the_endpoint_look_at_its_own_association_only() -> None:
    server, clients = opened(300)
    client, association = clients[7]
    association.send(0, b"x")
    looked_at: list[Association] = []
    look, send = Association.next_deadline, Association.data_to_send

    def next_deadline(self: Association) -> float | None:
        looked_at.append(self)
        return look(self)

    def data_to_send(self: Association, now: float) -> list[tuple[bytes, bytes]]:
        looked_at.append(self)
        return send(self, now)

    with (
        mock.patch.object(Association, "next_deadline", next_deadline),
        mock.patch.object(Association, "data_to_send", data_to_send),
    ):
        ((_, data),) = client.data_to_send(1.0)
        receiving = server.receive_data(data, (7).to_bytes(4, "big"), 1.0)
        server.data_to_send(1.0)
        assert server.next_deadline() == pytest.approx(1.0 + OPTIONS.sack_delay)
        server.handle_timeout(1.0)
    assert receiving is not None
    assert set(looked_at) == {association, receiving}


def test_what_is_due_is_done_for_those_for_which_it_is() -> None:
    server, clients = opened(20)
    due = set()
    for number, (client, association) in enumerate(clients[:5]):
        association.send(0, b"x")
        ((_, data),) = client.data_to_send(1.0)
        due.add(server.receive_data(data, number.to_bytes(4, "big"), 1.0))
    server.data_to_send(1.0)
    assert server.handle_timeout(1.0) == []
    assert set(server.handle_timeout(1.0 + OPTIONS.sack_delay)) == due
    assert len(server.data_to_send(1.0 + OPTIONS.sack_delay)) == 5


def test_what_has_ended_is_forgotten_wherever_it_was_known() -> None:
    server, clients = opened(50)
    for number, (client, association) in enumerate(clients):
        association.abort("enough")
        pump(server, client, number.to_bytes(4, "big"), 1.0)
        assert client.associations == []
        assert client.next_deadline() is None
    assert server.associations == []
    assert server.next_deadline() is None
    assert (server._by_peer, server._touched, server._deadlines._armed) == ({}, {}, {})


@pytest.mark.slow
def test_floods_leave_nothing_behind_beside_many_associations() -> None:
    """INITs from many addresses, and from those of peers that there are; cookies and packets that are nobody's."""
    server, clients = opened(200)

    def flood(count: int) -> None:
        for number in range(count):
            source = (number % 4000).to_bytes(4, "big")
            init = msgspec.structs.replace(INIT, tag=number + 1)
            forged = Plain(Type.COOKIE_ECHO, number.to_bytes(4, "big") * 50)
            for data in (packet(0, init), packet(0, init, source=1000), packet(1, forged, source=1000)):
                server.receive_data(data, source, 0.0)
            server.data_to_send(0.0)

    flood(100)
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    flood(2000)
    gc.collect()
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 2000 * 8
    assert len(server.associations) == 200
    assert all(each.state is State.ESTABLISHED for each in server.associations)
    for number, (client, association) in enumerate(clients):
        association.events.clear()
        association.send(0, b"still there")
        pump(server, client, number.to_bytes(4, "big"), 0.0)
    assert [each.receive(0.0)[0].data for each in server.associations] == [b"still there"] * 200
    assert not any(event.what is What.LOST for _, association in clients for event in association.events)
