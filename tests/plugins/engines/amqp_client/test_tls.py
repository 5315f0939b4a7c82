"""The client over TLS to our own broker."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from kernel.testing.fixtures import KernelFactory
from tests.plugins.engines.amqp_client.conftest import TIMEOUT, Client, broker_plan


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    authority = trustme.CA()
    files = {"authorities": str(tmp_path / "authority.pem"), "certificate": str(tmp_path / "server.pem")}
    authority.cert_pem.write_to_path(files["authorities"])
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(files["certificate"])
    return files


def test_messages_pass_and_large_ones_too(
    kernel_factory: KernelFactory, certificates: dict[str, str]
) -> None:
    tls = {"certificate": certificates["certificate"]}
    broker = kernel_factory(broker_plan("amqp+tls://127.0.0.1:0", tls=tls, queues=[{"name": "q"}]))
    client = Client(
        kernel_factory,
        f"amqp+tls://127.0.0.1:{broker.address_of('broker').rpartition(':')[2]}",
        tls={"authorities": certificates["authorities"]},
        exchange="",
        key="q",
        consume=[{"queue": "q"}],
    )
    out, into = client.kernel.open("out"), client.kernel.open("in")
    for body in (b"small", b"x" * 1_000_000):
        out.send(body, timeout=TIMEOUT)
        assert bytes(into.receive(TIMEOUT)) == body


def test_a_server_of_a_stranger_is_not_believed(
    kernel_factory: KernelFactory, certificates: dict[str, str]
) -> None:
    tls = {"certificate": certificates["certificate"]}
    broker = kernel_factory(broker_plan("amqp+tls://127.0.0.1:0", tls=tls))
    client = Client(kernel_factory, f"amqp+tls://127.0.0.1:{broker.address_of('broker').rpartition(':')[2]}")
    assert "certificate verify failed" in client.events.wait("retrying").detail
    assert not client.events.all("connected")
