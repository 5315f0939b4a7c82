"""The engine on one side, usrsctp in another process on the other, UDP on loopback between them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernel.testing.fixtures import KernelFactory
from tests.events import Events
from tests.plugins.engines.sctp.echoing import FEEDS, ROUTES, Echoing
from tests.plugins.engines.sctp.plans import dialler, listener

pytestmark = [pytest.mark.slow, pytest.mark.peer("usrsctp")]  # a process of its own

ROOT = Path(__file__).parents[4]
Start = Callable[..., tuple[int, int]]


@pytest.fixture
def usrsctp() -> Iterator[Start]:
    """Start one; return its ports, of SCTP and of UDP."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: object) -> tuple[int, int]:
        command = [sys.executable, "-m", "tests.plugins.engines.sctp.usrsctp_program", *map(str, arguments)]
        program = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(program)
        assert program.stdout is not None
        port, udp_port = map(int, program.stdout.readline().split())
        return port, udp_port

    yield start
    for program in started:
        program.kill()
        program.communicate()


SIZES = [1, 2, 99, 1200, 3, 40_000, 2000, 10, 30_000] + [100] * 300


def test_the_kernel_dials(kernel_factory: KernelFactory, usrsctp: Start) -> None:
    port, udp_port = usrsctp("listen")
    events = Events()
    kernel = kernel_factory(
        dialler(f"127.0.0.1:{port}/{udp_port}", framing="plain", streams=FEEDS), *ROUTES, on_event=events
    )
    events.wait("connected")
    Echoing(kernel).exchange(SIZES)


def test_the_kernel_listens(kernel_factory: KernelFactory, usrsctp: Start) -> None:
    events = Events()
    kernel = kernel_factory(listener(framing="plain", streams=FEEDS), *ROUTES, on_event=events)
    place = kernel.address_of("net").rpartition(":")[2]
    usrsctp("connect", *place.split("/"))
    events.wait("connected")
    Echoing(kernel).exchange(SIZES)


def test_usrsctp_comes_again_from_another_port_of_udp(kernel_factory: KernelFactory, usrsctp: Start) -> None:
    """To SCTP it has restarted, from the same port and with another tag; the one before knows nothing of it."""
    events = Events()
    kernel = kernel_factory(listener(framing="plain", streams=FEEDS), *ROUTES, on_event=events)
    place = kernel.address_of("net").rpartition(":")[2]
    echoing = Echoing(kernel)
    for times in (1, 2):
        usrsctp("connect", *place.split("/"))
        events.wait("connected", times=times)
        echoing.exchange([100] * 10)
