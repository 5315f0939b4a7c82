"""Crowds: many connections at a time, and many retained messages."""

from __future__ import annotations

import socket
import time
from collections import deque
from multiprocessing.connection import Connection

from benchmarks.floods import BODY
from benchmarks.mqtt.bare import DISCONNECT, BareClient, connect, publish, subscribe
from benchmarks.streams import opened

AT_A_TIME = 16
_CONNACK_SIZE, _SUBACK_SIZE = 4, 5
_RETAINED_BLOCK = 500


def come_and_go(link: Connection, address: str, count: int) -> None:
    """Connect and disconnect, several clients at a time; send the seconds."""
    _come_and_go(address, AT_A_TIME)
    link.send("ready")
    link.recv()
    start = time.perf_counter()
    _come_and_go(address, count)
    link.send(time.perf_counter() - start)
    link.recv()


def _come_and_go(address: str, count: int) -> None:
    # One comes whenever one goes: the broker has something to do all the time.
    here: deque[socket.socket] = deque()
    for number in range(count):
        if len(here) == AT_A_TIME:
            _go(here.popleft())
        sock = opened(address)
        sock.sendall(connect(f"visitor-{number}"))
        here.append(sock)
    for sock in here:
        _go(sock)


def _go(sock: socket.socket) -> None:
    if len(sock.recv(_CONNACK_SIZE, socket.MSG_WAITALL)) < _CONNACK_SIZE:
        raise EOFError("the broker hung up")
    sock.sendall(DISCONNECT)
    sock.close()


def stay(link: Connection, address: str, count: int) -> None:
    """Hold connections that do nothing."""
    held = [BareClient(address, f"idle-{at}") for at in range(count)]
    link.send(len(held))
    link.recv()


def retain(link: Connection, address: str, count: int) -> None:
    """Publish a retained message to each of so many topics."""
    client = BareClient(address, "retainer")
    for start in range(0, count, _RETAINED_BLOCK):
        topics = (_retained_topic(at) for at in range(start, start + _RETAINED_BLOCK))
        client.socket.sendall(b"".join(publish(topic, BODY, 0, range(1), retain=True) for topic in topics))
    client.ping()
    link.send("retained")
    link.recv()


def read_retained(link: Connection, address: str, count: int) -> None:
    """Subscribe to everything; send the seconds until all retained messages are there."""
    client = BareClient(address, "reader")
    wanted = _SUBACK_SIZE + count * len(publish(_retained_topic(0), BODY, 0, range(1), retain=True))
    link.send("ready")
    link.recv()
    start = time.perf_counter()
    client.socket.sendall(subscribe("#", 0))
    while wanted:
        wanted -= client.read_into_room()
    link.send(time.perf_counter() - start)
    link.recv()


def ping(link: Connection, address: str) -> None:
    """Ping until told to end; send the longest time that an answer took, in seconds."""
    client = BareClient(address, "pinger")
    for _ in range(100):
        client.ping()
    link.send("ready")
    longest = 0.0
    while not link.poll():
        start = time.perf_counter()
        client.ping()
        longest = max(longest, time.perf_counter() - start)
    link.recv()
    link.send(longest)
    link.recv()


def _retained_topic(number: int) -> str:
    return f"retained/{number // 100:04}/{number % 100:02}"
