"""One publishes, others subscribe, each on a member of a network: programs of ours and of our peers, all used alike."""

from __future__ import annotations

import subprocess

from tests.lan import INTERFACE, Lan

GROUP, PORT = "239.192.1.1", 5555
KERNEL = "tests.plugins.engines.pgm.kernel_peer"
LIBZMQ = "tests.plugins.engines.pgm.libzmq_peer"
OPENPGM = "tests.plugins.engines.pgm.openpgm_peer"


def where(peer: str, transport: str, member: int) -> str:
    """An address, as each of them writes it."""
    if peer == KERNEL:
        return f"zmtp1+{transport}://{INTERFACE};{GROUP}:{PORT}"
    return f"{transport}://{Lan.address(member)};{GROUP}:{PORT}"  # OpenPGM asks a name server for names


def ready(program: subprocess.Popen[str]) -> subprocess.Popen[str]:
    """Wait until it is."""
    assert program.stdout is not None
    assert program.stdout.readline() == "ready\n"
    return program


def messages(program: subprocess.Popen[str], count: int) -> list[str]:
    """Read what it has received."""
    assert program.stdout is not None
    return [program.stdout.readline().rstrip("\n") for _ in range(count)]


def exchange(
    network: Lan,
    publisher: str,
    subscribers: list[str],
    transport: str,
    count: int,
    size: int,
    between: float,
) -> None:
    """Have all that the first member publishes arrive at the others, in order, once."""
    listening = [
        ready(network.python(at, peer, "subscribe", where(peer, transport, at), count))
        for at, peer in enumerate(subscribers, 1)
    ]
    source = ready(
        network.python(0, publisher, "publish", where(publisher, transport, 0), count, size, between)
    )
    assert source.stdin is not None
    source.stdin.write("go\n")
    source.stdin.flush()
    sent = [f"{number:06d} ".ljust(size, "x") for number in range(count)]
    for program in listening:
        assert messages(program, count) == sent
    source.stdin.write("enough\n")
    source.stdin.close()
    assert source.wait(60) == 0
