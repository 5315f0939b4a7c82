"""Events of pyzmq's monitors that tell of failures, on our backend and on libzmq."""

from __future__ import annotations

import re

import pytest

from tests.plugins.apis.sockets.test_pyzmq_backend import run
from tests.plugins.apis.sockets.test_with_pyzmq import PAGE

pytestmark = pytest.mark.peer("pyzmq")

HEAD = """
import itertools
import socket
import sys
import zmq
from zmq.utils.monitor import recv_monitor_message

FAILED = zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL | zmq.EVENT_HANDSHAKE_FAILED_AUTH

# Not ``id``: the next socket may have that of the last one, whose place libzmq still has.
numbers = itertools.count()

def watch(watched, events):
    place = f"inproc://{next(numbers)}"
    watched.monitor(place, events)
    monitor = context.socket(zmq.PAIR)
    monitor.connect(place)
    return monitor

def told(monitor):
    if not monitor.poll(20_000):
        return "nothing"
    event = recv_monitor_message(monitor)
    name, value = event["event"].name, event["value"]
    if event["event"] == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL:
        value = next(
            each[15:]
            for each in dir(zmq.constants)
            if each.startswith("PROTOCOL_ERROR_") and getattr(zmq.constants, each) == value
        )
    return f"{name} {value}"

context = zmq.Context()
context.linger = 0
"""

FAULTS = (
    HEAD
    + """
def greeting(mechanism):
    return b"\\xff" + bytes(8) + b"\\x7f\\3\\1" + mechanism.ljust(20, b"\\0") + bytes(32)

def command(name, data=b""):
    body = bytes([len(name)]) + name + data
    return bytes([4, len(body)]) + body

NULL, PLAIN, CURVE = (greeting(name) for name in (b"NULL", b"PLAIN", b"CURVE"))
CASES = {
    "it hangs up": b"",
    "it is mute": None,
    "another mechanism": PLAIN,
    "another command": NULL + command(b"HELLO"),
    "metadata that end too early": NULL + command(b"READY", b"\\x20a"),
    "a type that does not fit": NULL + command(b"READY", b"\\x0bSocket-Type\\0\\0\\0\\3SUB"),
    "a message": NULL + b"\\0\\1x",
    "ERROR with a status": NULL + command(b"ERROR", b"\\x03400"),
    "ERROR that ends too early": NULL + command(b"ERROR", b"\\x20no"),
    "PLAIN, HELLO that ends too early": PLAIN + command(b"HELLO", b"\\x20a"),
    "PLAIN, another command": PLAIN + command(b"INITIATE"),
    "CURVE, a short HELLO": CURVE + command(b"HELLO", b"x"),
    "CURVE, another version": CURVE + command(b"HELLO", b"\\7" + bytes(193)),
    "CURVE, a box that does not open": CURVE + command(b"HELLO", b"\\1\\0" + bytes(192)),
    "CURVE, another command": CURVE + command(b"READY"),
}

def say(peer, octets):
    if octets:
        peer.sendall(octets)
    elif octets == b"":
        peer.shutdown(socket.SHUT_WR)

for case, octets in CASES.items():
    if case not in sys.argv[1:]:
        continue
    with context.socket(zmq.PULL) as pull:
        if "PLAIN" in case:
            pull.plain_server = 1
        elif "CURVE" in case:
            pull.curve_server, pull.curve_secretkey = 1, zmq.curve_keypair()[1]
        if octets is None:
            pull.handshake_ivl = 100
        with watch(pull, FAILED) as monitor:
            pull.bind("tcp://127.0.0.1:*")
            with socket.create_connection(("127.0.0.1", int(pull.last_endpoint.decode().rpartition(":")[2]))) as peer:
                say(peer, octets)
                print(f"{case}: {told(monitor)}")
            pull.disable_monitor()
    if "PLAIN" in case or "CURVE" in case:
        continue
    with socket.create_server(("127.0.0.1", 0)) as server, context.socket(zmq.PUSH) as push:
        if octets is None:
            push.handshake_ivl = 100
        with watch(push, FAILED) as monitor:
            push.connect("tcp://127.0.0.1:%d" % server.getsockname()[1])
            with server.accept()[0] as peer:
                say(peer, octets)
                print(f"{case}: {told(monitor)}")
            push.disable_monitor()
context.term()
"""
)

NO_PLACE = (
    HEAD
    + """
with context.socket(zmq.PULL) as one, context.socket(zmq.PULL) as pull:
    one.bind("tcp://127.0.0.1:*")
    with watch(pull, zmq.EVENT_BIND_FAILED) as monitor:
        for place in (one.last_endpoint.decode(), "tcp://192.0.2.1:5555"):
            try:
                pull.bind(place)
            except zmq.ZMQError:
                print(told(monitor))
        pull.disable_monitor()
context.term()
"""
)

NO_DESCRIPTOR = (
    HEAD
    + """
import os
import resource

with context.socket(zmq.PULL) as pull, socket.socket() as peer:
    with watch(pull, zmq.EVENT_ACCEPT_FAILED) as monitor:
        pull.bind("tcp://127.0.0.1:*")
        taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(40)]
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken) + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        peer.connect(("127.0.0.1", int(pull.last_endpoint.decode().rpartition(":")[2])))
        print(told(monitor), flush=True)
        # libzmq tries again without a pause, and waits for somebody who takes all of its events.
        os._exit(0)
"""
)

LEFT_OPEN = (
    HEAD
    + """
for _ in range(3):
    with context.socket(zmq.PULL) as pull:
        # A place named after a descriptor, so that all of them have the same.
        monitor = pull.get_monitor_socket()
        pull.bind("tcp://127.0.0.1:*")
        print(told(monitor).split()[0])
        pull.disable_monitor()
monitor.close()
context.term()
"""
)

UNEXPECTED = "HANDSHAKE_FAILED_PROTOCOL ZMTP_UNEXPECTED_COMMAND"
METADATA = "HANDSHAKE_FAILED_PROTOCOL ZMTP_INVALID_METADATA"
BOTH_SIDES = {
    "it hangs up": "HANDSHAKE_FAILED_NO_DETAIL 32",
    "it is mute": "HANDSHAKE_FAILED_NO_DETAIL 11",
    "another mechanism": "HANDSHAKE_FAILED_PROTOCOL ZMTP_MECHANISM_MISMATCH",
    "another command": UNEXPECTED,
    "a message": UNEXPECTED,
    "ERROR with a status": "HANDSHAKE_FAILED_AUTH 400",
    "ERROR that ends too early": "HANDSHAKE_FAILED_PROTOCOL ZMTP_MALFORMED_COMMAND_ERROR",
}
SERVERS = {
    "PLAIN, HELLO that ends too early": "HANDSHAKE_FAILED_PROTOCOL ZMTP_MALFORMED_COMMAND_HELLO",
    "PLAIN, another command": UNEXPECTED,
    "CURVE, a short HELLO": "HANDSHAKE_FAILED_PROTOCOL ZMTP_MALFORMED_COMMAND_HELLO",
    "CURVE, another version": "HANDSHAKE_FAILED_PROTOCOL ZMTP_MALFORMED_COMMAND_HELLO",
    "CURVE, a box that does not open": "HANDSHAKE_FAILED_PROTOCOL ZMTP_CRYPTOGRAPHIC",
    "CURVE, another command": UNEXPECTED,
}
ONLY_OURS = {"metadata that end too early": METADATA, "a type that does not fit": METADATA}
"""libzmq tells only that the connection has ended."""


def _lines(cases: dict[str, str]) -> list[str]:
    return [f"{case}: {told}" for case, told in cases.items() for _ in range(1 if case in SERVERS else 2)]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_a_monitor_tells_what_was_wrong_with_a_handshake(ours: bool) -> None:
    expected = BOTH_SIDES | SERVERS | (ONLY_OURS if ours else {})
    assert sorted(run(FAULTS, *expected, ours=ours)) == sorted(_lines(expected))


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_a_monitor_tells_why_a_place_could_not_be_bound_to(ours: bool) -> None:
    """It is in use, or is none of this machine's addresses."""
    assert run(NO_PLACE, ours=ours) == ["BIND_FAILED 98", "BIND_FAILED 99"]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_a_monitor_tells_that_there_was_no_descriptor_for_a_peer(ours: bool) -> None:
    assert run(NO_DESCRIPTOR, ours=ours) == ["ACCEPT_FAILED 24"]


@pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"])
def test_a_monitor_that_is_left_open_does_not_get_the_events_of_the_next_one(ours: bool) -> None:
    """Over ``inproc`` a connection is not made again: otherwise the earlier PAIR would be the peer of the new one."""
    assert run(LEFT_OPEN, ours=ours) == ["LISTENING"] * 3


def test_each_event_of_libzmq_is_in_the_documentation() -> None:
    from zmq.constants import Event

    from plugins.apis.sockets.pyzmq_backend.monitor import TOLD

    page = PAGE.read_text()
    there = page.partition("- A monitor has ")[2].partition("\n- ")[0]
    missing = page.partition("- Events that are not there")[2].partition("\n- ")[0]
    assert set(re.findall("`([A-Z_]+)`", there)) == {each.name for each in TOLD}
    assert {name for name in re.findall("`([A-Z_]+)`", missing) if name in Event.__members__} == {
        each.name for each in Event if each not in TOLD and not each.name.startswith("PROTOCOL_ERROR")
    }
