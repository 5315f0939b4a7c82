"""Packets become as large as the path takes, and no larger."""

from __future__ import annotations

import subprocess
import sys

import pytest

from kernel.testing.fixtures import KernelFactory
from tests.lan import Lan
from tests.plugins.engines.sctp.plans import QUICK, TIMEOUT, bodies_of
from tests.plugins.engines.sctp.test_engine import pair
from tests.system.conftest import route
from tests.systems import linux_only

PROBES = """
import socket, sys
from kernel.hosting.datagram_wire import DatagramWire
wire = DatagramWire(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
there = sys.argv[1], 5000
for size in (8952, 1400):
    wire.probe(bytes(size), there)
wire.send([bytes(8000)], there)
assert not wire.dropped
"""
RECEIVER = """
import socket
bound = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
bound.bind(("", 5000))
print("bound", flush=True)
while True:
    print(len(bound.recv(65536)), flush=True)
"""


@pytest.mark.parametrize("most, least_mean", [pytest.param(8952, 2000, marks=linux_only), (1200, 0)])
def test_packets_are_as_large_as_the_interface_takes_them_or_as_told(
    kernel_factory: KernelFactory, most: int, least_mean: int
) -> None:
    options = {"sctp": {**QUICK, "packet_size_max": most}}
    sending, receiving, _ = pair(kernel_factory, route("net", "app"), here=(route("app", "net"),), **options)
    source, sink = sending.open("app"), receiving.open("app")
    for _ in range(20):
        source.send_many([bytes(1000)] * 100, timeout=TIMEOUT)
        assert len(bodies_of(sink, 100)) == 100
    figures = next(each for each in sending.statistics().engines if each.name == "net").counters
    assert least_mean <= figures["bytes_out"] / figures["packets_out"] <= most


@pytest.mark.slow
@pytest.mark.peer("namespaces")
def test_a_link_of_1500_bytes_loses_a_probe_that_is_larger_and_cuts_what_is_none() -> None:
    with Lan(2) as lan:
        receiver = lan.start(1, [sys.executable, "-c", RECEIVER])
        assert receiver.stdout is not None
        assert receiver.stdout.readline() == "bound\n"
        sender: subprocess.Popen[str] = lan.start(0, [sys.executable, "-c", PROBES, lan.address(1)])
        assert sender.wait(TIMEOUT) == 0
        assert [receiver.stdout.readline() for _ in range(2)] == ["1400\n", "8000\n"]
