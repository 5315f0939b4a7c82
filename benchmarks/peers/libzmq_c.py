"""C programs with libzmq (``libzmq_throughput.c``, ``libzmq_multicast.c``), compiled at their first use."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from shutil import which

from benchmarks.processes import TIMEOUT
from benchmarks.scenario import Figures, Unavailable


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kernel-bench-")  # goes with this process


@cache
def program(name: str) -> str:
    """Compile the source of that name; return the path of the program."""
    compiler = which("cc") or which("gcc")
    if compiler is None:
        raise Unavailable("no C compiler (make peers)")
    path = Path(_folder().name) / name
    command = [compiler, "-O2", "-o", str(path), str(Path(__file__).with_name(f"{name}.c")), "-lzmq"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise Unavailable(f"{name}.c does not compile (make peers): {complaint}")
    return str(path)


def throughput(count: int, size: int) -> Figures:
    """Run one receiver and one sender; return the rate that the receiver saw."""
    path = program("libzmq_throughput")
    with ExitStack() as stack:
        receiver = _start(stack, [path, "receive", str(count), str(size)])
        address = _word(receiver, "address")
        _start(stack, [path, "send", str(count), str(size), address])
        return {"rate": float(_word(receiver, "rate"))}


def _start(stack: ExitStack, command: list[str]) -> subprocess.Popen[str]:
    # ``timeout`` ends what hangs; then our reading from it ends, too
    process = subprocess.Popen(
        ["timeout", str(TIMEOUT), *command], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
    )
    stack.callback(_reap, process)
    return process


def _word(process: subprocess.Popen[str], label: str) -> str:
    assert process.stdout is not None
    words = process.stdout.readline().split()
    if len(words) != 2 or words[0] != label:
        raise Unavailable(f"libzmq_throughput said nothing about its {label}")
    return words[1]


def _reap(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(5)
    except subprocess.TimeoutExpired:
        process.terminate()  # ``timeout`` passes it on
        process.wait()
    if process.stdout is not None:
        process.stdout.close()
