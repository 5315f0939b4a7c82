"""Threads that are processes: what a second one is worth, what a link carries, and what a border costs a round trip."""

from __future__ import annotations

import statistics
import tempfile
import time

from benchmarks import pump
from benchmarks.amqp import vhosts
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Row, Scenario, Side
from kernel.plugins import Origin, PluginRegistry
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

ONE = "two pipelines in one process"
TWO = "two pipelines, each in a process"
LINK = "a link between two processes"
AIM_LINK = "the aim: 8 M msg/s"
NEAR = "echo in a thread"
FAR = "echo in a process"
SPLIT = "two virtual hosts in two processes"
WHOLE = "two virtual hosts in one process"
SPLIT_MIXED, WHOLE_MIXED = f"{SPLIT}, mixed", f"{WHOLE}, mixed"
UP = "a process comes up"
AIM_UP = "the aim: 0.4 s"


def _registry() -> PluginRegistry:
    registry = PluginRegistry.load()
    registry.add(pump, Origin("bench", "benchmarks", ""))
    return registry


def _engine(name: str, thread: str, folder: str) -> EnginePlan:
    what, _, number = name.partition("-")
    if what in ("out", "in"):
        mode = "dial" if what == "out" else "listen"
        options = {"address": f"backend+unix://{folder}/{number}", "mode": mode, "reconnect": {"first": 0.01}}
        return EnginePlan(name=name, kind="stream", thread=thread, options=options)
    return EnginePlan(name=name, kind=f"bench-{what}", thread=thread)


def _kernel(places: dict[str, str], routes: tuple[tuple[str, str], ...], folder: str = "") -> Kernel:
    threads = {name: "process" if name.startswith("process") else "poll" for name in places.values()}
    return Kernel(
        Plan(
            threads=tuple(ThreadPlan(name=name, kind=kind) for name, kind in threads.items()),
            engines=tuple(_engine(name, thread, folder) for name, thread in places.items()),
            routes=tuple(RoutePlan(source=source, targets=(target,)) for source, target in routes),
        ),
        _registry(),
    )


def _rate(scale: float, places: dict[str, str], routes: tuple[tuple[str, str], ...]) -> Figures:
    """Let the pumps run; return how many messages a second all counters saw."""
    pumps = [name for name in places if name.startswith("pump")]
    counters = [name for name in places if name.startswith("count")]
    with tempfile.TemporaryDirectory() as folder, _kernel(places, routes, folder) as kernel:
        kernel.wait_running(60)
        for name in pumps:
            kernel.operate(name, "go")
        time.sleep(0.3 * scale)
        before = [kernel.operate(name, "count") for name in counters]
        time.sleep(1.5 * scale)
        after = [kernel.operate(name, "count") for name in counters]
        for name in pumps:
            kernel.operate(name, "stop")
    pairs = zip(before, after, strict=True)
    return {"rate": sum((end[0] - begin[0]) / (end[1] - begin[1]) for begin, end in pairs)}


_PIPELINES = (("pump-1", "out-1"), ("in-1", "count-1"), ("pump-2", "out-2"), ("in-2", "count-2"))
"""Each encodes, writes to a socket, reads from it and decodes."""


def _one(scale: float) -> Figures:
    return _rate(scale, {name: "process-1" for pair in _PIPELINES for name in pair}, _PIPELINES)


def _two(scale: float) -> Figures:
    places = {name: f"process-{name[-1]}" for pair in _PIPELINES for name in pair}
    return _rate(scale, places, _PIPELINES)


def _link(scale: float) -> Figures:
    return _rate(scale, {"pump-1": "process-1", "count-1": "process-2"}, (("pump-1", "count-1"),))


def _round_trip(scale: float, kind: str) -> Figures:
    plan = Plan(
        threads=(ThreadPlan(name="here"), ThreadPlan(name="there", kind=kind)),
        engines=(
            EnginePlan(name="ask", kind="native"),
            EnginePlan(name="echo", kind="bench-echo", thread="there"),
        ),
        routes=(
            RoutePlan(source="ask", targets=("echo",)),
            RoutePlan(source="echo", targets=("ask",)),
        ),
    )
    with Kernel(plan, _registry()) as kernel:
        kernel.wait_running(60)
        with kernel.open("ask") as ask:
            times = []
            for _ in range(int(2000 * scale) + 100):
                start = time.perf_counter()
                ask.send(b"x" * 64)
                ask.receive(timeout=30)
                times.append(time.perf_counter() - start)
    return {"p50": statistics.median(times[100:]) * 1e6}


def _virtual_hosts(scale: float, shards: dict[str, str], *, mixed: bool = False) -> Figures:
    """Publish to two virtual hosts; return how many messages a second both took."""
    limited = [
        {"name": name, "vhost": vhost, "arguments": {"x-max-length": 1000}}
        for vhost in ("/", "other")
        for name in ("a", "b", "c", "d")
    ]
    bindings = [
        {"exchange": "amq.topic", "queue": each["name"], "vhost": each["vhost"], "key": "#"}
        for each in limited
    ]
    options = {
        "address": "127.0.0.1:0",
        "vhosts": ["/", "other"],
        "queues": limited,
        "bindings": bindings,
        "shards": shards,
    }
    plan = Plan(
        threads=(ThreadPlan(name="first"), ThreadPlan(name="second", kind="process")),
        engines=(EnginePlan(name="broker", kind="amqp", thread="first", options=options),),
    )
    blocks = int((300 if mixed else 1500) * scale)
    with Kernel(plan, _registry()) as kernel:
        kernel.wait_running(60)
        address = kernel.address_of("broker")
        with (
            Child(vhosts.publish, address, "/", mixed, blocks) as one,
            Child(vhosts.publish, address, "other", mixed, blocks) as other,
        ):
            for publisher in (one, other):
                publisher.hear()
            for publisher in (one, other):
                publisher.say("go")
            times = [publisher.hear() for publisher in (one, other)]
    took = max(end for _, end in times) - min(began for began, _ in times)
    return {"rate": 2 * blocks * vhosts.BLOCK / took}


def _up(scale: float) -> Figures:
    times = []
    for _ in range(3):
        kernel = _kernel({"count-1": "process-1"}, ())
        start = time.perf_counter()
        with kernel:
            kernel.wait_running(60)
            times.append(time.perf_counter() - start)
    return {"seconds": statistics.median(times)}


SCENARIO = Scenario(
    name="process",
    sides=(
        Side(TWO, _two),
        Side(ONE, _one),
        Side(LINK, _link),
        Side(AIM_LINK, lambda scale: {"rate": 8e6}),
        Side(FAR, lambda scale: _round_trip(scale, "process")),
        Side(NEAR, lambda scale: _round_trip(scale, "poll")),
        Side(SPLIT, lambda scale: _virtual_hosts(scale, {"other": "second"})),
        Side(WHOLE, lambda scale: _virtual_hosts(scale, {})),
        Side(SPLIT_MIXED, lambda scale: _virtual_hosts(scale, {"other": "second"}, mixed=True)),
        Side(WHOLE_MIXED, lambda scale: _virtual_hosts(scale, {}, mixed=True)),
        Side(UP, _up),
        Side(AIM_UP, lambda scale: {"seconds": 0.4}),
    ),
    rows=(
        Row(
            name="process_pipelines",
            what="two independent pipelines of 100 B in batches, in two processes",
            figure="rate",
            unit="msg/s",
            bar=">= 1.8",
            ours=TWO,
            peers=(ONE,),
        ),
        Row(
            name="process_link",
            what="from one process to another, 100 B, batches of 1000",
            figure="rate",
            unit="msg/s",
            bar=">= 1.0",
            ours=LINK,
            peers=(AIM_LINK,),
        ),
        Row(
            name="process_round_trip",
            what="application, engine and back, 64 B, median: over a border",
            figure="p50",
            unit="µs",
            bar="<= 1.5",
            ours=FAR,
            peers=(NEAR,),
        ),
        Row(
            name="process_shards",
            what="AMQP publishers of two virtual hosts, 100 B to four queues each, the virtual hosts in two processes",
            figure="rate",
            unit="msg/s",
            bar=">= 1.8",
            ours=SPLIT,
            peers=(WHOLE,),
        ),
        Row(
            name="process_shards_mixed",
            what="the same, each message with a key and a size of its own, 60 to 139 B",
            figure="rate",
            unit="msg/s",
            bar=">= 1.8",
            ours=SPLIT_MIXED,
            peers=(WHOLE_MIXED,),
        ),
        Row(
            name="process_up",
            what="from the start of the kernel until an engine in a process runs",
            figure="seconds",
            unit="s",
            bar="<= 1.0",
            ours=UP,
            peers=(AIM_UP,),
        ),
    ),
)
