"""How long it takes to import the kernel, and to run one until it listens.

The peer is the aim.  The start of Python alone is printed too.
"""

from __future__ import annotations

import importlib.util
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.scenario import Figures, Measured, Row, Scenario, Side, Unavailable

REPEATS = 7
NOTHING = "python -c pass"
IMPORT = "import kernel"
LISTEN = "kernel run"

_TOPOLOGY = """
[threads.io]

[engines.link]
kind = "stream"
address = "backend+tcp://127.0.0.1:{port}"
mode = "listen"

[engines.app]
kind = "native"

[[routes]]
from = "link"
to = ["app"]
"""

_PROGRAM = """
from kernel.topology.plan import EnginePlan, Plan, RoutePlan, ThreadPlan
from kernel.topology.system import Kernel
options = {{"address": "backend+tcp://127.0.0.1:{port}", "mode": "listen"}}
plan = Plan(
    threads=(ThreadPlan(name="io"),),
    engines=(EnginePlan(name="link", kind="stream", options=options), EnginePlan(name="app", kind="native")),
    routes=(RoutePlan(source="link", targets=("app",)),),
)
with Kernel(plan) as kernel:
    kernel.open("app").receive()
"""


def _python(program: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return time.perf_counter() - start


def _nothing(scale: float) -> Figures:
    return {"seconds": _python("pass")}


def _import(scale: float) -> Figures:
    """What the import adds to the start of the interpreter, by turns with it."""
    pairs = [(_python("import kernel"), _python("pass")) for _ in range(REPEATS)]
    whole = [_python("import kernel; kernel.Kernel") for _ in range(REPEATS)]
    without = statistics.median(empty for _, empty in pairs)
    return {
        "seconds": statistics.median(full for full, _ in pairs) - without,
        "whole": statistics.median(whole) - without,
    }


def has_command() -> bool:
    """Whether there is a ``kernel run`` already."""
    return all(importlib.util.find_spec(name) for name in ("kernel.__main__", "kernel.cli.main"))


def _listen(scale: float) -> Figures:
    return {"seconds": statistics.median(_until_it_listens() for _ in range(3))}


def _until_it_listens() -> float:
    """Start a process; return how long it took until one could connect to it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bench.toml"
        file.write_text(_TOPOLOGY.format(port=port))
        if has_command():
            command = [sys.executable, "-m", "kernel", "run", str(file)]
        else:
            command = [sys.executable, "-c", _PROGRAM.format(port=port)]
        start = time.perf_counter()
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            while not _connects(port):
                if process.poll() is not None:
                    raise Unavailable(f"{LISTEN}: ended with status {process.returncode}")
                if time.perf_counter() - start > 30:
                    raise Unavailable(f"{LISTEN}: did not listen within 30 s")
                time.sleep(0.001)
            return time.perf_counter() - start
        finally:
            process.kill()
            process.wait()


def _connects(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def _row(name: str, what: str, side: str, aim: str) -> Row:
    return Row(
        name=name,
        what=what,
        figure="seconds",
        unit="s",
        bar="<= 1.0",
        ours=side,
        peers=(aim,),
        also=(NOTHING,),
    )


def _remarks(measured: Measured) -> list[str]:
    remarks = []
    whole = measured.median(IMPORT, "whole")
    if whole:
        remarks.append(f"With all that `kernel.Kernel` needs the import takes {whole:.3f} s.")
    if not has_command():
        remarks.append("listen_time: a Python program that builds the same system, for want of `kernel run`.")
    return remarks


SCENARIO = Scenario(
    name="start_up",
    sides=(
        Side(IMPORT, _import),
        Side("the aim: 0.1 s", lambda scale: {"seconds": 0.1}),
        Side(LISTEN, _listen),
        Side("the aim: 0.5 s", lambda scale: {"seconds": 0.5}),
        Side(NOTHING, _nothing),
    ),
    rows=(
        _row("import_time", "`import kernel`, without the start of Python", IMPORT, "the aim: 0.1 s"),
        _row("listen_time", "from the start of the process until it listens", LISTEN, "the aim: 0.5 s"),
    ),
    remarks=_remarks,
)
