"""The parts of the fixture ``kernel_factory``."""

from __future__ import annotations

import pytest

from kernel import EnginePlan, Kernel, KernelError
from kernel.testing.fixtures import factory


def test_kernels_are_closed_when_the_block_raises() -> None:
    kernels: list[Kernel] = []

    def fail() -> None:
        with factory() as make:
            kernels.append(make(EnginePlan(name="a", kind="native")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    (kernel,) = kernels
    with pytest.raises(KernelError, match="closed"):
        kernel.start()
