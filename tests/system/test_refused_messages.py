"""A message larger than the peer takes: refused where it is sent, told of, and not in the way of those behind it."""

from __future__ import annotations

import time

import pytest

from kernel.contracts.errors import LocalProtocolError
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.system import Kernel
from plugins.apis.native.channel import Channel
from tests.events import Events
from tests.ports import free_port
from tests.system.conftest import dialler, listener

SMALL = {"protocol": {"max_message": 1000}}


@pytest.mark.parametrize("confirm", [False, True])
@pytest.mark.parametrize("feeds", ["dialler", "listener"])
def test_the_flow_goes_on_without_what_is_too_large(
    kernel_factory: KernelFactory, confirm: bool, feeds: str
) -> None:
    events = Events()
    limits = (SMALL, {}) if feeds == "dialler" else ({}, SMALL)
    listening = kernel_factory(
        EnginePlan(
            name="net",
            kind="stream",
            options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen", **limits[0]},
        ),
        RoutePlan(source="net", targets=("app",), confirm=confirm),
        RoutePlan(source="app", targets=("net",), confirm=confirm),
        on_event=events,
    )
    dialling = kernel_factory(
        EnginePlan(
            name="net",
            kind="stream",
            options={"address": f"backend+tcp://{listening.address_of('net')}", **limits[1]},
        ),
        RoutePlan(source="net", targets=("app",), confirm=confirm),
        RoutePlan(source="app", targets=("net",), confirm=confirm),
        on_event=events,
    )
    source, sink = (dialling, listening) if feeds == "dialler" else (listening, dialling)
    a, b = source.open("app"), sink.open("app")
    a.send(bytes(2000), timeout=60)
    a.send(b"first", timeout=60)
    a.send_many([b"second", bytes(1001), bytes(1001), b"third"])
    a.send(bytes(2000))
    got: list[bytes] = []
    while len(got) < 3:
        got += map(bytes, b.receive_many(timeout=60))
    assert got == [b"first", b"second", b"third"]
    if confirm:
        b.confirm()
        with pytest.raises(Exception, match="receive"):  # receiving confirms
            b.receive(timeout=0.1)
        a.wait_confirmed(timeout=60)
    told = events.wait("refused")  # what came through is on its way before the rest is counted
    until = time.monotonic() + 60
    while _sent_and_refused(source) != (3, 4) and time.monotonic() < until:
        time.sleep(0.01)
    assert _sent_and_refused(source) == (3, 4)
    assert events.count("refused") == 1
    assert "2000 bytes; the peer takes 1000" in told.detail


def _sent_and_refused(kernel: Kernel) -> tuple[int, int]:
    (engine,) = kernel.statistics().engines
    return engine.counters["messages_out"], engine.counters["messages_refused"]


def test_in_x_mode_the_caller_is_told(kernel_factory: KernelFactory) -> None:
    listening = kernel_factory(
        EnginePlan(
            name="net",
            kind="stream",
            options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen", **SMALL},
        ),
        RoutePlan(source="net", targets=("app",)),
    )
    sink = listening.open("app")
    with kernel_factory().open(
        "x", api="direct", address="backend+tcp://" + listening.address_of("net")
    ) as direct:
        with pytest.raises(LocalProtocolError, match="2000 bytes; the peer takes 1000"):
            direct.send(bytes(2000))
        direct.send(b"small")
        assert sink.receive(timeout=60) == b"small"


def test_what_a_peer_would_not_take_goes_to_the_dead_letters(kernel_factory: KernelFactory) -> None:
    listening = kernel_factory(
        EnginePlan(
            name="net",
            kind="stream",
            options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen", **SMALL},
        ),
        RoutePlan(source="net", targets=("app",), confirm=True),
    )
    route = RoutePlan(source="app", targets=("net",), confirm=True, dead_letters="morgue")
    dialling = kernel_factory(
        EnginePlan(
            name="net",
            kind="stream",
            options={"address": f"backend+tcp://{listening.address_of('net')}"},
        ),
        route,
    )
    a, morgue, b = dialling.open("app"), dialling.open("morgue"), listening.open("app")
    a.send_many([b"first", bytes(2000), b"second"], key="k", timeout=60)
    got: list[bytes] = []
    while len(got) < 2:
        got += map(bytes, b.receive_many(timeout=60))
    b.confirm()
    _serve_until_something(a, morgue)
    letter = morgue.receive_message(timeout=60)
    assert (len(letter.body), letter.envelope.key) == (2000, "k")
    assert letter.envelope.properties["headers"] == {
        "x-refused-reason": "a message of 2000 bytes; the peer takes 1000 at the most",
        "x-refused-by": "net",
        "x-refused-port": "net",
        "x-refused-route": "app -> net",
    }
    assert not a.all_confirmed()
    morgue.confirm()
    a.wait_confirmed(timeout=60)
    figures = {figures.name: figures for figures in dialling.statistics().routes}
    assert (figures["app -> net"].refused, figures["app -> net refused -> morgue"].written) == (1, 1)
    dialling.remove_route(route)
    assert dialling.statistics().routes == ()


def _serve_until_something(source: Channel, morgue: Channel) -> None:
    deadline = time.monotonic() + 60
    while not morgue.has_something() and time.monotonic() < deadline:
        source.serve()  # the application's thread passes on what was refused
        morgue.serve()


def test_what_is_refused_after_its_route_was_removed_goes_to_the_dead_letters(
    kernel_factory: KernelFactory,
) -> None:
    address = f"backend+tcp://127.0.0.1:{free_port()}"
    route = RoutePlan(source="app", targets=("net",), confirm=True, dead_letters="morgue")
    sending = kernel_factory(dialler(address), route)
    app, morgue = sending.open("app"), sending.open("morgue")
    app.send(bytes(2000), timeout=60)
    # The message waits for the connection: what is in a pipe of the route is still sent, or refused.
    sending.remove_route(route)
    kernel_factory(listener(address=address, **SMALL), RoutePlan(source="net", targets=("sink",)))
    _serve_until_something(app, morgue)
    letter = morgue.receive_message(timeout=60)
    assert letter.body == bytes(2000)
    assert "2000 bytes" in letter.envelope.properties["headers"]["x-refused-reason"]
