"""What every test gets: peers that are missing are skipped in the open, or fail where they are required."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.peers import PEERS
from tests.plugins.engines.amqp_client.rabbitmq import RabbitMq

_missing: dict[str, int] = {}


def _peers_of(item: pytest.Item) -> list[str]:
    names = [name for marker in item.iter_markers("peer") for name in marker.args]
    for name in names:
        if name not in PEERS:
            raise pytest.UsageError(
                f"{item.nodeid}: unknown peer {name!r}; tests/peers.py knows {', '.join(PEERS)}"
            )
    return names


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        _peers_of(item)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for name in _peers_of(item):
        peer = PEERS[name]
        if peer.present():
            continue
        _missing[name] = _missing.get(name, 0) + 1
        if os.environ.get("KERNEL_REQUIRE_PEERS") == "1":
            pytest.fail(
                f"peer {name} is missing and KERNEL_REQUIRE_PEERS=1; get it with: {peer.install}",
                pytrace=False,
            )
        pytest.skip(f"peer {name} is missing")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if not _missing:
        return
    terminalreporter.section("peers that are missing")
    for name, count in sorted(_missing.items()):
        tests = "test wants" if count == 1 else "tests want"
        terminalreporter.line(f"{name}: {count} {tests} it; get it with: {PEERS[name].install}")


@pytest.fixture(scope="session")
def rabbitmq(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMq]:
    """A RabbitMQ that all tests share; one that stops it starts it again."""
    node = RabbitMq(tmp_path_factory.mktemp("rabbitmq"))
    try:
        node.start()
        yield node
    finally:
        node.close()
