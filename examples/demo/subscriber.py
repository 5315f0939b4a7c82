"""The second kernel: receives the feed over the backend protocol.  It has no AMQP."""

from __future__ import annotations

import os
from pathlib import Path

from examples.demo.feed import Arrivals, say
from kernel import Kernel

expected = int(os.environ["EXPECTED"])
arrivals = Arrivals()

with Kernel.from_file(Path(__file__).with_name("subscriber.toml")) as kernel:
    kernel.wait_running()
    say(ready=kernel.address_of("bridge"))
    feed = kernel.open("feed")
    while len(arrivals.numbers) < expected:
        for body in feed.receive_many():
            arrivals.take(bytes(body))
        say(received=len(arrivals.latencies))
    feed.confirm()
    say(done=True, **arrivals.report())
