"""Says of which case an error is, in tests that try many of them: a test for each would cost more than what it tests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def about(*case: object) -> Iterator[None]:
    """Add the case to whatever the block raises."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"the case: {', '.join(map(str, case))}")
        raise
