"""Two hosts with two ways to each other, one of which is cut and restored; over UDP, over IP itself, and by the system's SCTP.

Between the system's and ours packets go over UDP: over IP the system, which knows nothing of ours, would abort it.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator

import pytest

from tests.lan import Lan
from tests.plugins.engines.sctp.plans import QUICK, RECONNECT

pytestmark = [pytest.mark.slow, pytest.mark.peer("namespaces")]

PROGRAM = "tests.plugins.engines.sctp.kernel_program"
HERE, THERE = ["198.18.0.1", "198.19.0.1"], ["198.18.0.2", "198.19.0.2"]


@pytest.fixture
def lan() -> Iterator[Lan]:
    with Lan(2) as made:
        made.link(0, 1)
        yield made


def until(program: subprocess.Popen[str], *beginnings: str) -> str:
    """Read lines until one begins as wanted."""
    assert program.stdout is not None
    seen = []
    for line in program.stdout:
        seen.append(line)
        assert not line.startswith(("wrong", "failed")), line
        if line.startswith(beginnings):
            return line.strip()
    raise AssertionError(f"{beginnings} not in {seen}")


def start(lan: Lan, dials: str, listens: str) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    options = {"sctp": {**QUICK, "rto_min": 0.25, "rto_max": 1.0, "path_tries": 2}}
    place = f"backend+sctp://{','.join(THERE)}:5000"
    if dials != listens:
        place += "/9899"
        for member in lan.members:  # Linux 6.1 dies of datagrams that come as one
            for interface in ("e0", "e1"):
                one = ["ip", "-n", member, "link", "set", interface, "gso_max_segs", "1"]
                subprocess.run(one, check=True)
        system = lan.members[0 if dials == "system" else 1]
        command = ["ip", "netns", "exec", system, "sh", "-c", "echo 9899 > /proc/sys/net/sctp/udp_port"]
        subprocess.run(command, check=True)
    here = {"transport": dials, "addresses": HERE, "reconnect": RECONNECT}
    receiver = lan.python(1, PROGRAM, "receive", place, json.dumps({**options, "transport": listens}))
    sender = lan.python(0, PROGRAM, "send", place, json.dumps({**options, **here}))
    until(sender, "connected")
    return sender, receiver


@pytest.mark.parametrize(
    "dials,listens",
    [("udp", "udp"), ("raw", "raw"), ("system", "system"), ("system", "udp"), ("udp", "system")],
)
def test_the_flow_goes_on_when_a_path_is_cut_and_returns_when_it_is_restored(
    lan: Lan, dials: str, listens: str, request: pytest.FixtureRequest
) -> None:
    if "system" in (dials, listens):
        request.getfixturevalue("system")
    sender, receiver = start(lan, dials, listens)
    until(receiver, "received 200")
    lan.cut(1)
    # By its address: on a busy machine the other path, too, may be silent for longer than ``rto_max`` allows.
    assert until(sender, "path down 198.18.0.2", "disconnected") == "path down 198.18.0.2"
    before = int(until(receiver, "received").split()[1])
    until(receiver, f"received {before + 300}")
    lan.cut(1, restore=True)
    assert until(sender, "path up 198.18.0.2", "disconnected") == "path up 198.18.0.2"
    until(receiver, "received")
    subprocess.run(["ip", "-n", lan.members[1], "link", "set", "e1", "down"], check=True)
    assert until(sender, "path down 198.19.0.2", "disconnected") == "path down 198.19.0.2"
    assert sender.stdin is not None
    sender.stdin.close()
    total = int(until(sender, "sent", "disconnected").split()[1])
    assert total > before + 300
