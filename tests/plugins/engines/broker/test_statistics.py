"""Figures of a broker, which another thread reads while the broker goes on."""

from __future__ import annotations

from typing import Any

import pytest

from plugins.engines.broker.virtual_host import VirtualHost
from tests.plugins.engines.broker.client import make_vhost


def test_a_virtual_host_is_added_while_the_figures_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = make_vhost().broker
    figures = VirtualHost.statistics

    def adds_one(vhost: VirtualHost) -> dict[str, Any]:
        broker.add_vhost("new")
        return figures(vhost)

    monkeypatch.setattr(VirtualHost, "statistics", adds_one)
    assert list(broker.statistics()) == ["/"]
    assert list(broker.statistics()) == ["/", "new"]
