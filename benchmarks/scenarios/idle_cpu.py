"""Idle: the processor time of a kernel with a listener, connections and a waiting application.

It should be 0: no polling, and no timers that are not needed.  Heartbeats are needed; with the default of ten
seconds at most a few fall into the time that is measured.
"""

from __future__ import annotations

import resource
import threading
import time
from multiprocessing.connection import Connection

from benchmarks import kernels
from benchmarks.processes import Child
from benchmarks.scenario import Figures, Measured, Row, Scenario, Side
from kernel.contracts.errors import KernelError
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel

CONNECTIONS = 10
SECONDS = 5.0
KERNEL, SLEEPER, CORE = "an idle kernel", "a process that sleeps", "one core"


def idle_kernel(link: Connection, address: str, seconds: float) -> None:
    """Be connected ten times, wait for messages, and say what that took."""
    names = tuple(f"link-{number}" for number in range(CONNECTIONS))
    plan = Plan(
        threads=(ThreadPlan(name="io"),),
        engines=(
            *(EnginePlan(name=name, kind="stream", options={"address": address}) for name in names),
            EnginePlan(
                name="listener",
                kind="stream",
                options={"address": "backend+tcp://127.0.0.1:0", "mode": "listen"},
            ),
            EnginePlan(name="app", kind="native"),
        ),
        routes=(
            RoutePlan(source="app", targets=names),
            *(RoutePlan(source=name, targets=("app",)) for name in names),
        ),
    )
    with Kernel(plan) as kernel:
        kernel.wait_running()

        def wait_for_messages() -> None:
            try:
                kernel.open("app").receive()
            except KernelError:
                pass  # the kernel was closed: nothing came, as it should be

        waiting = threading.Thread(target=wait_for_messages)
        waiting.start()
        time.sleep(1)  # what belongs to the start is over
        link.send(_used(seconds))
        kernel.close(linger=0)
        waiting.join()


def listener(link: Connection) -> None:
    """The other end of the connections."""
    with kernels.listening() as kernel:
        link.send(f"backend+tcp://{kernel.address_of('link')}")
        link.recv()


def sleeper(link: Connection, seconds: float) -> None:
    """What the measuring itself takes."""
    link.send(_used(seconds))


def _used(seconds: float) -> Figures:
    before = resource.getrusage(resource.RUSAGE_SELF)
    time.sleep(seconds)
    after = resource.getrusage(resource.RUSAGE_SELF)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    woken = after.ru_nvcsw - before.ru_nvcsw - 1  # the last one is the measuring thread itself
    return {"cpu": cpu / seconds * 1000, "woken": woken / seconds}


def _kernel(scale: float) -> Figures:
    with Child(listener) as listening, Child(idle_kernel, listening.hear(), max(SECONDS * scale, 1)) as idle:
        figures: Figures = idle.hear(listening)
        return figures


def _sleeper(scale: float) -> Figures:
    with Child(sleeper, max(SECONDS * scale, 1)) as child:
        figures: Figures = child.hear()
        return figures


def _remarks(measured: Measured) -> list[str]:
    return [
        f"{side} was woken {woken:.1f} times a second."
        for side in (KERNEL, SLEEPER)
        if (woken := measured.median(side, "woken")) is not None
    ]


SCENARIO = Scenario(
    name="idle_cpu",
    sides=(
        Side(KERNEL, _kernel),
        Side(SLEEPER, _sleeper),
        Side(CORE, lambda scale: {"cpu": 1000.0}),
    ),
    rows=(
        Row(
            name="idle_cpu",
            what=f"processor time of an idle kernel with {CONNECTIONS} connections, a listener and a waiting "
            "application",
            figure="cpu",
            unit="ms/s",
            bar="<= 0.001",
            ours=KERNEL,
            peers=(CORE,),
            also=(SLEEPER,),
        ),
    ),
    remarks=_remarks,
)
