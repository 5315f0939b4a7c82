"""A network of its own for tests with real peers: namespaces around a bridge, made and removed by the test.  Takes root.

Every member has one interface ``e0``, with addresses 198.18.0.N and fd00:18::N, N counted from 1, and hears all multicast.
"""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

ROOT = Path(__file__).parents[1]
INTERFACE = "e0"
_numbers = itertools.count()

PGM_DATA = "{ 4, 5 }"
"""Packet types of PGM: ODATA and RDATA."""


def possible() -> bool:
    """Whether namespaces can be made here."""
    if os.geteuid() != 0:
        return False
    try:
        done = subprocess.run(
            ["ip", "netns", "add", f"kernel-{os.getpid()}-try"], capture_output=True, check=False
        )
    except FileNotFoundError:
        return False
    if done.returncode == 0:
        _ip("netns", "del", f"kernel-{os.getpid()}-try")
    return done.returncode == 0


class Lan:
    """``count`` members."""

    def __init__(self, count: int) -> None:
        self._prefix = f"kernel-{os.getpid()}-{next(_numbers)}"
        self._hub = f"{self._prefix}-hub"
        self._programs: list[subprocess.Popen[str]] = []
        self.members = [f"{self._prefix}-{number}" for number in range(1, count + 1)]

    def __enter__(self) -> Lan:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Kill what was started, and remove the network."""
        self.end_programs()
        for name in (*self.members, self._hub):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def end_programs(self) -> None:
        """Kill what was started and still runs."""
        for program in self._programs:
            program.kill()
            program.wait()
            for stream in (program.stdin, program.stdout):
                if stream is not None and not stream.closed:
                    stream.close()
        self._programs.clear()

    @staticmethod
    def address(member: int) -> str:
        """The IPv4 address of a member, counted from 0."""
        return f"198.18.0.{member + 1}"

    def start(self, member: int, command: Sequence[str], **environment: str) -> subprocess.Popen[str]:
        """Start a program of a member's; its output can be read line by line."""
        program = subprocess.Popen(
            ["ip", "netns", "exec", self.members[member], *command],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, **environment},
        )
        self._programs.append(program)
        return program

    def python(self, member: int, module: str, *arguments: Any, **environment: str) -> subprocess.Popen[str]:
        """Start a module of ours with this interpreter."""
        return self.start(member, [sys.executable, "-m", module, *map(str, arguments)], **environment)

    def lose(self, member: int, percent: float, port: int, *, every: bool = False) -> None:
        """Have a member lose so many percent of the packets of PGM data that come for a port, or over IP itself.

        By chance, or with ``every`` each so many-th.
        """
        of = round(100 / percent)
        chance = f"numgen random mod 1000 < {round(percent * 10)}"
        which = f"numgen inc mod {of} == {of // 2}" if every else chance
        rules = f"""table netdev loss {{
            chain incoming {{
                type filter hook ingress device "{INTERFACE}" priority 0; policy accept;
                udp dport {port} @th,96,8 {PGM_DATA} {which} drop
                ip protocol 113 @th,32,8 {PGM_DATA} {which} drop
            }}
        }}
        """
        command = ["ip", "netns", "exec", self.members[member], "nft", "-f", "-"]
        subprocess.run(command, input=rules, text=True, check=True)

    def link(self, one: int, other: int) -> None:
        """Give two members a second way to each other: interfaces ``e1``, addresses 198.19.0.N."""
        ends = [(self.members[member], member + 1) for member in (one, other)]
        names = [part for name, _ in ends for part in ("netns", name)]
        _ip("link", "add", "e1", *names[:2], "type", "veth", "peer", "e1", *names[2:])
        for name, number in ends:
            _ip("-n", name, "address", "add", f"198.19.0.{number}/24", "dev", "e1")
            _ip("-n", name, "link", "set", "e1", "up")

    def give_away(self, member: int, interface: str, tap: str) -> None:
        """Have a machine behind a tap device, which is made, take a member's place on a link: its addresses are free now."""
        name, bridge = self.members[member], f"to-{tap}"
        _ip("-n", name, "tuntap", "add", tap, "mode", "tap")
        _ip("-n", name, "link", "add", bridge, "type", "bridge", "mcast_snooping", "0")
        _ip("-n", name, "address", "flush", "dev", interface)
        for part in (interface, tap):
            _ip("-n", name, "link", "set", part, "master", bridge)
        for part in (tap, bridge):
            _ip("-n", name, "link", "set", part, "up")

    def cut(self, member: int, *, restore: bool = False) -> None:
        """Pull the plug of a member's ``e0``, or put it back."""
        _ip("-n", self._hub, "link", "set", f"leg{member + 1}", "up" if restore else "down")

    def unplug(self, member: int) -> None:
        """Pull a member's cable."""
        _ip("-n", self._hub, "link", "set", f"leg{member + 1}", "down")

    def _build(self) -> None:
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "br0", "type", "bridge", "mcast_snooping", "0")
        _ip("-n", self._hub, "link", "set", "br0", "up")
        for number, name in enumerate(self.members, 1):
            _ip("netns", "add", name)
            _ip(
                "link",
                "add",
                INTERFACE,
                "netns",
                name,
                "type",
                "veth",
                "peer",
                f"leg{number}",
                "netns",
                self._hub,
            )
            _ip("-n", name, "link", "set", "lo", "up")
            _ip("-n", name, "link", "set", INTERFACE, "up")
            _ip("-n", name, "address", "add", f"198.18.0.{number}/24", "dev", INTERFACE)
            _ip("-n", name, "address", "add", f"fd00:18::{number}/64", "dev", INTERFACE, "nodad")
            _ip("-n", name, "route", "add", "224.0.0.0/4", "dev", INTERFACE)
            _ip("-n", self._hub, "link", "set", f"leg{number}", "master", "br0")
            _ip("-n", self._hub, "link", "set", f"leg{number}", "up")


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")
