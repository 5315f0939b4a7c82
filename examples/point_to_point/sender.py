"""Send orders, and end only when the receiver has confirmed every one of them.

It may be started before the receiver: the dialling engine tries again until it is accepted.  After a lost
connection it sends again all messages that were not confirmed.
"""

from __future__ import annotations

import os

from kernel import EnginePlan, Kernel, Plan, RoutePlan

PORT = os.environ.get("ORDERS_PORT", "5555")

PLAN = Plan(
    engines=(
        EnginePlan(name="orders", kind="native"),
        EnginePlan(name="link", kind="stream", options={"address": f"backend+tcp://127.0.0.1:{PORT}"}),
    ),
    routes=(RoutePlan(source="orders", targets=("link",), confirm=True),),
)


def main() -> None:
    with Kernel(PLAN) as kernel, kernel.open("orders") as orders:
        orders.send_many([b"order %d" % number for number in range(1, 6)])
        orders.send(b"end")
        orders.wait_confirmed(timeout=60)
        print("all orders are confirmed")


if __name__ == "__main__":
    main()
