"""The bytes of a control wire, whatever they are cut into, and the descriptors that come with them."""

from __future__ import annotations

import os
import re
import socket
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from kernel.threads import control_wire
from kernel.threads.control_wire import ControlWire

# Each message with its bytes: four of length, and msgpack (github.com/msgpack/msgpack/blob/master/spec.md).
TO_PROCESS = (
    (["close", 0.0], b"\0\0\0\x10\x92\xa5close\xcb\0\0\0\0\0\0\0\0"),
    (["socket", "a -> b", 7], b"\0\0\0\x10\x93\xa6socket\xa6a -> b\x07"),
    (
        ["link", "a -> b", "b", "process p", "client"],
        b"\0\0\0\x20\x95\xa4link\xa6a -> b\xa1b\xa9process p\xa6client",
    ),
    (
        ["operate", 300, "e", "what", {"secret": b"\xff\0"}],
        b"\0\0\0\x1f\x95\xa7operate\xcd\x01\x2c\xa1e\xa4what\x81\xa6secret\xc4\x02\xff\0",
    ),
)
FROM_PROCESS = (
    (["up"], b"\0\0\0\x04\x91\xa2up"),
    (["lost", "a -> b", 0], b"\0\0\0\x0e\x93\xa4lost\xa6a -> b\x00"),
    (
        ["answer", 1, None, ["KernelError", "no"]],
        b"\0\0\0\x1a\x94\xa6answer\x01\xc0\x92\xabKernelError\xa2no",
    ),
    (["log", {"levelno": -1}], b"\0\0\0\x0f\x92\xa3log\x81\xa7levelno\xff"),
)


class Rig:
    """A wire, and the bare socket at its other end."""

    def __init__(self, *, descriptors: bool = True) -> None:
        ours, self.other = socket.socketpair()
        self.other.settimeout(60)
        self.wire = ControlWire(ours, descriptors=descriptors)

    def __enter__(self) -> Rig:
        return self

    def __exit__(self, *_: object) -> None:
        self.wire.close()
        self.other.close()

    def turn(self) -> list[list[Any]]:
        messages = self.wire.turn(60)
        assert messages is not None
        return messages


@pytest.fixture
def rig() -> Iterator[Rig]:
    with Rig() as made:
        yield made


def test_messages_are_these_bytes_in_both_directions(rig: Rig) -> None:
    golden = TO_PROCESS + FROM_PROCESS
    for message, _ in golden:
        rig.wire.send(*message)
    rig.wire.flush(60)
    assert rig.other.recv(65536) == b"".join(encoded for _, encoded in golden)
    rig.other.sendall(b"".join(encoded for _, encoded in golden))
    assert rig.turn() == [message for message, _ in golden]


def test_what_has_no_plain_type_is_sent_as_the_plain_data_that_it_has(rig: Rig) -> None:
    rig.wire.send("answer", {1}, range(2), KernelError("why"))
    rig.wire.flush(60)
    assert rig.other.recv(65536)[4:] == b"\x94\xa6answer\x91\x01\x92\0\x01\xa3why"


def test_messages_come_whole_however_their_bytes_are_cut(rig: Rig) -> None:
    golden = TO_PROCESS + FROM_PROCESS
    stream = b"".join(encoded for _, encoded in golden)
    expected = [message for message, _ in golden]
    for seed in range(20):
        random = Random(seed)
        got: list[list[Any]] = []
        left = stream
        while left:
            size = 1 if seed == 0 else random.randrange(1, 40)
            rig.other.sendall(left[:size])
            left = left[size:]
            got += rig.turn()
        assert got == expected


def _joined() -> tuple[ControlWire, ControlWire]:
    ours, theirs = socket.socketpair()
    return ControlWire(ours, descriptors=True), ControlWire(theirs, descriptors=True)


def test_messages_larger_than_the_socket_go_out_in_parts_with_their_descriptors(tmp_path: Path) -> None:
    large = Random(1).randbytes(1 << 20)
    names = [tempfile.mkstemp(dir=tmp_path)[0] for _ in range(3)]
    files = [os.fstat(each).st_ino for each in names]
    here, there = _joined()
    with closing(here), closing(there):
        for number, each in enumerate(names):
            here.send("file", number, large, descriptor=each)
            here.send("none", number)
        got: list[list[Any]] = []
        claimed = []
        while len(got) < 6:
            here.turn(0)
            for message in there.turn(0) or []:
                got.append(message)
                if message[0] == "file":
                    assert message[2] == large
                    claimed.append(there.claim())
        assert [message[:2] for message in got] == [[what, n] for n in range(3) for what in ("file", "none")]
        assert [os.fstat(each).st_ino for each in claimed] == files
        assert not any(os.get_inheritable(each) for each in claimed)
        for each in claimed:
            os.close(each)


def test_a_wire_closes_what_is_neither_sent_nor_claimed() -> None:
    reading, writing = os.pipe()
    here, there = _joined()
    with closing(here), closing(there), open(reading, "rb") as pipe:
        here.send("sent", descriptor=os.dup(writing))
        here.turn(0)
        assert there.turn(0) == [["sent"]]
        here.send("not sent", descriptor=os.dup(writing))
        here.close()
        here.send("too late", descriptor=writing)
        assert there.turn(60) is None
        there.close()
        # The end comes when nobody has the writing side any more.
        assert pipe.read() == b""


def test_descriptors_from_a_process_are_not_received() -> None:
    reading, writing = os.pipe()
    with Rig(descriptors=False) as rig, open(reading, "rb") as pipe:
        socket.send_fds(rig.other, [b"\0\0\0\x04\x91\xa2up"], [writing])
        os.close(writing)
        assert rig.turn() == [["up"]]
        assert pipe.read() == b""


def test_the_end_of_the_other_side_is_the_end_of_the_wire(rig: Rig) -> None:
    rig.other.sendall(b"\0\0\0\x04\x91\xa2up\0\0")
    rig.wire.put_back([["back"]])
    rig.other.shutdown(socket.SHUT_WR)
    assert rig.turn() == [["back"]]
    assert rig.turn() == [["up"]]
    assert rig.wire.turn(60) is None


HOSTILE = (
    (b"\x40\0\0\x01", "a message of 1073741825 bytes; 1073741824 are allowed"),
    (b"\xff\xff\xff\xff", "a message of 4294967295 bytes"),
    (b"\0\0\0\0", "truncated"),
    (b"\0\0\0\x01\x90", "a message without a name"),
    (b"\0\0\0\x01\x07", "Expected `array`, got `int`"),
    (b"\0\0\0\x01\xc1", "malformed"),
    (b"\0\0\0\x02\x90\x90", "trailing characters"),
    (b"\0\0\0\x04\x91\xa2\xff\xff", "UTF-8|utf-8"),
    (b"\0\1\0\0" + b"\x91" * 65536, "recursion|Stack overflow"),
    (b"\0\0\0\x05\xdd\xff\xff\xff\xff", "truncated"),
)


def test_what_is_no_message_is_an_error() -> None:
    for hostile, says in HOSTILE:
        with Rig() as rig:
            rig.other.sendall(hostile)
            # Releases of msgspec and of Python say it differently.
            words = "|".join(map(re.escape, says.split("|")))
            with pytest.raises(KernelError, match=f"control wire: .*({words})"):
                rig.turn()


def test_a_message_that_the_other_side_would_not_take_is_not_sent(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control_wire, "LARGEST", 100)
    with pytest.raises(ValueError, match="a message of 10[0-9] bytes; 100 are allowed"):
        rig.wire.send("what", bytes(100))


def test_a_wire_that_is_closed_while_another_thread_sends_keeps_its_bell_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """That thread would write into whatever file has the number of the bell by then."""
    with Rig() as rig:
        bell = rig.wire._bell
        ring, kept, closing = bell.ring, [], threading.Thread(target=rig.wire.close)

        def slowly() -> None:
            closing.start()
            # Where nothing held it up, it would be through by now.
            for _ in range(2000):
                os.sched_yield()
            kept.append(bell.fileno() != -1)
            ring()

        with monkeypatch.context() as patched:
            patched.setattr(rig.wire, "_bell", SimpleNamespace(ring=slowly, close=bell.close))
            rig.wire.send("up")
            closing.join()
        assert kept == [True]
        assert bell.fileno() == -1
