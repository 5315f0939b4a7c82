from __future__ import annotations

from kernel.testing.fixtures import kernel_factory

__all__ = ["kernel_factory"]
