"""The SASL mechanisms that a client can log in with, against our own broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kernel.testing.fixtures import KernelFactory
from tests.interop.until import until
from tests.plugins.engines.amqp_client.conftest import TIMEOUT, Client, broker_plan
from tests.plugins.engines.client_kernel import ONLY_BRIDGE, certificates


@pytest.mark.parametrize("mechanism", ["PLAIN", "AMQPLAIN"])
def test_name_and_password(kernel_factory: KernelFactory, mechanism: str) -> None:
    broker = kernel_factory(broker_plan())
    client = Client(kernel_factory, broker.address_of("broker"), mechanism=mechanism)
    client.events.wait("connected")


def test_the_name_in_the_certificate(kernel_factory: KernelFactory, tmp_path: Path) -> None:
    listener_tls, tls = certificates(tmp_path)
    broker = kernel_factory(broker_plan("amqp+tls://127.0.0.1:0", tls=listener_tls, users=ONLY_BRIDGE))
    address = f"amqp+tls://127.0.0.1:{broker.address_of('broker').rpartition(':')[2]}"
    client = Client(kernel_factory, address, mechanism="EXTERNAL", tls=tls)
    client.events.wait("connected")
    (row,) = broker.inspect("connections", TIMEOUT).rows
    assert row["user"] == "bridge"


def test_a_mechanism_that_the_server_does_not_offer_is_named(kernel_factory: KernelFactory) -> None:
    broker = kernel_factory(broker_plan())
    client = Client(kernel_factory, broker.address_of("broker"), mechanism="EXTERNAL")
    detail = client.events.wait("disconnected").detail
    assert "EXTERNAL" in detail
    assert "PLAIN AMQPLAIN" in detail


@pytest.mark.usefixtures("short_login_delay")
@pytest.mark.parametrize("options", [{"password": "wrong"}, {"vhost": "nowhere"}])
def test_a_login_that_is_refused_is_seen_in_the_state(
    kernel_factory: KernelFactory, options: dict[str, str]
) -> None:
    broker = kernel_factory(broker_plan())
    client = Client(kernel_factory, broker.address_of("broker"), **options)
    client.events.wait("retrying", times=3)
    statistics = until(lambda: _refused(client))
    (row,) = statistics["links"]
    assert row["attempts"] >= 3
    assert "vhost" in row["last_error"]
    assert statistics["refusals"] >= 3


def _refused(client: Client) -> dict[str, Any]:
    """Return the figures of a moment in which it is not just trying again; in another, nothing."""
    statistics = client.statistics()
    (row,) = statistics["links"]
    return statistics if row["state"] == "refused" else {}
