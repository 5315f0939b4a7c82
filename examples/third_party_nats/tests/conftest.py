"""What the tests share."""

from __future__ import annotations

import pytest
from kernel_nats import plugin

from kernel import Origin, PluginRegistry
from kernel.testing.fixtures import kernel_factory

__all__ = ["kernel_factory"]


@pytest.fixture
def registry() -> PluginRegistry:
    """All that is installed, and this plugin also when it is not."""
    registry = PluginRegistry.load()
    if "nats" not in registry.plugins:
        registry.add(plugin, Origin("nats", "kernel-nats", "0"))
    return registry
