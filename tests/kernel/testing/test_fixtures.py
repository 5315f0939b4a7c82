"""The parts of the fixture ``kernel_factory``."""

from __future__ import annotations

import pytest

from kernel import EnginePlan, KernelError
from kernel.testing.fixtures import factory


def test_kernels_are_closed_when_the_block_raises() -> None:
    with pytest.raises(ZeroDivisionError), factory() as make:
        kernel = make(EnginePlan(name="a", kind="native"))
        _ = 1 / 0
    with pytest.raises(KernelError, match="closed"):
        kernel.start()
