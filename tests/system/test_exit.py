"""A program that ends without closing its kernel or its context: what it has sent is written."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernel import EnginePlan, Kernel
from kernel.sockets import Context
from kernel.testing.fixtures import plan_of
from tests.system.conftest import route

COUNT = 5000
SECONDS = 30.0

NATIVE = f"""
import sys, threading
from kernel import EnginePlan, Kernel, Plan, RoutePlan

net = EnginePlan(name="net", kind="stream", options={{"address": sys.argv[1]}})
routes = (RoutePlan(source="out", targets=("net",)), RoutePlan(source="net", targets=("out",)))
kernel = Kernel(Plan(engines=(net, EnginePlan(name="out", kind="native")), routes=routes)).start()
channel = kernel.open("out")

opened = threading.Event()

def wait() -> None:
    waiting = kernel.open("out")
    opened.set()
    waiting.receive()

threading.Thread(target=wait, daemon=True).start()
opened.wait()
for number in range({COUNT}):
    channel.send(b"%d" % number)
"""

SOCKETS = f"""
import sys
from kernel.sockets import Context

context = Context()
push = context.socket("PUSH", sndhwm=0, linger=float(sys.argv[2]))
push.connect(sys.argv[1])
for number in range({COUNT}):
    push.send(b"%d" % number)
"""

WORKER = f"""
import multiprocessing, sys, threading
from kernel.sockets import Context

def work() -> None:
    push = Context().socket("PUSH", sndhwm=0)
    push.connect(sys.argv[1])

    def send() -> None:
        for number in range({COUNT}):
            push.send(b"%d" % number)

    # The process waits for it, since it is no daemon.
    threading.Thread(target=send).start()

worker = multiprocessing.get_context("fork").Process(target=work)
worker.start()
worker.join()
sys.exit(worker.exitcode)
"""


def run(program: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


@pytest.mark.parametrize(
    "end, status, complaint",
    [
        ("", 0, ""),
        ("sys.exit(3)", 3, ""),
        ("raise RuntimeError('the end')", 1, "RuntimeError: the end"),
    ],
)
def test_what_a_program_has_sent_arrives_although_it_closes_nothing(
    end: str, status: int, complaint: str
) -> None:
    """A thread that waits in a channel meanwhile is a daemon, and says nothing of it."""
    options = {"address": "backend+tcp://127.0.0.1:0", "mode": "listen"}
    plan = plan_of(
        EnginePlan(name="net", kind="stream", options=options),
        EnginePlan(name="in", kind="native"),
        route("net", "in"),
    )
    with Kernel(plan) as kernel, kernel.open("in") as channel:
        kernel.wait_running()
        program = run(NATIVE + end, f"backend+tcp://{kernel.address_of('net')}")
        received = [channel.receive(timeout=SECONDS) for _ in range(COUNT)]
        assert received == [b"%d" % number for number in range(COUNT)]
        _, said = program.communicate(timeout=SECONDS)
    assert program.returncode == status
    assert said.strip().rpartition("\n")[2] == complaint


@pytest.mark.parametrize("sender", [SOCKETS, WORKER], ids=["program", "forked worker"])
def test_so_does_what_sockets_have_sent(sender: str) -> None:
    """A process that multiprocessing has forked ends without ``atexit``."""
    with Context() as context, context.socket("PULL") as pull:
        program = run(sender, pull.bind("tcp://127.0.0.1:0"), "5")
        received = [pull.recv(timeout=SECONDS) for _ in range(COUNT)]
        assert received == [b"%d" % number for number in range(COUNT)]
        assert program.communicate(timeout=SECONDS) == ("", "")
    assert program.returncode == 0


@pytest.mark.parametrize("linger", ["0", "0.2", pytest.param("inf", marks=pytest.mark.slow)])
def test_a_program_whose_peer_is_not_there_ends_all_the_same(linger: str) -> None:
    # Nobody listens there: the port is one of those that only root may bind.
    program = run(SOCKETS, "tcp://127.0.0.1:1", linger)
    assert program.communicate(timeout=SECONDS) == ("", "")
    assert program.returncode == 0
