"""OpenPGM's side, through ctypes, as a program: the same as ``peers/libzmq_multicast.c``, without libzmq.

``receive URL COUNT SIZE RATE`` and ``send URL COUNT SIZE RATE GAP``; RATE in bytes per second, GAP in
nanoseconds.

OpenPGM knows packets only.  A packet has as many messages as libzmq puts into one, in libzmq's framing.  It
is made once and sent each time, and a receiver counts the messages of a packet without separating them.  So
Python costs one call for each packet.  Libzmq's work on messages costs nothing here, which is in OpenPGM's
favour.
"""

from __future__ import annotations

import select
import sys
import time
from struct import Struct

from tests.plugins.engines.pgm.openpgm import OpenPgm

TSDU = 1400
END = b"\xff\xffEND"
FIRST_PATIENCE, TIMEOUT = 60.0, 3.0
MOST = 15.0
PUMP_EVERY = 16
"""Packets after which a sender looks whether somebody misses something."""
STAMP = Struct("=q")
BEGIN = 2
"""Bytes of a packet before its first message; that one's size and flags have two, or ten, more."""


def _head(size: int) -> bytes:
    """What stands before a body."""
    return bytes((size + 1, 0)) if size < 254 else b"\xff" + (size + 1).to_bytes(8, "big") + b"\0"


def messages_a_packet(size: int) -> int:
    """How many messages go into a packet."""
    return max((TSDU - BEGIN) // (len(_head(size)) + size), 1)


def receive(url: str, count: int, size: int, rate: int) -> None:
    receiver = OpenPgm(url, sends=False, rate=rate)
    print("ready", flush=True)
    head = _head(size)
    frame, stamp_at = len(head) + size, BEGIN + len(head)
    taken: list[int] = []
    received = first = last = 0
    waiting_since = time.monotonic()
    while received < count and last - first < MOST * 1e9:
        packet = receiver.pump()
        if packet is None:
            if time.monotonic() - waiting_since > (TIMEOUT if first else FIRST_PATIENCE):
                break
            receiver.wait(0.001)
            continue
        if packet == END:
            break
        last = time.monotonic_ns()
        waiting_since = last / 1e9
        first = first or last
        received += (len(packet) - BEGIN) // frame
        taken.append(last - STAMP.unpack_from(packet, stamp_at)[0])
    ordered = sorted(taken) or [0]
    p50, p99 = (ordered[int(len(ordered) * part)] / 1e3 for part in (0.5, 0.99))
    print("received", received, (last - first) / 1e9, p50, p99, flush=True)


def send(url: str, count: int, size: int, rate: int, gap: int) -> None:
    source = OpenPgm(url, sends=True, rate=rate)
    print("ready", flush=True)
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        source.pump()
    sys.stdin.readline()
    head, together = _head(size), 1 if gap else messages_a_packet(size)
    begin, body = bytes(BEGIN) + head, b"x" * (size - STAMP.size)
    rest = body + (head + b"y" * size) * (together - 1)
    due = time.monotonic_ns()
    for number in range(count // together):
        if gap:
            due += gap
            time.sleep(max(due - time.monotonic_ns(), 0) / 1e9)
        source.send(begin + STAMP.pack(time.monotonic_ns()) + rest)
        if gap or number % PUMP_EVERY == 0:
            source.pump()
    while not select.select([sys.stdin], [], [], 0.001)[0]:
        source.pump()
    for _ in range(3):
        source.send(END)


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[3:]]
    if sys.argv[1] == "send":
        send(sys.argv[2], *numbers)
    else:
        receive(sys.argv[2], *numbers)
