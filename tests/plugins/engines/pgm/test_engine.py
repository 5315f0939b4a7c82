"""The PGM engine over the loopback interface: both carriages, over UDP and IP, and what it says when it cannot."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time

import msgspec
import pytest

from kernel.contracts.engine import EngineEvent
from kernel.hosting.interfaces import interfaces
from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan, RoutePlan
from plugins.protocols.pgm import packets
from plugins.protocols.pgm.extensions import Extensions
from plugins.protocols.pgm.packets import ODATA, SPM, Data, SourcePath
from tests.ports import free_port

__all__ = ["kernel_factory"]

GROUP = "239.192.77.1"
TIMEOUT = 60.0


def _address(framing: str = "zmtp1", transport: str = "epgm") -> str:
    return f"{framing}+{transport}://lo;{GROUP}:{free_port()}"


def _sender(address: str, **options: object) -> list[EnginePlan | RoutePlan]:
    return [
        EnginePlan(name="out", kind="pgm", options={"address": address, "mode": "send", **options}),
        EnginePlan(name="from", kind="native"),
        RoutePlan(source="from", targets=("out",)),
    ]


def _receiver(address: str, high: int = 32_768, **options: object) -> list[EnginePlan | RoutePlan]:
    return [
        EnginePlan(name="in", kind="pgm", options={"address": address, "mode": "receive", **options}),
        EnginePlan(name="to", kind="native"),
        RoutePlan(source="in", targets=("to",), marks=WaterMarks(high=high)),
    ]


needs_raw = pytest.mark.skipif(os.geteuid() != 0, reason="raw sockets take root")


@pytest.mark.parametrize("transport", ["epgm", pytest.param("pgm", marks=needs_raw)])
@pytest.mark.parametrize("framing", ["zmtp1", "backend"])
def test_messages_of_any_size_arrive_in_order(
    framing: str, transport: str, kernel_factory: KernelFactory
) -> None:
    address = _address(framing, transport)
    kernel = kernel_factory(*_sender(address), *_receiver(address))
    bodies = [b"%d" % number for number in range(500)] + [b"x" * 100_000, b"", b"end"]
    with kernel.open("from") as source, kernel.open("to") as target:
        source.send_many(bodies)
        got: list[bytes] = []
        while len(got) < len(bodies):
            got += map(bytes, target.receive_many(timeout=TIMEOUT))
    assert got == bodies


def test_a_source_that_controls_congestion_is_acknowledged(kernel_factory: KernelFactory) -> None:
    address = _address()
    sending = _sender(address, source={"congestion_control": True})
    kernel = kernel_factory(*sending, *_receiver(address))
    bodies = [b"%d" % number for number in range(300)] + [b"x" * 100_000]
    with kernel.open("from") as source, kernel.open("to") as target:
        source.send_many(bodies)
        got: list[bytes] = []
        while len(got) < len(bodies):
            got += map(bytes, target.receive_many(timeout=TIMEOUT))
    assert got == bodies
    counters = {it.name: it.counters for it in kernel.statistics().engines}
    assert counters["out"]["acks_in"] > 0
    assert counters["in"]["acks_out"] >= counters["out"]["acks_in"]


def test_envelopes_travel_between_kernels(kernel_factory: KernelFactory) -> None:
    address = _address("backend")
    kernel = kernel_factory(*_sender(address), *_receiver(address))
    with kernel.open("from") as source, kernel.open("to") as target:
        source.send(b"sunny", key="weather.wien")
        got = target.receive_message(timeout=TIMEOUT)
    assert (got.body, got.key) == (b"sunny", "weather.wien")


@pytest.mark.parametrize("framing, options", [("backend", {}), ("zmtp1", {"keys": "part"})])
def test_a_message_that_cannot_be_written_is_refused_and_holds_up_none(
    framing: str, options: dict[str, object], kernel_factory: KernelFactory
) -> None:
    address = _address(framing)
    events: list[EngineEvent] = []
    sender, channel, route = _sender(address, **options)
    assert isinstance(route, RoutePlan)
    route = msgspec.structs.replace(route, confirm=True)
    kernel = kernel_factory(sender, channel, route, *_receiver(address, **options), on_event=events.append)
    with kernel.open("from") as source, kernel.open("to") as target:
        for key in ("half a pair \ud800", "good"):
            source.send(key.encode(errors="replace"), key=key)
            source.wait_confirmed(TIMEOUT)
        assert target.receive(timeout=TIMEOUT) == b"good"
    counters = {it.name: it.counters for it in kernel.statistics().engines}
    assert counters["out"]["messages_refused"] == 1
    assert [(it.engine, it.what) for it in events if it.what in ("refused", "failed")] == [("out", "refused")]


def test_everybody_on_the_machine_hears_a_source(kernel_factory: KernelFactory) -> None:
    address = _address()
    receivers = [kernel_factory(*_receiver(address)) for _ in range(3)]
    sender = kernel_factory(*_sender(address))
    targets = [kernel.open("to") for kernel in receivers]
    with sender.open("from") as source:
        source.send_many([b"one", b"two"])
        for target in targets:
            got: list[bytes] = []
            while len(got) < 2:
                got += map(bytes, target.receive_many(timeout=TIMEOUT))
            assert got == [b"one", b"two"]
    for target in targets:
        target.close()


def test_a_receiver_refuses_to_send_and_says_what_to_do(kernel_factory: KernelFactory) -> None:
    address = _address()
    told = threading.Event()
    events: list[EngineEvent] = []

    def on_event(event: EngineEvent) -> None:
        events.append(event)
        if event.what == "refused":
            told.set()

    kernel = kernel_factory(
        EnginePlan(name="in", kind="pgm", options={"address": address, "mode": "receive"}),
        EnginePlan(name="from", kind="native"),
        on_event=on_event,
    )
    # In a plan this route is a mistake. One that is added later is not checked.
    kernel.add_route(RoutePlan(source="from", targets=("in",)))
    with kernel.open("from") as source:
        source.send(b"never")
        assert told.wait(TIMEOUT)
    (event,) = [event for event in events if event.what == "refused"]
    assert event.detail == (
        f'this engine only receives (mode = "receive"); one with mode = "send" sends to {address.partition(";")[2]}'
    )
    assert kernel.statistics().engines[0].counters["messages_refused"] == 1


def test_two_sources_on_one_port_of_one_machine_are_told_apart(kernel_factory: KernelFactory) -> None:
    address = _address()
    failed = threading.Event()

    def on_event(event: EngineEvent) -> None:
        if event.what == "failed":
            failed.set()

    kernel_factory(*_sender(address))
    second = kernel_factory(*_sender(address), wait=False, on_event=on_event)
    assert failed.wait(TIMEOUT)
    (failure,) = [state.last_failure for state in second.engine_states() if state.name == "out"]
    assert "another source of this machine uses it" in failure


@pytest.mark.slow
def test_a_slow_receiver_stops_reading_and_goes_on_where_it_was(kernel_factory: KernelFactory) -> None:
    """Its pipe holds few messages; what comes meanwhile waits in the socket, or is asked for again."""
    address = _address()
    receiving = _receiver(address, high=100, receive_buffer=256 * 1024, receiver={"join": "window"})
    kernel = kernel_factory(*_sender(address, source={"rate": 500_000_000}), *receiving)
    bodies = [b"%05d" % number + b"x" * 1000 for number in range(3000)]
    with kernel.open("from") as source, kernel.open("to") as target:
        source.send_many(bodies)
        got: list[bytes] = []
        while len(got) < len(bodies):
            got += map(bytes, target.receive_many(timeout=TIMEOUT))
    assert got == bodies


def test_a_source_whose_packets_the_system_does_not_take_says_so(kernel_factory: KernelFactory) -> None:
    if not any(it.name == "lo" and it.address.version == 6 for it in interfaces()):
        pytest.skip("no IPv6 here")
    told = threading.Event()
    events: list[EngineEvent] = []

    def on_event(event: EngineEvent) -> None:
        events.append(event)
        if event.what == "refused":
            told.set()

    address = f"zmtp1+epgm://lo;[ff15::77]:{free_port()}"  # there is no route for multicast over lo
    kernel_factory(*_sender(address), on_event=on_event)
    assert told.wait(TIMEOUT)
    (event,) = [event for event in events if event.what == "refused"]
    assert "refuses packets for ff15::77" in event.detail


class _Capture:
    """A socket that joins a group, as a stranger would."""

    def __init__(self, address: str) -> None:
        port = int(address.rpartition(":")[2])
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((GROUP, port))
        membership = struct.pack("=4s4si", socket.inet_aton(GROUP), bytes(4), socket.if_nametoindex("lo"))
        self.socket.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
        self.socket.settimeout(TIMEOUT)

    def until(self, kind: int, wanted: object = None) -> packets.Packet:
        """Return the next packet of this kind, for which ``wanted`` holds."""
        while True:
            packet = packets.decode(self.socket.recv(65_536))
            if packet.kind == kind and (wanted is None or wanted(packet)):  # type: ignore[operator]
                return packet


def test_a_source_says_hello_and_good_bye(kernel_factory: KernelFactory) -> None:
    address = _address()
    capture = _Capture(address)
    with capture.socket:
        kernel = kernel_factory(*_sender(address, gsi="0a0b0c0d0e0f"))
        hello = capture.until(SPM)
        assert isinstance(hello, SourcePath)
        assert (hello.tsi[:6].hex(), hello.path) == ("0a0b0c0d0e0f", bytes((127, 0, 0, 1)))
        with kernel.open("from") as source:
            source.send(b"data")
            data = capture.until(ODATA)
            assert isinstance(data, Data)
            assert (data.data, data.extensions) == (b"\0\0\5\0data", Extensions(syn=True))
        kernel.close(linger=0)
        assert capture.until(SPM, lambda packet: packet.extensions.fin).tsi == hello.tsi


@pytest.mark.slow
def test_a_source_stays_a_while_for_those_who_missed_something(kernel_factory: KernelFactory) -> None:
    address = _address()
    kernel = kernel_factory(*_sender(address, linger=0.5))
    start = time.monotonic()
    with kernel.open("from") as source:
        source.send(b"last words")
    kernel.close(linger=TIMEOUT)
    assert kernel.join(TIMEOUT)
    assert time.monotonic() - start > 0.4  # it did not leave at once
