"""The clock by which what is on disk expires goes on when the system's clock is set."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kernel.contracts.message import Buffer
from kernel.hosting.appending import Disk
from plugins.engines.broker.storage.disk_clock import NOTE_PERIOD, RETRY_PERIOD, DiskClock
from tests.plugins.engines.broker.storage.disks import StepWriter

DAY = 86400.0
BEGIN = 1_700_000_000.0


class Machine:
    """A computer that is started again and again; the time of the broker begins anew each time."""

    def __init__(self, path: Path) -> None:
        self.path = path / "clock"
        self.writer = StepWriter()
        self.reports: list[tuple[str, str]] = []
        self.disk: Disk | None = None
        self.time_of_day = BEGIN
        self.now = 0.0

    def start(self, time_of_day: float) -> None:
        self.now, self.time_of_day = 50.0, time_of_day
        self.clock = DiskClock(
            self.path,
            self.writer,
            self.now,
            time_of_day,
            lambda what, detail: self.reports.append((what, detail)),
            self.disk,
        )

    def go_on(self, seconds: float, set_by: float = 0.0) -> None:
        """Let time pass, and set the clock."""
        self.now += seconds
        self.time_of_day += seconds + set_by
        self.clock.look(self.now, self.time_of_day)

    @property
    def shown(self) -> float:
        """What the clock shows, in seconds since the first start."""
        return self.now + self.clock.ahead - BEGIN


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    machine = Machine(tmp_path)
    machine.start(BEGIN)
    return machine


def test_it_is_the_time_of_day_that_nobody_sets(machine: Machine) -> None:
    machine.go_on(10)
    assert machine.shown == 10
    machine.start(BEGIN + DAY)
    assert machine.shown == DAY
    assert not machine.path.exists()
    assert not machine.reports


@pytest.mark.parametrize("set_by", [3600.0, 50 * 365 * DAY])
def test_it_goes_on_when_the_time_of_day_is_set_forward(machine: Machine, set_by: float) -> None:
    machine.go_on(10, set_by)
    assert machine.shown == 10
    assert machine.reports == [
        ("clock set", f"by +{set_by:,.0f} s; what is stored expires as if it had not been set")
    ]
    machine.go_on(10)
    machine.start(machine.time_of_day + DAY)
    assert machine.shown == 20 + DAY
    # It need not be set again for that to be known.
    machine.start(machine.time_of_day + DAY)
    assert machine.shown == 20 + 2 * DAY


def test_it_is_set_forward_and_back(machine: Machine) -> None:
    """For example by hand, by mistake."""
    machine.go_on(10, 365 * DAY)
    machine.go_on(10, -365 * DAY)
    machine.go_on(10)
    assert machine.shown == 30
    assert [what for what, _ in machine.reports] == ["clock set", "clock set"]
    # Nobody can know which of the two was right.  What has passed since the last note does not count.
    machine.start(BEGIN + DAY)
    assert machine.shown == 20
    assert machine.reports[-1] == (
        "clock behind",
        f"the time of day is {364 * DAY + 10:,.0f} s before one that was seen here earlier, so what has passed since "
        "then does not count for what expires",
    )


def test_a_machine_that_starts_with_an_old_time_of_day(machine: Machine) -> None:
    """It has no battery for its clock, and NTP sets that after a minute; each time for a day."""
    old = BEGIN - 30 * 365 * DAY
    machine.start(old)
    first = machine.shown
    for number in range(1, 4):
        machine.start(old)
        # Without the 100 seconds that followed on the last note.
        assert machine.shown == first + 60 * (number - 1)
        machine.go_on(60, BEGIN + number * DAY - machine.time_of_day)
        machine.go_on(100)
        assert machine.shown == first + 60 * number + 100
    # One that starts with the right time knows how long it was away.
    machine.start(machine.time_of_day + DAY)
    assert machine.shown == first + 60 * 3 + 100 + DAY


def test_small_steps_add_up(machine: Machine) -> None:
    machine.go_on(1, 0.6)
    assert not machine.reports
    machine.go_on(1, 0.6)
    assert [what for what, _ in machine.reports] == ["clock set"]
    assert machine.shown == 2


def test_it_is_noted_every_hour(machine: Machine) -> None:
    machine.go_on(NOTE_PERIOD - 1)
    assert not machine.path.exists()
    machine.go_on(1)
    noted = machine.path.read_bytes()
    machine.go_on(NOTE_PERIOD - 1)
    assert machine.path.read_bytes() == noted
    machine.go_on(1)
    machine.start(0.0)
    assert machine.shown == 2 * NOTE_PERIOD


def test_what_is_noted_during_a_write_is_written_behind_it(machine: Machine) -> None:
    machine.writer.at_once = False
    machine.go_on(1, 10)
    machine.go_on(1, 10)
    machine.go_on(1, 10)
    assert len(machine.writer.work) == 1
    machine.writer.step()
    machine.writer.step()
    assert not machine.writer.work
    machine.start(machine.time_of_day)
    assert machine.shown == 3


class FullDisk(Disk):
    full = True

    def write(self, descriptor: int, data: Buffer, position: int) -> None:
        if self.full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super().write(descriptor, data, position)


def test_a_file_that_cannot_be_written_is_written_later(machine: Machine) -> None:
    disk = machine.disk = FullDisk()
    machine.start(BEGIN)
    machine.go_on(1, 10)
    assert machine.reports[1:] == [
        ("clock not written", f"{machine.path}: [Errno 28] No space left on device")
    ]
    machine.go_on(RETRY_PERIOD - 1)
    assert len(machine.reports) == 2
    machine.go_on(1)
    assert len(machine.reports) == 3
    disk.full = False
    machine.go_on(RETRY_PERIOD)
    machine.start(machine.time_of_day)
    assert machine.shown == 1 + 2 * RETRY_PERIOD
    assert len(machine.reports) == 3


@pytest.mark.parametrize("octets", [b"", b"{", b"[]", b'{"time": "x"}', b"\x00" * 40, b'{"time": 1}'])
def test_a_file_that_cannot_be_read_is_reported(machine: Machine, octets: bytes) -> None:
    machine.path.write_bytes(octets)
    machine.start(BEGIN + 10)
    assert machine.shown == 10
    ((what, detail),) = machine.reports
    assert what == "clock unread"
    assert str(machine.path) in detail
