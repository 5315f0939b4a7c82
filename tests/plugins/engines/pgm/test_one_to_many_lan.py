"""Kind ``one-to-many`` between programs on a network: 1, 2, 3 receivers, one killed, one with losses, back to one."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from tests.lan import INTERFACE, Lan

pytestmark = [pytest.mark.peer("namespaces"), pytest.mark.peer("nft"), pytest.mark.slow]

PEER = "tests.plugins.engines.pgm.one_to_many_peer"
GROUP, UDP_PORT, TCP_PORT = "239.192.1.3", 5557, 5558
ADDRESS = f"switchover+tcp://{Lan.address(0)}:{TCP_PORT}"
SOME = 3000


@pytest.fixture
def network() -> Iterator[Lan]:
    """Four members: the first sends; the second loses each tenth packet of data that comes by multicast."""
    with Lan(4) as made:
        made.lose(1, 10.0, UDP_PORT)
        yield made


class _Sender:
    def __init__(self, network: Lan) -> None:
        group = f"epgm://{INTERFACE};{GROUP}:{UDP_PORT}"
        self._program = network.python(0, PEER, "publish", ADDRESS, group)
        self._sent = 0
        self.until("ready")

    def until(self, *events: str) -> str:
        """Read what the engine tells up to the last of some events, in whatever order; return what was read."""
        assert self._program.stdout is not None
        missing, read = set(events), ""
        while missing:
            line = self._program.stdout.readline()
            assert line, f"no {missing}"
            missing -= {each for each in missing if line.startswith(each)}
            read += line
        return read

    def send(self, count: int) -> list[str]:
        assert self._program.stdin is not None
        self._program.stdin.write(f"{count}\n")
        self._program.stdin.flush()
        self._sent += count
        return [f"{number:06d}" for number in range(self._sent - count, self._sent)]


def _receiver(network: Lan, member: int) -> subprocess.Popen[str]:
    program = network.python(member, PEER, "subscribe", ADDRESS)
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def _got(program: subprocess.Popen[str], count: int) -> list[str]:
    assert program.stdout is not None
    return [program.stdout.readline().rstrip("\n") for _ in range(count)]


def test_from_one_receiver_to_three_and_back_with_losses_and_a_killed_one(network: Lan) -> None:
    sender = _Sender(network)
    first = _receiver(network, 1)
    sender.until("connected")
    alone = sender.send(SOME)
    second = _receiver(network, 2)
    sender.until("connected")
    both = sender.send(SOME)
    third = _receiver(network, 3)
    sender.until("connected")
    changing = sender.send(SOME)  # this may go either way
    assert "to multicast" in sender.until("switched")
    by_multicast = sender.send(SOME)
    third_has = _got(third, 2 * SOME)
    assert third_has == changing + by_multicast
    third.kill()
    after_the_kill = sender.send(SOME)
    assert "to TCP" in sender.until("switched")
    assert _got(second, 4 * SOME) == both + changing + by_multicast + after_the_kill
    second.kill()
    sender.until("disconnected")
    alone_again = sender.send(SOME)
    everything = alone + both + changing + by_multicast + after_the_kill + alone_again
    assert _got(first, len(everything)) == everything


def test_a_receiver_that_is_no_longer_reached_is_given_up(network: Lan) -> None:
    """Its cable is pulled: nobody closes the connection."""
    sender = _Sender(network)
    receivers = []
    for member in (1, 2, 3):
        receivers.append(_receiver(network, member))
        sender.until("connected")
    sender.until("switched to multicast")
    sent = sender.send(SOME)
    network.unplug(3)
    told = sender.until(
        "disconnected", "switched to TCP"
    )  # it may have fallen back to TCP before it is given up
    assert "timed out" in told
    sent += sender.send(SOME)
    for receiver in receivers[:2]:
        assert _got(receiver, len(sent)) == sent


def test_a_connection_that_is_cut_goes_on_where_it_was(network: Lan) -> None:
    """The TCP connection is reset under way; multicast goes on; nothing is lost or doubled."""
    sender = _Sender(network)
    receivers = []
    for member in (1, 2, 3):
        receivers.append(_receiver(network, member))
        sender.until("connected")
    sender.until("switched to multicast")
    sent = sender.send(SOME)
    command = ["ip", "netns", "exec", network.members[1], "ss", "-K", "dst", Lan.address(0)]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode or b"ESTAB" not in done.stdout:
        pytest.skip("this system cannot cut a connection (ss -K)")
    sent += sender.send(SOME)
    sender.until("connected continues with unit")
    sent += sender.send(SOME)
    for receiver in receivers:
        assert _got(receiver, len(sent)) == sent
