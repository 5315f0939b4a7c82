"""The other end of bridge.toml: print each message, confirm it, until Ctrl-C."""

from __future__ import annotations

import os

from kernel import EnginePlan, Kernel, Plan, RoutePlan

PORT = os.environ.get("BRIDGE_PORT", "5556")

PLAN = Plan(
    engines=(
        EnginePlan(
            name="bridge",
            kind="stream",
            options={"mode": "listen", "address": f"backend+tcp://127.0.0.1:{PORT}"},
        ),
        EnginePlan(name="feed", kind="native", options={"auto_confirm": False}),
    ),
    routes=(RoutePlan(source="bridge", targets=("feed",), confirm=True),),
)


def main() -> None:
    with Kernel(PLAN) as kernel, kernel.open("feed") as feed:
        kernel.wait_running()
        print("listening on", kernel.address_of("bridge"), flush=True)
        while True:
            message = feed.receive_message()
            print(message.key, bytes(message).decode(errors="replace"), flush=True)
            feed.confirm()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        pass
