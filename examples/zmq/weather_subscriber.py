"""Weather: the mean of five temperatures at one place, from weather_publisher.py or any other PUB of ØMQ."""

from __future__ import annotations

import os
import sys
from statistics import mean

from kernel.sockets import Context


def main(place: str = "wien") -> None:
    with Context() as context, context.socket("SUB") as sub:
        sub.subscribe(place)
        sub.connect(f"tcp://127.0.0.1:{os.environ.get('ZMQ_PORT', '5556')}")
        temperatures = [int(sub.recv_multipart()[1]) for _ in range(5)]
        print(f"{place}: {mean(temperatures):.1f} degrees")


if __name__ == "__main__":
    main(*sys.argv[1:])
