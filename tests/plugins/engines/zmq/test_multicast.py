"""A feed of ØMQ over multicast and back: SUB - engine ``pgm`` - group - engine ``pgm`` - PUB, with pyzmq at both ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernel.testing.fixtures import KernelFactory, kernel_factory
from kernel.topology.plan import EnginePlan
from plugins.engines.zmq.options import ZmqOptions
from tests.interop.until import until
from tests.lan import INTERFACE, Lan
from tests.plans import route
from tests.plugins.engines.pgm.exchange import GROUP, LIBZMQ, PORT, where
from tests.plugins.engines.zmq.test_pyzmq import Sockets, sockets
from tests.ports import free_port

__all__ = ["kernel_factory", "sockets"]

pytestmark = pytest.mark.peer("pyzmq")

SYNC = [b"sync", b""]
MESSAGES: list[list[bytes]] = [
    [b"weather.wien", b"sunny"],
    [b"weather", b"in", b"", b"four parts"],
    [b"", b"behind an empty part"],
    [b"\xff\0", b"behind octets that are no text"],
    [b"k" * 300, b"behind a part that is too long for a key"],
    [b"of one part"],
    [b""],
    [b"large", b"x" * 100_000],
]


def _arrives_in_sync(pub: Any, sub: Any) -> None:
    """Send until something has come all the way: a group and a PUB drop what nobody wants yet."""

    def arrives() -> bool:
        pub.send_multipart(SYNC)
        return bool(sub.poll(20))

    until(arrives)


def _but_sync(sub: Any, count: int) -> list[list[bytes]]:
    got: list[list[bytes]] = []
    while len(got) < count:
        if (message := sub.recv_multipart()) != SYNC:
            got.append(message)
    return got


@pytest.mark.parametrize(
    "keys, key_part", [("part", True), ("none", False)], ids=["with keys", "without keys"]
)
def test_a_feed_goes_through_a_group_unchanged(
    keys: str, key_part: bool, kernel_factory: KernelFactory, sockets: Sockets
) -> None:
    group = {"address": f"zmtp1+epgm://lo;239.192.77.2:{free_port()}", "keys": keys}
    any_port = {"bind": ["tcp://127.0.0.1:0"], "key_part": key_part}
    kernel = kernel_factory(
        EnginePlan(name="feed", kind="zmq", options={"type": "SUB", "subscribe": [""], **any_port}),
        EnginePlan(name="source", kind="pgm", options={"mode": "send", **group}),
        EnginePlan(name="receiver", kind="pgm", options={"mode": "receive", **group}),
        EnginePlan(name="out", kind="zmq", options={"type": "PUB", **any_port}),
        route("feed", "source"),
        route("receiver", "out", router="by-prefix"),
    )
    pub, everything, weather = sockets("PUB"), sockets("SUB"), sockets("SUB")
    for sub, prefixes in ((everything, [""]), (weather, ["sync", "weather", b"\xff"])):
        for prefix in prefixes:
            sub.subscribe(prefix)
        sub.connect(kernel.address_of("out"))
    pub.connect(kernel.address_of("feed"))
    for sub in (everything, weather):
        _arrives_in_sync(pub, sub)
    for message in MESSAGES:
        pub.send_multipart(message)
    assert _but_sync(everything, len(MESSAGES)) == MESSAGES
    wanted = [message for message in MESSAGES if message[0].startswith((b"weather", b"\xff"))]
    assert _but_sync(weather, len(wanted)) == wanted


def test_a_place_that_is_a_group_is_refused_and_the_engine_is_named() -> None:
    with pytest.raises(ValueError, match=r'kind "pgm" with address = "zmtp1\+epgm://lo;239\.192\.1\.1:5555"'):
        ZmqOptions(type="PUB", connect=("epgm://lo;239.192.1.1:5555",))


# ---------------------------------------------------------------------- libzmq at the group


TO_GROUP = """
[engines.feed]
kind = "zmq"
type = "SUB"
bind = ["ipc://{place}"]
subscribe = [""]

[engines.group]
kind = "pgm"
mode = "send"
address = "zmtp1+epgm://{interface};{group}:{port}"
keys = "part"

[[routes]]
from = "feed"
to = "group"
"""

FROM_GROUP = """
[engines.group]
kind = "pgm"
mode = "receive"
address = "zmtp1+epgm://{interface};{group}:{port}"
keys = "part"

[engines.out]
kind = "zmq"
type = "PUB"
bind = ["ipc://{place}"]

[[routes]]
from = "group"
to = "out"
router = "by-prefix"
"""


@pytest.fixture
def network() -> Iterator[Lan]:
    with Lan(3) as made:
        yield made


def _run(network: Lan, member: int, topology: str, folder: Path, name: str) -> str:
    """Have a member run a topology; return the place of its socket, which is of all members and this process."""
    file, place = folder / f"{name}.toml", str(folder / name)
    file.write_text(topology.format(place=place, interface=INTERFACE, group=GROUP, port=PORT))
    program = network.start(member, [sys.executable, "-W", "error", "-m", "kernel", "run", str(file)])
    assert program.stdout is not None
    said: list[str] = []
    while " ready " not in (line := program.stdout.readline()):
        said.append(line)
        assert line, "".join(said)
    return f"ipc://{place}"


def _started(program: subprocess.Popen[str]) -> Any:
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


@pytest.mark.slow
@pytest.mark.peer("namespaces")
@pytest.mark.peer("libzmq with PGM")
def test_libzmq_and_a_pub_elsewhere_receive_what_a_sub_passes_on(
    network: Lan, sockets: Sockets, tmp_path: Path
) -> None:
    feed = _run(network, 0, TO_GROUP, tmp_path, "feed")
    out = _run(network, 2, FROM_GROUP, tmp_path, "out")
    lines = _started(network.python(1, LIBZMQ, "subscribe", where(LIBZMQ, "epgm", 1), 1_000_000)).stdout
    pub, sub = sockets("PUB"), sockets("SUB")
    sub.subscribe("")
    sub.connect(out)
    pub.connect(feed)
    _arrives_in_sync(pub, sub)
    messages = [[b"weather.%d" % (number % 3), b"report %d" % number] for number in range(200)]
    for message in messages:
        pub.send_multipart(message)
    assert _but_sync(sub, len(messages)) == messages
    # libzmq's program prints a line for each part.
    got: list[list[bytes]] = []
    while len(got) < len(messages):
        message = [lines.readline().rstrip("\n").encode() for _ in SYNC]
        if message != SYNC:
            got.append(message)
    assert got == messages


@pytest.mark.slow
@pytest.mark.peer("namespaces")
@pytest.mark.peer("libzmq with PGM")
def test_a_pub_passes_on_what_libzmq_multicasts(network: Lan, sockets: Sockets, tmp_path: Path) -> None:
    out = _run(network, 2, FROM_GROUP, tmp_path, "out")
    sub = sockets("SUB")
    sub.subscribe("")
    sub.connect(out)
    source = _started(network.python(0, LIBZMQ, "publish", where(LIBZMQ, "epgm", 0), 2000, 100, 0.005))
    source.stdin.write("go\n")
    source.stdin.flush()
    got = [sub.recv() for _ in range(100)]
    # A PUB drops what comes before somebody has subscribed.
    first = int(got[0].split()[0])
    assert got == [(b"%06d " % number).ljust(100, b"x") for number in range(first, first + 100)]
