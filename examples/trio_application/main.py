"""A trio application whose only thread hosts the engines: one task sends through TCP, another receives."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import trio

from kernel import Kernel

TICKS = 3


async def tick(channel: Any) -> None:
    for number in range(1, TICKS + 1):
        await channel.send(b"tick %d" % number)
        await trio.sleep(0.01)


async def main() -> None:
    async with Kernel.from_file(Path(__file__).with_name("application.toml")) as kernel:
        async with kernel.open("ticks") as ticks, kernel.open("log") as log, trio.open_nursery() as nursery:
            nursery.start_soon(tick, ticks)
            with trio.fail_after(10):
                for _ in range(TICKS):
                    print(bytes(await log.receive()).decode())
        print("threads:", threading.active_count())


if __name__ == "__main__":
    trio.run(main)
