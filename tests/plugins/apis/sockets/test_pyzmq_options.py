"""What options of pyzmq do to connections, on our backend and on libzmq.  Peers are bare sockets."""

from __future__ import annotations

import pytest

from tests.plugins.apis.sockets.test_pyzmq_backend import run

pytestmark = [
    pytest.mark.peer("pyzmq"),
    pytest.mark.parametrize("ours", [True, False], ids=["ours", "libzmq"]),
]

HEAD = """
import socket
import struct
import zmq
from zmq.utils.monitor import recv_monitor_message

GREETING = b"\\xff" + bytes(8) + b"\\x7f\\3\\1" + b"NULL".ljust(20, b"\\0") + bytes(32)

def command(name, data=b""):
    body = bytes([len(name)]) + name + data
    return bytes([4, len(body)]) + body

def ready(kind):
    return command(b"READY", b"\\x0bSocket-Type" + struct.pack(">I", len(kind)) + kind)

def make(kind, **options):
    made = context.socket(kind)
    made.linger = 0
    made.rcvtimeo = 20_000
    for name, value in options.items():
        made.setsockopt(getattr(zmq, name), value)
    return made

def bare(server):
    made = socket.create_connection(("127.0.0.1", int(server.last_endpoint.decode().rpartition(":")[2])))
    made.settimeout(20)
    return made

def talk(server, kind=b"PUSH"):
    # Connect, and shake hands.
    made = bare(server)
    made.sendall(GREETING + ready(kind))
    exactly(made, 64)
    read(made)
    return made

def exactly(peer, size):
    octets = b""
    while len(octets) < size:
        octets += peer.recv(size - len(octets)) or b"(the end)"
    return octets

def read(peer):
    flags, size = exactly(peer, 2)
    return exactly(peer, size)

def over(peer):
    # Whether the other side has closed the connection; other bytes are read.
    try:
        while peer.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True

def watch(watched, events):
    watched.monitor("inproc://%d" % id(watched), events)
    monitor = context.socket(zmq.PAIR)
    monitor.connect("inproc://%d" % id(watched))
    return monitor

context = zmq.Context()
"""

NEVER_AGAIN = (
    HEAD
    + """
for value in (-1, 0):
    with socket.create_server(("127.0.0.1", 0)) as listener, make(zmq.PUSH, RECONNECT_IVL=value) as push:
        listener.settimeout(20)
        place = "tcp://127.0.0.1:%d" % listener.getsockname()[1]
        with watch(push, zmq.EVENT_CONNECT_RETRIED | zmq.EVENT_DISCONNECTED) as monitor:
            push.connect(place)
            listener.accept()[0].close()
            print(recv_monitor_message(monitor)["event"].name)
            listener.settimeout(0.2)
            try:
                print(listener.accept())
            except TimeoutError:
                print("not again", monitor.poll(0), push.poll(0, zmq.POLLOUT))
            # The application may.
            listener.settimeout(20)
            push.connect(place)
            listener.accept()[0].close()
            print("again")
            push.disable_monitor()
context.term()
"""
)

WAITS = (
    HEAD
    + """
with socket.create_server(("127.0.0.1", 0)) as listener:
    place = "tcp://127.0.0.1:%d" % listener.getsockname()[1]
for options in ({}, {"RECONNECT_IVL_MAX": 160}):
    with make(zmq.PUSH, RECONNECT_IVL=20, **options) as push:
        with watch(push, zmq.EVENT_CONNECT_RETRIED) as monitor:
            push.connect(place)
            waits = [recv_monitor_message(monitor)["value"] for _ in range(6)]
            # libzmq adds as much as the first wait at random; here up to half of a wait is taken off.
            print(10 <= waits[0] <= 40, max(waits) <= (160 if options else 40), waits[-1] >= (80 if options else 10))
            push.disable_monitor()
context.term()
"""
)

HEARTBEATS = (
    HEAD
    + """
with make(zmq.PULL, HEARTBEAT_IVL=50, HEARTBEAT_TIMEOUT=600, HEARTBEAT_TTL=1500) as pull:
    pull.bind("tcp://127.0.0.1:*")
    with talk(pull) as peer:
        # A peer that answers stays, longer than it might be silent.
        for _ in range(15):
            ping = read(peer)
            peer.sendall(command(b"PONG", ping[7:]))
        print(ping[:5], int.from_bytes(ping[5:7], "big"))
        peer.sendall(b"\\0\\5hello")
        print(pull.recv())
        # One that is silent does not.
        print(over(peer))
with make(zmq.PULL) as pull:
    pull.bind("tcp://127.0.0.1:*")
    with talk(pull) as peer:
        # It is to be given up when it is silent for two tenths of a second.
        peer.sendall(command(b"PING", b"\\0\\2context"))
        print(read(peer), over(peer))
    with talk(pull) as peer:
        # No PING without HEARTBEAT_IVL.
        peer.settimeout(0.3)
        try:
            print(peer.recv(100))
        except TimeoutError:
            print("quiet")
context.term()
"""
)

MUTE = (
    HEAD
    + """
with make(zmq.PULL, HANDSHAKE_IVL=400) as pull, make(zmq.PUSH, HANDSHAKE_IVL=400, RECONNECT_IVL=10) as push:
    pull.bind("tcp://127.0.0.1:*")
    with bare(pull) as peer:
        print(over(peer))
    with bare(pull) as peer:
        # It begins, and says nothing more.
        peer.sendall(GREETING)
        print(over(peer))
    with talk(pull) as peer:
        # Who has shaken hands may be silent.
        peer.settimeout(0.6)
        try:
            print(peer.recv(100))
        except TimeoutError:
            peer.sendall(b"\\0\\5hello")
            print(pull.recv())
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        push.connect("tcp://127.0.0.1:%d" % listener.getsockname()[1])
        for _ in range(2):
            with listener.accept()[0] as peer:
                peer.settimeout(20)
                print(over(peer))
context.term()
"""
)

SIZES = (
    HEAD
    + """
with make(zmq.PULL, MAXMSGSIZE=100) as pull:
    pull.bind("tcp://127.0.0.1:*")
    for size in (100, 101):
        with talk(pull) as peer:
            peer.sendall(bytes([0, size]) + b"x" * size)
            print(size, len(pull.recv()) if size == 100 else over(peer))
    with talk(pull) as peer:
        peer.sendall(b"\\2" + (1 << 40).to_bytes(8, "big") + b"x")
        print(over(peer), pull.poll(0))
    with talk(pull) as peer:
        peer.sendall(bytes([1, 80]) + b"a" * 80 + bytes([0, 80]) + b"b" * 80)
        print([len(part) for part in pull.recv_multipart()])
with make(zmq.PULL, MAXMSGSIZE=-1) as pull, make(zmq.PUSH, MAXMSGSIZE=100) as push:
    pull.bind("tcp://127.0.0.1:*")
    push.connect(pull.last_endpoint)
    # It is for what comes.
    push.send(b"x" * 1_000_000)
    print(len(pull.recv()))
context.term()
"""
)


def test_a_connection_is_not_made_again(ours: bool) -> None:
    """RECONNECT_IVL of -1, and in libzmq also of 0."""
    assert run(NEVER_AGAIN, ours=ours) == ["DISCONNECTED", "not again 0 0", "again"] * 2


def test_waits_between_attempts_grow_only_with_a_maximum(ours: bool) -> None:
    """RECONNECT_IVL and RECONNECT_IVL_MAX."""
    assert run(WAITS, ours=ours) == ["True True True"] * 2


def test_silent_peers_are_given_up(ours: bool) -> None:
    """HEARTBEAT_IVL, HEARTBEAT_TIMEOUT and HEARTBEAT_TTL."""
    assert run(HEARTBEATS, ours=ours) == [
        *("b'\\x04PING' 15", "b'hello'", "True"),
        *("b'\\x04PONGcontext' True", "quiet"),
    ]


def test_peers_that_do_not_shake_hands_are_given_up(ours: bool) -> None:
    """HANDSHAKE_IVL."""
    assert run(MUTE, ours=ours) == ["True", "True", "b'hello'", "True", "True"]


def test_messages_that_are_too_large_end_their_connection(ours: bool) -> None:
    """MAXMSGSIZE, which is for each part."""
    assert run(SIZES, ours=ours) == [
        "100 100",
        "101 True",
        "True 0",
        "[80, 80]",
        "1000000",
    ]
