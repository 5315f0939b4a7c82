"""Ventilator: hands 100 tasks out to workers, and collects their results.

    python examples/zmq/ventilator.py
    python examples/zmq/worker.py          # in other shells, as many as you like

A worker that is slow gets fewer tasks, and one that comes later gets its share of what is left.
"""

from __future__ import annotations

import os
from collections import Counter

from kernel.sockets import Context

TASKS = 100


def main() -> None:
    tasks, results = (
        os.environ.get(name, port) for name, port in (("TASKS_PORT", "5557"), ("RESULTS_PORT", "5558"))
    )
    # A task waits here, and not at a worker that is busy.
    with Context() as context, context.socket("PUSH", sndhwm=1) as push, context.socket("PULL") as pull:
        pull.bind(f"tcp://127.0.0.1:{results}")
        push.bind(f"tcp://127.0.0.1:{tasks}")
        print("waiting for workers", flush=True)
        done: Counter[str] = Counter()
        sent = 0
        while done.total() < TASKS:
            if sent < TASKS:
                push.send(b"%d" % sent)
                sent += 1
            # All that is there; at the end as long as it takes.
            while pull.poll(0) or sent == TASKS:
                worker, _ = pull.recv_multipart()
                done[worker.decode()] += 1
                if done.total() == TASKS:
                    break
        for worker_name, count in sorted(done.items()):
            print(f"{worker_name}: {count} tasks")


if __name__ == "__main__":
    main()
