"""Receive orders until one says "end"; each is confirmed after it has been processed."""

from __future__ import annotations

from pathlib import Path

from kernel import Kernel


def main() -> None:
    with Kernel.from_file(Path(__file__).with_name("receiver.toml")) as kernel:
        kernel.wait_running()
        print("listening on", kernel.address_of("link"), flush=True)
        with kernel.open("orders") as orders:
            count = 0
            while (order := bytes(orders.receive())) != b"end":
                count += 1
                print(order.decode(), flush=True)
                orders.confirm()  # from here on the sender may forget it
            orders.confirm()
        print(f"{count} orders received")


if __name__ == "__main__":
    main()
