"""A plugin for pytest that runs tests and fixtures which are coroutines, each test with an event loop of its own.

pyzmq's suite expects pytest-asyncio for that.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

_loops: list[asyncio.AbstractEventLoop] = []


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "asyncio: a test that is a coroutine")
    config.addinivalue_line("markers", "flaky: a test that its authors know to fail at times")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("asyncio_mode", "of pytest-asyncio")
    parser.addini("asyncio_default_fixture_loop_scope", "of pytest-asyncio")


def _run(coroutine: Any) -> Any:
    return _loops[-1].run_until_complete(coroutine)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    _loops.append(loop)
    try:
        return (yield)
    finally:
        _loops.pop()
        loop.close()
        asyncio.set_event_loop(None)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: Any) -> None:
    function = fixturedef.func
    made: Any = None
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        def made(*args: Any, **kwargs: Any) -> Any:
            return _run(function(*args, **kwargs))

    elif inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        def made(*args: Any, **kwargs: Any) -> Any:
            steps = function(*args, **kwargs)
            yield _run(anext(steps))
            with contextlib.suppress(StopAsyncIteration):
                _run(anext(steps))

    if made is not None:
        object.__setattr__(fixturedef, "func", made)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    function = pyfuncitem.obj
    if not inspect.iscoroutinefunction(function):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    _run(function(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True
