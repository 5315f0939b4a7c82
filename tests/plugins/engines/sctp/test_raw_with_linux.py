"""Over IP itself (protocol 132), with the kernel of Linux at the other end: a guest in QEMU that has the second place on two links.

Nobody else there answers packets of SCTP: our own system has none, or its packets are those of another namespace.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from tests.lan import Lan
from tests.plugins.engines.sctp.echoing import FEEDS
from tests.plugins.engines.sctp.plans import QUICK, RECONNECT
from tests.plugins.engines.sctp.test_paths import HERE, PROGRAM, THERE, until
from tests.plugins.protocols.sctp.linux import guest
from tests.plugins.protocols.sctp.linux.guest import ABORT, CLOSE, DIAL, PORT, Console

pytestmark = [
    pytest.mark.peer("qemu-sctp"),
    pytest.mark.peer("namespaces"),
    pytest.mark.slow,
    pytest.mark.timeout(600),  # the first test waits for the guest
    pytest.mark.xdist_group("qemu-sctp"),
]

LINKS = {"e0": "t0", "e1": "t1"}
"""Interfaces of the second member's, and the taps that the guest has instead."""
OPTIONS: dict[str, Any] = {
    "transport": "raw",
    "streams": FEEDS,
    "reconnect": RECONNECT,
    "sctp": {
        **QUICK,
        "rto_initial": 0.3,
        "rto_min": 0.25,  # Linux acknowledges after 0.2 s
        "rto_max": 1.0,
        "path_tries": 2,
        "association_tries": 120,  # of a second each: beside other work an emulated peer may do nothing for long
        "interleaving": False,  # Linux 6.1 numbers the fragments in a way of its own
    },
}
DIALS = f"plain+sctp://{','.join(THERE)}:{PORT}"
LISTENS = f"plain+sctp://{','.join(HERE)}:0"  # any port: one of a program before may not be free yet


class Linux(msgspec.Struct):
    """A guest that returns what it gets, and the network that it is in."""

    lan: Lan
    console: Console

    def dialler(self, role: str, *arguments: str, **options: Any) -> subprocess.Popen[str]:
        """Start a program of ours that dials the guest."""
        own = {**OPTIONS, "mode": "dial", "addresses": HERE, **options}
        return self.lan.python(0, PROGRAM, role, DIALS, json.dumps(own), *arguments)

    def listener(self) -> subprocess.Popen[str]:
        """Start one that waits for the guest."""
        return self.lan.python(0, PROGRAM, "exchange", LISTENS, json.dumps(OPTIONS))

    @contextlib.contextmanager
    def losing(self, percent: int) -> Iterator[None]:
        """Lose so many percent of the packets of SCTP, both ways."""
        if not percent:
            yield
            return
        rules = "".join(
            f"""chain {device} {{
                type filter hook ingress device "{device}" priority 0; policy accept;
                ip protocol 132 numgen random mod 100 < {percent} drop
            }}
            """
            for ends in LINKS.items()
            for device in ends
        )
        nft = ["ip", "netns", "exec", self.lan.members[1], "nft"]
        subprocess.run([*nft, "-f", "-"], input=f"table netdev loss {{ {rules} }}\n", text=True, check=True)
        try:
            yield
        finally:
            subprocess.run([*nft, "delete", "table", "netdev", "loss"], check=True)


@pytest.fixture(scope="module")
def booted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Linux]:
    with Lan(2) as lan:
        lan.link(0, 1)
        for interface, tap in LINKS.items():
            lan.give_away(1, interface, tap)
        taps = {tap: f"{address}/24" for tap, address in zip(LINKS.values(), THERE, strict=True)}
        with guest.guest_on_taps(tmp_path_factory.mktemp("guest"), lan.members[1], taps) as console:
            yield Linux(lan, console)


@pytest.fixture
def linux(booted: Linux) -> Iterator[Linux]:
    booted.console.skip()
    yield booted
    booted.lan.end_programs()  # what a failed test leaves would see the packets of the next one


def end(program: subprocess.Popen[str]) -> None:
    """Have a program finish what it does, and go."""
    assert program.stdin is not None
    program.stdin.close()
    assert program.wait() == 0


LOSS = pytest.mark.parametrize("loss", [0, pytest.param(10, marks=pytest.mark.peer("nft"))])


@LOSS
def test_messages_of_all_sizes_come_back(linux: Linux, loss: int) -> None:
    with linux.losing(loss):
        program = linux.dialler("exchange")
        linux.console.until("association up")
        until(program, "returned")
    end(program)
    linux.console.until("association shut down")


@LOSS
def test_linux_begins_the_association(linux: Linux, loss: int) -> None:
    listening = linux.listener()
    port = until(listening, "ready").rpartition(":")[2]
    with linux.losing(loss):
        asking = linux.dialler("say", port, protocol_id=DIAL)
        assert until(listening, "heard") == "heard hello"
        until(listening, "returned")
    for program in (asking, listening):
        end(program)
        linux.console.until("association shut down")


def test_the_flow_goes_on_when_a_path_is_cut_and_returns_when_it_is_restored(linux: Linux) -> None:
    program = linux.dialler("exchange")
    until(program, "returned")
    linux.lan.cut(1)
    assert until(program, down := f"path down {THERE[0]}", "disconnected") == down
    for _ in range(2):
        until(program, "returned")
    linux.lan.cut(1, restore=True)
    assert until(program, up := f"path up {THERE[0]}", "disconnected") == up
    until(program, "returned")
    end(program)
    linux.console.until("association shut down")


def test_a_good_bye_that_comes_to_no_end_is_an_abort(linux: Linux) -> None:
    """The guest cannot return what nobody takes, and so takes nothing more itself: soon, since our window is small."""
    program = linux.dialler("stuff", sctp={**OPTIONS["sctp"], "receive_window": 64 * 1024})
    until(program, "full")
    assert program.wait() == 0
    linux.console.until("association lost")


@pytest.mark.parametrize(
    "word, heard, printed",
    [(ABORT, "aborted by the peer: the reason", "lost"), (CLOSE, "closed by the peer", "shut down")],
    ids=["abort", "shutdown"],
)
def test_linux_ends_the_association(linux: Linux, word: int, heard: str, printed: str) -> None:
    program = linux.dialler("say", "the reason", protocol_id=word)
    assert heard in until(program, "disconnected")
    linux.console.until(f"association {printed}")
    until(program, "connected")  # as a dialler does
    end(program)
