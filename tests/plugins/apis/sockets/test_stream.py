"""STREAM, whose peers are bare sockets, and the names that a ROUTER and a STREAM choose for their peers."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
import trio

from kernel.contracts.errors import KernelError
from kernel.sockets import Again, Context, PlaceError, SocketError, Unreachable
from plugins.protocols.zmtp.options import ZmtpOptions
from tests.interop.until import until

TIMEOUT = 30.0
MEBIBYTE = 1 << 20


@pytest.fixture
def context() -> Iterator[Context]:
    made = Context()
    yield made
    made.close(linger=0)


def bare(place: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", int(place.rpartition(":")[2])), timeout=TIMEOUT)


def test_a_large_stream_in_both_directions(context: Context) -> None:
    stream = context.socket("STREAM", rcvtimeo=TIMEOUT, sndtimeo=TIMEOUT)
    with bare(stream.bind("tcp://127.0.0.1:0")) as client:
        peer, nothing = stream.recv_multipart()
        assert nothing == b""
        sent = bytes(range(256)) * 4 * 1024
        got = bytearray()
        for start in range(0, MEBIBYTE, 64 * 1024):
            client.sendall(sent[start : start + 64 * 1024])
            while len(got) < start + 64 * 1024:
                name, part = stream.recv_multipart()
                assert name == peer
                got += part
        assert got == sent
        stream.send_multipart_many(
            [[peer, sent[: MEBIBYTE // 2]], [peer, sent[MEBIBYTE // 2 :]], [peer, b""]]
        )
        back = bytearray()
        while data := client.recv(MEBIBYTE):
            back += data
        # What was sent before it was closed has come, and then the end.
        assert back == sent
        until(lambda: not stream.statistics().peers)
        with pytest.raises(Unreachable):
            stream.send_multipart([peer, b"too late"])


def test_errors_say_what_a_stream_cannot_do(context: Context) -> None:
    stream = context.socket("STREAM")
    for parts in ([b"peer"], [b"peer", b"a", b"b"]):
        with pytest.raises(SocketError, match="and one part with bytes"):
            stream.send_multipart(parts)
    for place in ("inproc://place", "ws://127.0.0.1:0/"):
        for call in (stream.bind, stream.connect_peer):
            with pytest.raises(PlaceError, match="peers of STREAM are at tcp, tls and ipc"):
                call(place)
    with pytest.raises(KernelError, match="has no such option"):
        stream.options["hello"] = b"x"
    with pytest.raises(ValueError, match="its peers do not speak ZMTP"):
        ZmtpOptions(type="STREAM", mechanism="PLAIN")


def test_a_peer_with_a_chosen_name(context: Context) -> None:
    """It is known by it at once, before it is there, and only by it."""
    server, client = (
        context.socket("ROUTER", identity=b"server"),
        context.socket("ROUTER", identity=b"client"),
    )
    client.options["router_mandatory"] = True
    for place in ("tcp://127.0.0.1:0", "inproc://place"):
        name = b"chosen for " + place[:3].encode()
        assert client.connect_peer(server.bind(place), name) == name
        client.send_multipart([name, b"at once"])
        assert server.recv_multipart(timeout=TIMEOUT) == [b"client", b"at once"]
        server.send_multipart([b"client", b"back"])
        assert client.recv_multipart(timeout=TIMEOUT) == [name, b"back"]
        with pytest.raises(PlaceError, match="another peer has the identity"):
            client.connect_peer(place, name)
        with pytest.raises(PlaceError, match="does not begin with a zero byte"):
            client.connect_peer(place, b"\0chosen")
        with pytest.raises(Unreachable):
            client.send_multipart([b"server", b"its own name"])
        client.disconnect(client.last_endpoint)
        # The other side sees the end of the connection later, and its name for this side is free then.
        until(lambda: not server.statistics().peers)
    with pytest.raises(PlaceError, match="does not name its peers"):
        context.socket("DEALER").connect_peer("inproc://place")


def test_tasks_of_a_stream(context: Context) -> None:
    async def main() -> None:
        async with context.task_socket("STREAM") as server, context.task_socket("STREAM") as client:
            to_server = client.connect_peer(server.bind("tcp://127.0.0.1:0"))
            with trio.fail_after(TIMEOUT):
                assert await client.recv_multipart() == [to_server, b""]
                to_client, nothing = await server.recv_multipart()
                await client.send_multipart([to_server, b"hello"])
                assert (nothing, await server.recv_multipart()) == (b"", [to_client, b"hello"])

    trio.run(main)


def test_a_quiet_stream(context: Context) -> None:
    stream = context.socket("STREAM", stream_notify=False)
    with bare(stream.bind("tcp://127.0.0.1:0")) as client:
        client.sendall(b"hello")
        assert stream.recv_multipart(timeout=TIMEOUT)[1:] == [b"hello"]
    until(lambda: not stream.statistics().peers)
    with pytest.raises(Again):
        stream.recv(timeout=0)
