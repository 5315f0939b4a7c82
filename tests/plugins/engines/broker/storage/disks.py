"""Disks of a test's own: in memory, with a loss of power, with a limit, with faults."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

from kernel.contracts.message import Buffer
from plugins.engines.broker.storage.writer import Work

_RESERVED = bytes(1000)


class MemoryDisk:
    """Files as the operating system has them, and as they would be after a loss of power."""

    def __init__(self) -> None:
        self.reserved: set[str] = set()
        """Files with zeros behind what was written, for whoever looks later."""
        self.contents: dict[str, bytearray] = {}
        self.synced: dict[str, bytes] = {}
        self.named: set[str] = set()
        """What a loss of power leaves: octets, and names."""
        self.capacity: int | None = None
        self.fail: Callable[[str], OSError | None] = lambda _: None
        """Asked with ``write``, ``sync``, ``read`` ...; what it returns is raised."""
        self.syncs = 0

    # What a store asks

    def names(self) -> list[str]:
        return sorted(self.contents)

    def size(self, name: str) -> int:
        return len(self.contents[name])

    def create(self, name: str) -> _Appended:
        self.check("create")
        self.contents[name] = bytearray()
        self.reserved.add(name)
        return _Appended(self, name)

    def read(self, name: str, offset: int, length: int) -> bytes:
        self.check("read")
        return bytes(self.contents[name][offset : offset + length])

    def will_read(self, name: str, offset: int, length: int) -> None:
        assert name in self.contents

    def end_reading(self, name: str) -> None:
        assert name in self.contents

    def truncate(self, name: str, size: int) -> None:
        self.check("truncate")
        del self.contents[name][size:]
        self.synced[name] = bytes(self.contents[name])

    def remove(self, name: str) -> None:
        self.check("remove")
        self.contents.pop(name, None)
        self.synced.pop(name, None)
        self.named.discard(name)

    def set_aside(self, name: str) -> None:
        self.contents[f"{name}.unreadable"] = self.contents.pop(name)

    def replace(self, name: str, data: bytes) -> None:
        self.contents[name] = bytearray(data)
        self.synced[name] = data
        self.named.add(name)

    def sync_directory(self) -> None:
        self.check("sync_directory")
        self.named = set(self.contents)

    def close(self) -> None:
        pass

    # What a test does

    def check(self, operation: str) -> None:
        error = self.fail(operation)
        if error is not None:
            raise error

    def used(self) -> int:
        return sum(map(len, self.contents.values()))

    def after_kill(self) -> MemoryDisk:
        """The process was killed: the operating system has all that was written."""
        disk = MemoryDisk()
        disk.contents = {name: bytearray(octets) for name, octets in self.contents.items()}
        return self._left(disk)

    def after_power_loss(self, random: Random) -> MemoryDisk:
        """Of what was not synced any prefix may be there, with any of its blocks missing."""
        disk = MemoryDisk()
        for name in sorted(self.named):
            octets, safe = self.contents[name], self.synced.get(name, b"")
            stored = bytearray(octets[: random.randint(len(safe), max(len(safe), len(octets)))])
            for block in range(len(safe), len(stored), 64):
                if random.random() < 0.3:
                    stored[block : block + 64] = bytes(len(stored[block : block + 64]))
            disk.contents[name] = stored
        return self._left(disk)

    def _left(self, disk: MemoryDisk) -> MemoryDisk:
        """Return the disk that is left of this one, whose octets are all safe."""
        for name in self.reserved & set(disk.contents):
            disk.contents[name] += _RESERVED
        disk.synced = {name: bytes(octets) for name, octets in disk.contents.items()}
        disk.named = set(disk.contents)
        return disk


def failing(what: str, times: int) -> Callable[[str], OSError | None]:
    """Return what has the next so many operations of a kind fail."""
    left = [times]

    def fail(operation: str) -> OSError | None:
        if operation != what or not left[0]:
            return None
        left[0] -= 1
        return OSError(errno.EIO, "Input/output error")

    return fail


class _Appended:
    def __init__(self, disk: MemoryDisk, name: str) -> None:
        self._disk = disk
        self._name = name

    def write(self, octets: Buffer) -> None:
        self._disk.check("write")
        capacity = self._disk.capacity
        room = len(octets) if capacity is None else max(0, capacity - self._disk.used())
        self._disk.contents[self._name] += octets[:room]
        if room < len(octets):
            raise OSError(errno.ENOSPC, "No space left on device")

    def sync(self) -> None:
        self._disk.check("sync")
        self._disk.syncs += 1
        self._disk.synced[self._name] = bytes(self._disk.contents[self._name])

    def end(self) -> None:
        self._disk.reserved.discard(self._name)

    def close(self) -> None:
        self.end()


class StepWriter:
    """A writer without a thread: work is done when the test says so, or at once."""

    def __init__(self, *, at_once: bool = True) -> None:
        self.at_once = at_once
        self.work: list[Work] = []
        self.delays: list[float] = []

    def submit(self, work: Work, delay: float = 0.0) -> None:
        self.work.append(work)
        self.delays.append(delay)
        if self.at_once and not delay:
            self.step()

    def step(self) -> bool:
        """Do one piece of work; return whether there was one."""
        if not self.work:
            return False
        done = self.work.pop(0)()
        done()
        return True

    def wait(self) -> None:
        while self.step():
            pass

    def close(self) -> None:
        self.wait()
