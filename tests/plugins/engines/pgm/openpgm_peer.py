"""The same program as ``libzmq_peer``, on OpenPGM alone: it lays messages into packets as libzmq does.

``publish URL COUNT SIZE SECONDS-BETWEEN`` and ``subscribe URL COUNT``.
"""

from __future__ import annotations

import select
import sys
import time

from tests.plugins.engines.pgm.openpgm import TIMEOUT, OpenPgm

TSDU = 1400
OFFSET = 2
NO_MESSAGE = 0xFFFF


def _frame(body: bytes) -> bytes:
    size = len(body) + 1
    head = bytes((size,)) if size < 255 else b"\xff" + size.to_bytes(8, "big")
    return head + b"\0" + body


def _packets(body: bytes) -> list[bytes]:
    """A message in packets of its own, the first of which says that it begins there."""
    frame, room = _frame(body), TSDU - OFFSET
    return [
        (at and NO_MESSAGE).to_bytes(OFFSET, "big") + frame[at : at + room]
        for at in range(0, len(frame), room)
    ]


def publish(url: str, count: int, size: int, between: float) -> None:
    source = OpenPgm(url, sends=True)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        source.pump()
    sys.stdin.readline()
    for number in range(count):
        for packet in _packets((b"%06d " % number).ljust(size, b"x")):
            source.send(packet)
        until = time.monotonic() + between
        while True:
            source.pump()
            if time.monotonic() >= until:
                break
            source.wait(0.001)
    print("sent", flush=True)
    while not select.select([sys.stdin], [], [], 0.001)[0]:  # whoever asks for repairs needs us
        source.pump()
    source.close()


def subscribe(url: str, count: int) -> None:
    receiver = OpenPgm(url, sends=False)
    print("ready", flush=True)
    stream, begun = b"", False
    last = time.monotonic()
    while count:
        packet = receiver.pump()
        if packet is None:
            assert time.monotonic() - last < TIMEOUT, f"{count} more are missing; {receiver.resets} resets"
            receiver.wait(0.005)
            continue
        last = time.monotonic()
        if not begun:
            begun = True
            packet = packet[int.from_bytes(packet[:OFFSET], "big") :]
        stream += packet[OFFSET:]
        while stream:
            head = 2 if stream[0] < 255 else 10
            size = stream[0] if head == 2 else int.from_bytes(stream[1:9], "big")
            if len(stream) < head + size - 1:
                break
            print(stream[head : head + size - 1].decode(), flush=True)
            stream = stream[head + size - 1 :]
            count -= 1
    receiver.close()


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        publish(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    else:
        subscribe(sys.argv[2], int(sys.argv[3]))
