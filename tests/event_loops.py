"""Event loops for tests that do the same in each of them: trio, asyncio, and uvloop."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

Main = Callable[[], Awaitable[None]]


class Loop:
    """What the tests need of an event loop."""

    def __init__(self, of: str) -> None:
        self.kind = "trio" if of == "trio" else "asyncio"
        self._of = of

    def run(self, main: Main) -> None:
        async def limited() -> None:
            if self.kind == "trio":
                with trio.fail_after(60):
                    await main()
            else:
                async with asyncio.timeout(60):
                    await main()

        if self._of == "trio":
            trio.run(limited)
        else:
            factory = importlib.import_module("uvloop").new_event_loop if self._of == "uvloop" else None
            with asyncio.Runner(debug=True, loop_factory=factory) as runner:
                runner.run(limited())

    async def sleep(self, seconds: float) -> None:
        if self.kind == "trio":
            await trio.sleep(seconds)
        else:
            await asyncio.sleep(seconds)

    async def gave_up(self, call: Callable[[], Awaitable[Any]], seconds: float) -> bool:
        """Whether a call was cancelled after so many seconds."""
        if self.kind == "trio":
            with trio.move_on_after(seconds) as scope:
                await call()
            return scope.cancelled_caught
        try:
            async with asyncio.timeout(seconds):
                await call()
        except TimeoutError:
            return True
        return False

    async def together(self, *calls: Callable[[], Awaitable[Any]]) -> list[Any]:
        """Call all in tasks of their own; return what they have returned, in the order of their ends."""
        results: list[Any] = []

        async def one(call: Callable[[], Awaitable[Any]]) -> None:
            results.append(await call())

        if self.kind == "trio":
            async with trio.open_nursery() as nursery:
                for call in calls:
                    nursery.start_soon(one, call)
        else:
            await asyncio.gather(*map(one, calls))
        return results


EVENT_LOOPS = ["trio", "asyncio", pytest.param("uvloop", marks=pytest.mark.peer("uvloop"))]
"""Parameters of a fixture that returns ``event_loop(request.param)``."""


def event_loop(kind: str) -> Loop:
    """Return one of them, which has been used."""
    loop = Loop(kind)
    # uvloop keeps the pipe for signals of the first loop until the process ends: it is none of our leaks.
    loop.run(lambda: loop.sleep(0))
    return loop
