"""Fixtures for the tests of any project in which this distribution is installed (entry point ``pytest11``).

``kernel_factory`` makes kernels that are closed after the test.  What it is made of is loaded when a test
asks for it, because pytest loads this module in every project.  Plugins that have fixtures bring an entry
point of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from kernel.testing.fixtures import KernelFactory


@pytest.fixture
def kernel_factory() -> Iterator[KernelFactory]:
    """Make kernels that are closed after the test, which fails if a thread or a descriptor is left."""
    from kernel.testing.fixtures import factory

    with factory() as make:
        yield make
