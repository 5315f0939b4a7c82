"""Says of which case an error is, in tests that try many of them: a test for each would cost more than what it tests."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def about(*case: object) -> Iterator[None]:
    """Add the case to whatever the block raises."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"the case: {', '.join(map(str, case))}")
        raise


_ENOUGH = 100
"""Signs of a value that are shown."""


def for_each(
    names: str, cases: Iterable[Any], ids: Iterable[object] | Callable[[Any], object] | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Try all cases in one test, and tell each that fails; it is written as ``pytest.mark.parametrize`` is.

    For tables whose cases take less than the milliseconds that pytest spends on a test. Fixtures are made once,
    for all cases together: a case must leave behind nothing that another would notice.
    """
    arguments = [name.strip() for name in names.split(",")]
    table = [dict(zip(arguments, case if len(arguments) > 1 else (case,), strict=True)) for case in cases]
    assert table, "no cases"
    called = _called(table, ids)

    def decorate(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def all_cases(**fixtures: Any) -> None:
            failures: list[BaseException] = []
            for name, case in zip(called, table, strict=True):
                try:
                    with about(name):
                        test(**case, **fixtures)
                except (Exception, pytest.fail.Exception) as error:
                    failures.append(error)
            if len(failures) == 1:
                raise failures[0]
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} cases", failures)

        signature = inspect.signature(test)
        unknown = [name for name in arguments if name not in signature.parameters]
        assert not unknown, f"{test.__name__} has no argument {unknown[0]}"
        fixtures = [each for name, each in signature.parameters.items() if name not in arguments]
        # What pytest reads the names of fixtures from.
        all_cases.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return all_cases

    return decorate


def _called(table: list[dict[str, Any]], ids: Iterable[object] | Callable[[Any], object] | None) -> list[str]:
    if ids is not None and not callable(ids):
        called = [str(each) for each in ids]
        assert len(called) == len(table), f"{len(called)} ids for {len(table)} cases"
        return called
    return [
        ", ".join(str(ids(value)) if ids is not None else _short(value) for value in case.values())
        for case in table
    ]


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _ENOUGH else f"{text[:_ENOUGH]}…"
