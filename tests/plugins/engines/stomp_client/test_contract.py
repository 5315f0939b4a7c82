"""Our broker and our client as a pair keep the contract that every pair with confirmation has to keep."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kernel.testing.engine_checks import ENGINE_CHECKS, EngineSubject, isolates_a_slow_reader
from kernel.testing.fixtures import KernelFactory
from kernel.topology.plan import EnginePlan
from tests.plugins.engines.stomp_client.conftest import FAST, GUEST, broker_plan
from tests.slow_checks import WAITING, parameters

# A broker has one port to the routes, not one for each peer.
CHECKS = [check for check in ENGINE_CHECKS if check is not isolates_a_slow_reader]


@pytest.mark.parametrize("check", parameters(CHECKS, WAITING))
@pytest.mark.parametrize("receipts", ["batch", "each"])
def test_the_client_publishes_to_a_broker_that_hands_on(
    receipts: str, check: Callable[[EngineSubject], None], kernel_factory: KernelFactory
) -> None:
    def listen(address: str | None) -> EnginePlan:
        return broker_plan((address or "127.0.0.1:0").rpartition("://")[2], name="net")

    def dial(address: str) -> EnginePlan:
        options = {
            "address": address.rpartition("://")[2],
            "destination": "/topic/t",
            "receipts": receipts,
            "reconnect": FAST,
            **GUEST,
        }
        return EnginePlan(name="net", kind="stomp-client", options=options)

    check(EngineSubject(listen=listen, dial=dial, kernels=kernel_factory))
