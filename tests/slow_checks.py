"""Checks of a contract as parameters of a test, those with the mark ``slow`` that take long."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kernel.testing import engine_checks, protocol_checks

Check = Callable[[Any], None]

WAITING = (
    engine_checks.isolates_a_slow_reader,
    engine_checks.lets_go_in_every_phase,
    engine_checks.reconnects_and_loses_nothing,
    engine_checks.waits_when_nothing_is_confirmed,
)
"""What fills a socket's buffers, or waits until a source is blocked.  `make quick` has each of them once, with the
engine ``stream`` over TCP."""
BYTE_BY_BYTE = (protocol_checks.truncated_messages, protocol_checks.mutated_bytes)
"""What makes some thousand conversations, which cost with encryption what they do not cost without."""


def parameters(checks: Iterable[Check], slow: Iterable[Check]) -> list[Any]:
    """Return all checks, with their names as identifiers."""
    slow = set(slow)
    return [
        pytest.param(check, id=check.__name__, marks=[pytest.mark.slow] if check in slow else [])
        for check in checks
    ]
