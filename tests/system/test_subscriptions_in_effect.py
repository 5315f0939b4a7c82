"""A wait for a subscription lasts until the sources in other kernels have applied it, and no longer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import trio

from kernel.contracts.errors import TimedOut
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from kernel.topology.system import Kernel
from plugins.protocols.backend.frames import Control, control_frame
from plugins.protocols.backend.greeting import Greeting, encode_greeting
from tests.events import Events
from tests.plugins.protocols.backend.test_sync import OLD_GREETING
from tests.ports import free_port
from tests.system.conftest import FAST, dialler, listener, route

TIMEOUT = 30.0
KEYS = [f"key.{number}" for number in range(20)]


def _first_message_arrives(feed: Any, reader: Any, key: str) -> None:
    """What is published after the wait is received; nothing was published before it."""
    reader.subscribe(key)
    reader.wait_subscribed(timeout=TIMEOUT)
    feed.send(b"the first of %s" % key.encode(), key=key, timeout=TIMEOUT)
    assert reader.receive(timeout=TIMEOUT) == b"the first of %s" % key.encode()


def _head(make: KernelFactory, **options: Any) -> Kernel:
    return make(listener(**options), route("feed", "net", router="by-key"))


def _between(make: KernelFactory, up: Kernel, engine: str = "net") -> Kernel:
    return make(
        dialler(f"backend+tcp://{up.address_of(engine)}", name="up"),
        listener("down"),
        route("up", "down", router="by-key"),
    )


def _end(make: KernelFactory, up: Kernel, engine: str = "net") -> Kernel:
    return make(
        dialler(f"backend+tcp://{up.address_of(engine)}", name="up"), route("up", "reader", router="by-key")
    )


def test_two_kernels(kernel_factory: KernelFactory) -> None:
    head = _head(kernel_factory)
    end = _end(kernel_factory, head)
    feed, reader = head.open("feed"), end.open("reader")
    for key in KEYS:
        _first_message_arrives(feed, reader, key)


def test_two_kernels_whose_source_dials(kernel_factory: KernelFactory) -> None:
    events = Events()
    end = kernel_factory(listener(), route("net", "reader", router="by-key"), on_event=events)
    head = kernel_factory(
        dialler(f"backend+tcp://{end.address_of('net')}"), route("feed", "net", router="by-key")
    )
    events.wait("connected")
    feed, reader = head.open("feed"), end.open("reader")
    for key in KEYS:
        _first_message_arrives(feed, reader, key)


@pytest.mark.parametrize("between", [1, 2, 4])
def test_a_chain_of_kernels(kernel_factory: KernelFactory, between: int) -> None:
    head = _head(kernel_factory)
    up, engine = head, "net"
    for _ in range(between):
        up, engine = _between(kernel_factory, up, engine), "down"
    end = _end(kernel_factory, up, engine)
    feed, reader = head.open("feed"), end.open("reader")
    for key in KEYS:
        _first_message_arrives(feed, reader, key)


def test_a_chain_whose_reader_brings_its_subscriptions(kernel_factory: KernelFactory) -> None:
    head = _head(kernel_factory)
    end = _end(kernel_factory, _between(kernel_factory, head), "down")
    feed, reader = head.open("feed"), end.open("reader", subscriptions=["k"])
    reader.wait_subscribed(timeout=TIMEOUT)
    feed.send(b"the first", key="k", timeout=TIMEOUT)
    assert reader.receive(timeout=TIMEOUT) == b"the first"


def test_a_second_reader_of_a_pattern_that_is_on_its_way_waits_as_well(
    kernel_factory: KernelFactory,
) -> None:
    head = _head(kernel_factory)
    end = _end(kernel_factory, _between(kernel_factory, head), "down")
    feed, one, two = head.open("feed"), end.open("reader"), end.open("reader")
    for key in KEYS:
        one.subscribe(key)
        two.subscribe(key)
        two.wait_subscribed(timeout=TIMEOUT)
        feed.send(key.encode(), key=key, timeout=TIMEOUT)
        assert two.receive(timeout=TIMEOUT) == key.encode()


def test_a_wait_begins_before_the_kernels_in_between_exist(kernel_factory: KernelFactory) -> None:
    address = f"backend+tcp://127.0.0.1:{free_port()}"
    end = kernel_factory(dialler(address, name="up"), route("up", "reader", router="by-key"))
    reader = end.open("reader")
    reader.subscribe("k")
    with pytest.raises(TimedOut, match="not all subscriptions are in effect"):
        reader.wait_subscribed(timeout=0)
    head = _head(kernel_factory)
    kernel_factory(
        dialler(f"backend+tcp://{head.address_of('net')}", name="up"),
        listener("down", address=address),
        route("up", "down", router="by-key"),
    )
    reader.wait_subscribed(timeout=TIMEOUT)
    head.open("feed").send(b"the first", key="k", timeout=TIMEOUT)
    assert reader.receive(timeout=TIMEOUT) == b"the first"


def test_a_source_that_comes_back_during_the_wait(kernel_factory: KernelFactory) -> None:
    address = f"backend+tcp://127.0.0.1:{free_port()}"
    head = _head(kernel_factory, address=address)
    between = _between(kernel_factory, head)
    end = _end(kernel_factory, between, "down")
    feed, reader = head.open("feed"), end.open("reader")
    _first_message_arrives(feed, reader, "before")
    events = Events()
    between.events.append(events)
    head.remove_engine("net")
    events.wait("disconnected")
    reader.subscribe("k")
    with pytest.raises(TimedOut):
        reader.wait_subscribed(timeout=0)
    head.add_engine(listener(address=address))
    reader.wait_subscribed(timeout=TIMEOUT)
    feed.send(b"the first", key="k", timeout=TIMEOUT)
    assert reader.receive(timeout=TIMEOUT) == b"the first"


def test_a_ring_of_kernels(kernel_factory: KernelFactory) -> None:
    """Subscriptions go round; messages do not, since one of the kernels passes on what nobody sends."""
    places = [f"backend+tcp://127.0.0.1:{free_port()}" for _ in range(3)]
    kernels = [
        kernel_factory(
            dialler(places[(number + 1) % 3], name="up"),
            listener("down", address=places[number]),
            route("up", "down", router="by-key", match=("nothing",) if number == 0 else ()),
            route("up", "reader", router="by-key"),
            route("feed", "down", router="by-key"),
        )
        for number in range(3)
    ]
    readers = [kernel.open("reader") for kernel in kernels]
    feed = kernels[1].open("feed")
    for number, reader in enumerate(readers):
        for key in KEYS[:3]:
            reader.subscribe(f"{key}.{number}")
            reader.wait_subscribed(timeout=TIMEOUT)
    for key in KEYS[3:6]:
        _first_message_arrives(feed, readers[0], key)


@pytest.mark.slow
def test_a_mesh_of_kernels_in_both_directions(kernel_factory: KernelFactory) -> None:
    """Four kernels, each connected with all others, and each passes on what comes from one to the others."""
    count = 4
    places = [f"backend+tcp://127.0.0.1:{free_port()}" for _ in range(count)]
    kernels = []
    for number in range(count):
        diallers = [dialler(places[other], name=f"to{other}") for other in range(number)]
        nets = ["net", *(plan.name for plan in diallers)]
        kernels.append(
            kernel_factory(
                listener(address=places[number]),
                *diallers,
                *(
                    route(one, *(other for other in nets if other != one or one == "net"), router="by-key")
                    for one in nets
                ),
                *(route(one, "reader", router="by-key") for one in nets),
            )
        )
    readers = [kernel.open("reader") for kernel in kernels]
    for reader in readers:
        for key in KEYS[:2]:
            reader.subscribe(key)
        reader.wait_subscribed(timeout=TIMEOUT)


def test_a_source_inside_the_process(kernel_factory: KernelFactory) -> None:
    head = _head(kernel_factory)
    end = kernel_factory(
        dialler(f"backend+tcp://{head.address_of('net')}", name="up"),
        EnginePlan(name="here", kind="stream", options={"address": "backend+inproc://x", "mode": "listen"}),
        EnginePlan(name="there", kind="stream", options={"address": "backend+inproc://x"}),
        route("up", "here", router="by-key"),
        route("there", "reader", router="by-key"),
    )
    feed, reader = head.open("feed"), end.open("reader")
    for key in KEYS:
        _first_message_arrives(feed, reader, key)


def test_a_pattern_that_was_wanted_before_the_connection_inside_the_process(
    kernel_factory: KernelFactory,
) -> None:
    kernel = kernel_factory(
        EnginePlan(name="there", kind="stream", options={"address": "backend+inproc://x", "reconnect": FAST}),
        route("there", "reader", router="by-key"),
    )
    reader = kernel.open("reader")
    reader.subscribe("k")
    with pytest.raises(TimedOut):
        reader.wait_subscribed(timeout=0)
    kernel.add_engine(
        EnginePlan(name="here", kind="stream", options={"address": "backend+inproc://x", "mode": "listen"})
    )
    kernel.add_route(route("feed", "here", router="by-key"))
    reader.wait_subscribed(timeout=TIMEOUT)
    kernel.open("feed").send(b"the first", key="k", timeout=TIMEOUT)
    assert reader.receive(timeout=TIMEOUT) == b"the first"


def test_a_task_waits_as_well(kernel_factory: KernelFactory) -> None:
    head = _head(kernel_factory)
    end = _end(kernel_factory, head)
    feed = head.open("feed")

    async def wait() -> None:
        async with end.open("reader", api="trio") as reader:
            for key in KEYS[:3]:
                reader.subscribe(key)
                with trio.fail_after(TIMEOUT):
                    await reader.wait_subscribed()
                    feed.send(key.encode(), key=key, timeout=TIMEOUT)
                    assert await reader.receive() == key.encode()

    trio.run(wait)


def test_where_the_topology_keeps_subscriptions_here_no_peer_is_waited_for(
    kernel_factory: KernelFactory,
) -> None:
    end = kernel_factory(
        dialler(f"backend+tcp://127.0.0.1:{free_port()}", name="up", forward_subscriptions=False),
        route("up", "reader", router="by-key"),
    )
    reader = end.open("reader")
    reader.subscribe("k")
    reader.wait_subscribed(timeout=TIMEOUT)


# ---------------------------------------------------------------------- peers that are no kernel


class Peer:
    """A source that the test plays, byte by byte."""

    def __init__(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.address = f"backend+tcp://127.0.0.1:{self._listening.getsockname()[1]}"
        self.connected: socket.socket | None = None
        self.got = b""

    def accept(self, greeting: bytes) -> None:
        self.hang_up()
        self._listening.settimeout(TIMEOUT)
        self.connected, _ = self._listening.accept()
        self.connected.settimeout(TIMEOUT)
        self.send(greeting)
        self.got = b""
        self.frame(Control.GREETING)

    def send(self, data: bytes) -> None:
        assert self.connected is not None
        self.connected.sendall(data)

    def frame(self, control: Control) -> bytes:
        """The payload of the next frame, which has to be of this type."""
        assert self._read(2) == b"\xff%c" % (0x80 | control)
        return self._read(int.from_bytes(self._read(7), "big"))

    def answer(self, sync: bytes) -> None:
        self.send(control_frame(Control.SYNCED, sync[:8]))

    def hang_up(self) -> None:
        if self.connected is not None:
            self.connected.close()

    def close(self) -> None:
        self.hang_up()
        self._listening.close()

    def _read(self, size: int) -> bytes:
        assert self.connected is not None
        while len(self.got) < size:
            more = self.connected.recv(4096)
            assert more, "the kernel hung up"
            self.got += more
        head, self.got = self.got[:size], self.got[size:]
        return head


@pytest.fixture
def peer() -> Iterator[Peer]:
    with closing(Peer()) as made:
        yield made


@pytest.fixture
def end(kernel_factory: KernelFactory, peer: Peer) -> Kernel:
    return kernel_factory(
        dialler(peer.address, name="up", protocol={"heartbeat": 0}), route("up", "reader", router="by-key")
    )


GREETING = control_frame(Control.GREETING, encode_greeting(Greeting(sync=1)))
K = b"k"


def test_a_kernel_of_an_earlier_version_is_not_asked(end: Kernel, peer: Peer) -> None:
    peer.accept(OLD_GREETING)
    reader = end.open("reader")
    reader.subscribe("k")
    reader.wait_subscribed(timeout=TIMEOUT)
    reader.subscribe("other")
    assert (peer.frame(Control.SUBSCRIBE), peer.frame(Control.SUBSCRIBE)) == (K, b"other")


def test_a_wait_for_a_kernel_of_an_earlier_version_ends_when_it_greets(end: Kernel, peer: Peer) -> None:
    reader = end.open("reader")
    reader.subscribe("k")
    greets = threading.Thread(target=peer.accept, args=(OLD_GREETING,))
    greets.start()
    reader.wait_subscribed(timeout=TIMEOUT)
    greets.join(TIMEOUT)
    assert peer.frame(Control.SUBSCRIBE) == K


def test_a_peer_that_does_not_answer_holds_up_nothing_but_the_wait(end: Kernel, peer: Peer) -> None:
    peer.accept(GREETING)
    reader = end.open("reader")
    reader.subscribe("k")
    with pytest.raises(TimedOut, match="not all subscriptions are in effect"):
        reader.wait_subscribed(timeout=0.05)
    assert peer.frame(Control.SUBSCRIBE) == K
    sync = peer.frame(Control.SYNC)
    assert sync[8] == 15
    peer.send(control_frame(Control.ENVELOPE, bytes(4) + b"\x81\xa3key\xa1k") + b"\x02hi")
    assert reader.receive(timeout=TIMEOUT) == b"hi"
    peer.answer(sync)
    reader.wait_subscribed(timeout=TIMEOUT)


def test_the_next_conversation_asks_again_behind_all_patterns(end: Kernel, peer: Peer) -> None:
    peer.accept(GREETING)
    reader = end.open("reader")
    reader.subscribe("k")
    with pytest.raises(TimedOut):
        reader.wait_subscribed(timeout=0)
    assert peer.frame(Control.SUBSCRIBE) == K
    lost = peer.frame(Control.SYNC)
    reader.subscribe("l")
    assert peer.frame(Control.SUBSCRIBE) == b"l"
    for _ in range(3):
        peer.accept(GREETING)
        assert {peer.frame(Control.SUBSCRIBE), peer.frame(Control.SUBSCRIBE)} == {K, b"l"}
        assert peer.frame(Control.SYNC)[8] == lost[8]
    with pytest.raises(TimedOut):
        reader.wait_subscribed(timeout=0)
    peer.answer(lost)
    # The pattern that came after the first question takes a second one, which the reader asks in a call.
    answers = threading.Thread(target=lambda: peer.answer(peer.frame(Control.SYNC)))
    answers.start()
    reader.wait_subscribed(timeout=TIMEOUT)
    answers.join(TIMEOUT)


def test_too_many_questions_end_their_own_connection(kernel_factory: KernelFactory) -> None:
    events = Events()
    silent = socket.create_server(("127.0.0.1", 0))
    with closing(silent):
        kernel = kernel_factory(
            dialler(f"backend+tcp://127.0.0.1:{silent.getsockname()[1]}", name="up"),
            listener("down"),
            route("up", "down", router="by-key"),
            on_event=events,
        )
        host, _, port = kernel.address_of("down").rpartition(":")
        with socket.create_connection((host, int(port)), TIMEOUT) as hostile:
            questions = [
                control_frame(Control.SYNC, number.to_bytes(8, "big") + b"\xff") for number in range(65)
            ]
            # In one write with the greeting, whose port gets its pipes a turn later.
            hostile.sendall(GREETING + b"".join(questions[:32]))
            for question in questions[32:]:
                hostile.sendall(question)
            assert "more than 64 SYNC" in events.wait("disconnected", "down").detail


def test_a_direct_channel_is_not_asked(kernel_factory: KernelFactory) -> None:
    events = Events()
    kernel = kernel_factory(listener(), route("net", "reader", router="by-key"), on_event=events)
    reader = kernel.open("reader")
    with kernel.open("x", api="direct", address=f"backend+tcp://{kernel.address_of('net')}") as direct:
        events.wait("connected")
        reader.subscribe("k")
        reader.wait_subscribed(timeout=TIMEOUT)
        direct.send(b"the first", key="k")
        assert reader.receive(timeout=TIMEOUT) == b"the first"
