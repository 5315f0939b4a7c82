"""The figures of a running kernel."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel.pipes.pipe import PipeStatistics
from kernel.pipes.water_marks import WaterMarks
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan, RoutePlan
from kernel.topology.statistics import (
    EngineStatistics,
    PortStatistics,
    RouteStatistics,
    SystemStatistics,
    ThreadStatistics,
)
from kernel.topology.system import Kernel

PAGE = Path(__file__).parents[2] / "docs" / "figures.md"
A, B = EnginePlan(name="a", kind="native"), EnginePlan(name="b", kind="native")


def eventually(condition: Callable[[], Any]) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def the_route(kernel: Kernel) -> RouteStatistics:
    (route,) = kernel.statistics().routes
    return route


def the_port(kernel: Kernel, name: str) -> PortStatistics:
    (port,) = [port for port in kernel.statistics().ports if port.name == name]
    return port


def test_what_waits_is_counted_without_places_taken_in_advance(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(A, B, RoutePlan(source="a", targets=("b",)))
    a, b = kernel.open("a"), kernel.open("b")
    a.send(b"12345", timeout=60)
    a.send_many([b"678", b"9"])
    assert (the_route(kernel).depth, the_route(kernel).written) == (3, 3)
    assert kernel.statistics().pipes[0].depth == 3
    assert len(b.receive_many(timeout=60)) == 3
    assert (the_route(kernel).depth, the_route(kernel).written, the_route(kernel).bytes) == (0, 3, 9)
    a.send(b"loose", timeout=60)
    assert b.receive(timeout=60) == b"loose"
    assert (the_route(kernel).written, the_route(kernel).bytes) == (4, 14)


def test_counters_stay_when_a_destination_goes(kernel_factory: KernelFactory) -> None:
    marks = WaterMarks(high=2, when_full="drop-newest")
    kernel = kernel_factory(A, B, RoutePlan(source="a", targets=("b",), marks=marks))
    a, b = kernel.open("a"), kernel.open("b")
    b.subscribe("x")  # the pipe is there for both
    for _ in range(5):
        a.send_many([b"x"])
    assert b.receive(timeout=60) == b"x"
    before = the_route(kernel)
    assert before.dropped == 3
    b.close()
    after = the_route(kernel)
    assert (after.pipes, after.dropped, after.written) == (0, 3, before.written)
    kernel.open("b").close()
    assert the_route(kernel).dropped == 3


def test_what_no_route_wants_is_counted(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(A, B, RoutePlan(source="a", targets=("b",), match=("wanted.#",)))
    a, b = kernel.open("a"), kernel.open("b")
    a.send(b"1", key="wanted.this", timeout=60)
    a.send_many([b"2", b"3"], key="other")
    assert b.receive(timeout=60) == b"1"
    assert the_port(kernel, "a").unrouted == 2
    a.close()
    assert (the_port(kernel, "a").ports, the_port(kernel, "a").unrouted) == (0, 2)
    kernel.open("a")
    assert (the_port(kernel, "a").ports, the_port(kernel, "a").unrouted) == (1, 2)


def test_what_an_engine_sends_without_any_route_is_counted(kernel_factory: KernelFactory) -> None:
    listening = kernel_factory(
        EnginePlan(
            name="net", kind="stream", options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen"}
        )
    )
    address = "backend+tcp://" + listening.address_of("net")
    dialling = kernel_factory(
        A,
        EnginePlan(name="net", kind="stream", options={"address": address}),
        RoutePlan(source="a", targets=("net",)),
    )
    dialling.open("a").send_many([b"1", b"2"], timeout=60)
    eventually(lambda: sum(port.unrouted for port in listening.statistics().ports) == 2)
    dialling.remove_engine("net")
    eventually(lambda: listening.statistics().engines[0].counters["connections"] == 0)
    kernel_factory(EnginePlan(name="net", kind="stream", options={"address": address}))
    eventually(lambda: [port.unrouted for port in listening.statistics().ports] == [2])


def test_threads_have_their_figures(kernel_factory: KernelFactory) -> None:
    kernel = kernel_factory(
        A,
        EnginePlan(
            name="net", kind="stream", options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen"}
        ),
        RoutePlan(source="a", targets=("a",)),
    )
    a = kernel.open("a")
    b = kernel.open("a")
    b.send_many([b"x", b"y"], timeout=60)
    figures = kernel.statistics()
    by_name = {thread.name: thread for thread in figures.threads}
    assert by_name["poll-1"].engines == ("net",)
    assert by_name["poll-1"].turns > 0
    assert by_name["a"].engines == ()
    assert len(figures.threads) == len(figures.matrix) == 3
    assert sum(thread.pipes_out for thread in figures.threads) == sum(map(sum, figures.matrix))
    assert sum(thread.depth for thread in figures.threads) == sum(pipe.depth for pipe in figures.pipes) > 0
    a.close()


def test_the_page_has_every_figure() -> None:
    page = set(re.findall(r"`(\w+)", PAGE.read_text()))
    for kind in (
        SystemStatistics,
        EngineStatistics,
        PortStatistics,
        RouteStatistics,
        ThreadStatistics,
        PipeStatistics,
    ):
        assert set(kind.__struct_fields__) <= page, kind
