"""OpenPGM and the kernel on one network: each publishes, each receives, over UDP and IP, with losses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.lan import Lan
from tests.plugins.engines.pgm.exchange import KERNEL, OPENPGM, PORT, exchange

pytestmark = [pytest.mark.peer("namespaces"), pytest.mark.peer("openpgm"), pytest.mark.slow]

BOTH_WAYS = pytest.mark.parametrize(
    "publisher, subscriber", [(KERNEL, OPENPGM), (OPENPGM, KERNEL)], ids=["to", "from"]
)


@pytest.fixture
def network() -> Iterator[Lan]:
    """Four members: the first publishes."""
    with Lan(4) as made:
        yield made


@BOTH_WAYS
@pytest.mark.parametrize("transport", ["epgm", "pgm"])
def test_all_arrives(publisher: str, subscriber: str, transport: str, network: Lan) -> None:
    exchange(network, publisher, [subscriber], transport, 200, 100, 0.001)


@BOTH_WAYS
def test_messages_larger_than_packets_arrive(publisher: str, subscriber: str, network: Lan) -> None:
    exchange(network, publisher, [subscriber], "epgm", 20, 20_000, 0.02)


@pytest.mark.peer("nft")
@pytest.mark.parametrize("transport", ["epgm", "pgm"])
@pytest.mark.parametrize("publisher", [KERNEL, OPENPGM], ids=["kernel", "openpgm"])
def test_three_receivers_that_lose_a_tenth_miss_nothing(publisher: str, transport: str, network: Lan) -> None:
    """Two kernels and an OpenPGM, each with losses of its own."""
    for member in (1, 2, 3):
        network.lose(member, 10.0, PORT, every=True)
    exchange(network, publisher, [KERNEL, KERNEL, OPENPGM], transport, 300, 100, 0.002)
