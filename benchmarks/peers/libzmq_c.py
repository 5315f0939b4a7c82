"""A C program on libzmq (``libzmq_throughput.c``), compiled when it is first needed."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from shutil import which

from benchmarks.processes import PATIENCE
from benchmarks.scenario import Figures, Unavailable

_SOURCE = Path(__file__).with_name("libzmq_throughput.c")


@cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="kernel-bench-")  # goes with this process


@cache
def _program() -> str:
    """Compile; return the path of the program."""
    compiler = which("cc") or which("gcc")
    if compiler is None:
        raise Unavailable("no C compiler (make peers)")
    program = Path(_folder().name) / "libzmq_throughput"
    command = [compiler, "-O2", "-o", str(program), str(_SOURCE), "-lzmq"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        complaint = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip())
        raise Unavailable(f"libzmq_throughput.c does not compile (make peers): {complaint}")
    return str(program)


def throughput(count: int, size: int) -> Figures:
    """Run one receiver and one sender; return the rate that the receiver saw."""
    program = _program()
    with ExitStack() as stack:
        receiver = _start(stack, [program, "receive", str(count), str(size)])
        address = _word(receiver, "address")
        _start(stack, [program, "send", str(count), str(size), address])
        return {"rate": float(_word(receiver, "rate"))}


def _start(stack: ExitStack, command: list[str]) -> subprocess.Popen[str]:
    # ``timeout`` ends what hangs; then our reading from it ends, too
    process = subprocess.Popen(
        ["timeout", str(PATIENCE), *command], stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL
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
