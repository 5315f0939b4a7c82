"""Kill -9 of our broker under load, with a disk: nothing is lost in either direction."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kernel.testing.fixtures import KernelFactory
from tests.interop.brokers import KernelProcess
from tests.plugins.engines.stomp_client.conftest import Client, bodies, receive

BROKER = """
[engines.broker]
kind = "broker"
data_dir = "{options}"
[[engines.broker.listeners]]
protocol = "stomp"
address = "127.0.0.1:{port}"
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("receipts", ["batch", "each"])
@pytest.mark.parametrize("ack", ["client", "client-individual"])
def test_nothing_is_lost(kernel_factory: KernelFactory, tmp_path: Path, receipts: str, ack: str) -> None:
    wanted = bodies(0, 20_000)
    with KernelProcess(tmp_path, str(tmp_path / "data"), topology=BROKER) as broker:
        client = Client(
            kernel_factory,
            f"127.0.0.1:{broker.broker.port}",
            destination="/queue/q",
            receipts=receipts,
            in_flight=500,
            subscriptions=({"destination": "/queue/q", "ack": ack, "prefetch": 100},),
        )
        into = client.open("in")

        def send() -> None:
            # A channel belongs to the thread that opens it.
            out = client.open("out")
            for first in range(0, len(wanted), 100):
                out.send_many(wanted[first : first + 100], timeout=200.0)
            out.wait_confirmed(200.0)

        sender = threading.Thread(target=send)
        sender.start()
        got: list[bytes] = []
        for kill in range(3):
            got += receive(into, wanted[kill * 3000 : kill * 3000 + 1000])
            broker.kill()
            broker.start()
            client.events.wait("connected", times=kill + 2)
        got += receive(into, set(wanted) - set(got))
        sender.join(200.0)
        assert not sender.is_alive()
    assert set(got) == set(wanted)
