"""One source and some receivers, each in a namespace of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable

from benchmarks.multicast import openpgm as openpgm_program
from benchmarks.peers.libzmq_c import program
from benchmarks.scenario import Figures, Unavailable
from tests import lan
from tests.lan import INTERFACE, Lan

GROUP, PORT = "239.192.1.1", 5555
RATE = 500_000_000
"""Bytes a second that either side limits itself to: 4 Gbit/s."""
TIMEOUT = 100.0

Command = Callable[[str, int], list[str]]
"""The command of a role (``send`` or ``receive``) at a member of the network."""


def ours(count: int, size: int, gap: int = 0, carriage: str = "zmtp1") -> Command:
    """The kernel."""
    address = f"{carriage}+epgm://{INTERFACE};{GROUP}:{PORT}"

    def command(role: str, _: int) -> list[str]:
        more = [gap] if role == "send" else []
        return [
            sys.executable,
            "-m",
            "benchmarks.multicast.ours",
            role,
            address,
            *map(str, (count, size, RATE, *more)),
        ]

    return command


def libzmq(count: int, size: int, gap: int = 0) -> Command:
    """libzmq in C."""
    path = program("libzmq_multicast")

    def command(role: str, member: int) -> list[str]:
        url = f"epgm://{Lan.address(member)};{GROUP}:{PORT}"
        return [path, role, url, *map(str, (count, size, RATE * 8 // 1000, gap))]

    return command


def openpgm(count: int, size: int, gap: int = 0) -> Command:
    """OpenPGM through ctypes."""
    together = 1 if gap else openpgm_program.messages_a_packet(size)

    def command(role: str, member: int) -> list[str]:
        url = f"epgm://{Lan.address(member)};{GROUP}:{PORT}"
        more = [gap] if role == "send" else []
        numbers = (count // together * together, size, RATE, *more)
        return [sys.executable, "-m", "benchmarks.multicast.openpgm", role, url, *map(str, numbers)]

    return command


def measure(command: Command, receivers: int = 1, loss: float = 0.0) -> Figures:
    """Run a source and receivers.

    Return the slowest receiver's rate, its latencies and the source's processor time.
    """
    if not lan.possible():
        raise Unavailable("namespaces take root and iproute2")
    with Lan(1 + receivers) as network:
        if loss:
            for member in range(1, receivers + 1):
                network.lose(member, loss, PORT)
        listening = [_start(network, command, "receive", member) for member in range(1, receivers + 1)]
        source = _start(network, command, "send", 0)
        time.sleep(0.5)  # what says hello has been heard
        assert source.stdin is not None
        used = _processor_seconds(source)
        source.stdin.write("go\n")
        source.stdin.flush()
        results = [_result(program) for program in listening]
        used = _processor_seconds(source) - used
        source.stdin.write("enough\n")
        source.stdin.flush()
    slowest = min(results, key=lambda result: result["rate"])
    sent = max(result["received"] for result in results)  # whoever starves does not make it dearer
    return {**slowest, "sender_us": used / max(sent, 1) * 1e6}


def _start(network: Lan, command: Command, role: str, member: int) -> subprocess.Popen[str]:
    started = network.start(member, command(role, member))
    assert started.stdout is not None
    if started.stdout.readline() != "ready\n":
        raise Unavailable(f"{role} at {network.address(member)} did not start")
    return started


def _result(started: subprocess.Popen[str]) -> Figures:
    assert started.stdout is not None
    words = started.stdout.readline().split()
    if len(words) != 5:
        raise Unavailable("a receiver said nothing")
    received, seconds, p50, p99 = map(float, words[1:])
    return {"rate": (received - 1) / seconds, "received": received, "p50": p50, "p99": p99}


def _processor_seconds(started: subprocess.Popen[str]) -> float:
    """What a process has used so far, of its own and in the system."""
    with open(f"/proc/{started.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
