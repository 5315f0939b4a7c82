"""Weather: publishes the temperature at 10 places, ten times a second, to whoever has subscribed.

    python examples/zmq/weather_publisher.py

Any socket of ØMQ can subscribe at port 5556 (ZMQ_PORT), for example weather_subscriber.py:

    python examples/zmq/weather_subscriber.py wien
"""

from __future__ import annotations

import os
import random
import time

from kernel.sockets import Context

PLACES = ("bern", "brno", "graz", "linz", "lyon", "oslo", "paris", "rom", "turin", "wien")


def main() -> None:
    place = f"tcp://127.0.0.1:{os.environ.get('ZMQ_PORT', '5556')}"
    with Context() as context, context.socket("PUB") as pub:
        pub.bind(place)
        print(f"weather at {place}", flush=True)
        while True:
            for name in PLACES:
                pub.send_multipart([name.encode(), b"%d" % random.randint(-20, 40)])
            time.sleep(0.1)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
