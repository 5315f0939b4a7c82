"""CLIENT and SERVER, RADIO and DISH, SCATTER and GATHER of ``kernel.sockets``, with each other."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import trio

from kernel.sockets import Context, NotSupported, Socket, SocketError, Unreachable
from plugins.apis.sockets.options import TypeName

TIMEOUT = 10.0


@pytest.fixture
def context() -> Iterator[Context]:
    with Context() as made:
        yield made


Pair = Callable[[TypeName, TypeName], tuple[Socket, Socket]]


@pytest.fixture(params=["tcp", "inproc"])
def pair(request: pytest.FixtureRequest, context: Context) -> Pair:
    def make(one: TypeName, other: TypeName) -> tuple[Socket, Socket]:
        first, second = (context.socket(kind, rcvtimeo=TIMEOUT) for kind in (one, other))
        place = "tcp://127.0.0.1:0" if request.param == "tcp" else f"inproc://{one}"
        second.connect(first.bind(place))
        return first, second

    return make


def test_a_server_answers_each_client(pair: Pair, context: Context) -> None:
    for server, client in (pair("SERVER", "CLIENT"), pair("CLIENT", "SERVER")[::-1]):
        client.send(b"question")
        peer, question = server.recv_from()
        assert 0 < peer < 1 << 32
        assert question == b"question"
        server.send_to(peer, b"answer")
        assert client.recv() == b"answer"
        client.close()
        # It is gone: that is an error, as in libzmq, and nothing waits.
        with pytest.raises(Unreachable):
            _send_until_it_fails(server, peer)


def _send_until_it_fails(server: Socket, peer: int) -> None:
    while True:
        server.send_to(peer, b"late", timeout=TIMEOUT)


def test_a_dish_gets_its_groups_and_no_prefixes(pair: Pair) -> None:
    radio, dish = pair("RADIO", "DISH")
    groups = (b"tea", b"prefix:x", b"*", b"\xff", b"")
    for group in groups:
        dish.join(group)
    for group in groups:
        radio.wait_for_subscribers(topic=group, timeout=TIMEOUT)
    for group in (b"te", b"teapot", b"x", b"prefix:xy", b"a", b"\xff\xff"):
        radio.send_group(group, b"of nobody")
    for group in groups:
        radio.send_group(group, b"of " + group)
    radio.send(b"of none")
    assert [dish.recv_group() for _ in groups] == [(group, b"of " + group) for group in groups]
    assert dish.recv_group() == (b"", b"of none")
    dish.leave("tea")
    # A later question on the same way: the departure has come before.
    dish.join("milk")
    radio.wait_for_subscribers(topic="milk", timeout=TIMEOUT)
    assert radio.subscribers("tea") == 0
    radio.send_group("tea", b"of nobody")
    radio.send_group("milk", b"white")
    assert dish.recv_group() == (b"milk", b"white")


def test_scattered_messages_are_gathered(pair: Pair) -> None:
    scatter, gather = pair("SCATTER", "GATHER")
    scatter.send(b"one")
    scatter.send_many([b"two", b"three"])
    assert [gather.recv() for _ in range(3)] == [b"one", b"two", b"three"]


def test_misuse_is_told(context: Context) -> None:
    make: dict[str, Socket] = {
        kind: context.socket(kind)
        for kind in ("CLIENT", "SERVER", "RADIO", "DISH", "SCATTER", "GATHER", "PUSH")
    }
    dish, radio, server = make["DISH"], make["RADIO"], make["SERVER"]
    dish.join("tea")
    wrong: tuple[tuple[type[Exception], str, Callable[[], Any]], ...] = (
        (SocketError, "has joined the group", lambda: dish.join("tea")),
        (SocketError, "has not joined", lambda: dish.leave("milk")),
        (SocketError, "at most 255 bytes", lambda: dish.join("y" * 256)),
        (SocketError, "none of them is zero", lambda: radio.send_group("a\0b", b"")),
        (SocketError, "messages of one part", lambda: radio.send_multipart([b"a", b"b"])),
        (SocketError, "messages of one part", lambda: make["CLIENT"].send_multipart([b"a", b"b"])),
        (SocketError, "messages of one part", lambda: make["SCATTER"].send_multipart_many([[b"a", b"b"]])),
        (SocketError, "is no routing id", lambda: server.send_to(0, b"")),
        (Unreachable, "send_to", lambda: server.send(b"for whom?")),
        (NotSupported, "joins groups", lambda: dish.subscribe("tea")),
        (NotSupported, "RADIO does", lambda: dish.send(b"")),
        (NotSupported, "DISH does", lambda: radio.recv()),
        (NotSupported, "GATHER does", lambda: make["SCATTER"].recv()),
        (NotSupported, "SCATTER does", lambda: make["GATHER"].send(b"")),
        (NotSupported, "DISH joins", lambda: make["PUSH"].join("tea")),
        (NotSupported, "SERVER sends to", lambda: make["CLIENT"].send_to(1, b"")),
    )
    for kind, text, call in wrong:
        with pytest.raises(kind, match=text):
            call()


def test_tasks_have_the_same_calls() -> None:
    async def main() -> None:
        with Context() as context:
            async with context.task_socket("SERVER") as server, context.task_socket("CLIENT") as client:
                client.connect(server.bind("tcp://127.0.0.1:0"))
                await client.send(b"question")
                peer, question = await server.recv_from()
                await server.send_to(peer, b"re: " + question)
                assert await client.recv() == b"re: question"
            async with context.task_socket("RADIO") as radio, context.task_socket("DISH") as dish:
                dish.join("tea")
                dish.connect(radio.bind("tcp://127.0.0.1:0"))
                await radio.wait_for_subscribers(topic="tea")
                await radio.send_group("tea", b"green")
                assert await dish.recv_group() == (b"tea", b"green")

    async def limited() -> None:
        with trio.fail_after(TIMEOUT):
            await main()

    trio.run(limited)
