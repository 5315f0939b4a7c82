from __future__ import annotations

import pytest

from kernel.testing.fixtures import kernel_factory
from tests.plugins.engines.sctp.plans import has_system

__all__ = ["kernel_factory", "system", "transport"]


@pytest.fixture
def system() -> None:
    """The system's own SCTP; where it has none, ``test_system_in_guest.py`` runs the test in a guest that has."""
    if not has_system():
        pytest.skip("this system has no SCTP of its own: test_system_in_guest.py")


@pytest.fixture(params=["udp", "system"])
def transport(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "system":
        request.getfixturevalue("system")
    return name
