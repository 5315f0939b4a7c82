"""A worker of ventilator.py: takes tasks until it is stopped."""

from __future__ import annotations

import os

from kernel.sockets import Context


def main() -> None:
    tasks, results = (
        os.environ.get(name, port) for name, port in (("TASKS_PORT", "5557"), ("RESULTS_PORT", "5558"))
    )
    name = f"worker {os.getpid()}".encode()
    with Context() as context, context.socket("PULL", rcvhwm=1) as pull, context.socket("PUSH") as push:
        push.connect(f"tcp://127.0.0.1:{results}")
        pull.connect(f"tcp://127.0.0.1:{tasks}")
        for task in pull:
            push.send_multipart([name, b"%d" % (int(task) ** 2)])


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
