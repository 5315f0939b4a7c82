"""Two threads on one bus: one sends readings, the other shows them."""

from __future__ import annotations

import threading
from pathlib import Path

from kernel import Kernel

READINGS = 5


def measure(kernel: Kernel) -> None:
    """The sensor's thread.  A channel belongs to the thread that opened it."""
    with kernel.open("sensor") as channel:
        for number in range(1, READINGS + 1):
            channel.send(b"%d degrees" % (20 + number), key=f"room.{number % 2}")


def main() -> None:
    with Kernel.from_file(Path(__file__).with_name("bus.toml")) as kernel:
        sensor = threading.Thread(target=measure, args=(kernel,))
        sensor.start()
        with kernel.open("display") as channel:
            for _ in range(READINGS):
                message = channel.receive_message(timeout=10)
                print(message.key, bytes(message).decode())
        sensor.join()


if __name__ == "__main__":
    main()
