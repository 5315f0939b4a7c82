"""What an event loop watches beside a bell, while one of its tasks has a lease."""

from __future__ import annotations

import os
import select
import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest

from kernel.contracts.api import Lease
from kernel.hosting.leased_socket import LeasedSocket
from tests.system.test_forking import in_a_child
from tests.systems import lends

pytestmark = lends


class SomeLease:
    """As far as it is looked at."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.active = True


class Watched:
    """A socket of a lease, its peer, and what an event loop watches."""

    def __init__(self) -> None:
        self.socket, self.peer = socket.socketpair()
        self.lease = SomeLease(self.socket.fileno())
        self.leased = LeasedSocket()
        self.leased.watch(cast("Lease", self.lease))

    @property
    def readable(self) -> bool:
        return is_readable(self.leased)

    def close(self) -> None:
        self.leased.close()
        self.socket.close()
        self.peer.close()


def is_readable(leased: LeasedSocket) -> bool:
    return bool(select.select([leased.descriptor], [], [], 0)[0])


@pytest.fixture
def watched() -> Iterator[Watched]:
    watched = Watched()
    yield watched
    watched.close()


def test_it_is_readable_once_for_what_has_come(watched: Watched) -> None:
    assert not watched.readable
    for _ in range(3):
        watched.peer.send(b"something")
        assert watched.readable
        watched.leased.take_notice()
        assert not watched.readable, "until more comes, though nobody has read"


def test_what_has_come_before_is_seen() -> None:
    one, other = socket.socketpair()
    with one, other:
        other.send(b"something")
        leased = LeasedSocket()
        leased.watch(cast("Lease", SomeLease(one.fileno())))
        assert is_readable(leased)
        leased.close()


def test_a_lease_that_is_over_is_not_watched(watched: Watched) -> None:
    watched.lease.active = False
    watched.leased.take_notice()
    watched.peer.send(b"something")
    assert not watched.readable


def test_a_socket_that_is_gone_is_not_watched(watched: Watched) -> None:
    gone, other = socket.socketpair()
    lease = SomeLease(gone.fileno())
    gone.close()
    other.close()
    watched.leased.watch(cast("Lease", lease))
    watched.peer.send(b"something")
    assert not watched.readable


def test_a_bell_is_watched_as_long_as_it_is_readable() -> None:
    reading, writing = os.pipe()
    leased = LeasedSocket(reading)
    assert not is_readable(leased)
    os.write(writing, b"1")
    for _ in range(3):
        leased.take_notice()
        assert is_readable(leased)
    os.read(reading, 1)
    assert not is_readable(leased)
    leased.close()
    os.close(reading)
    os.close(writing)


def test_a_child_that_was_forked_takes_nothing_from_its_parent(watched: Watched) -> None:
    def child() -> Any:
        watched.lease.active = False
        watched.leased.take_notice()
        watched.leased.watch(None)
        watched.leased.close()
        return "done"

    watched.peer.send(b"something")
    assert in_a_child(child) == "done"
    assert watched.readable
    watched.leased.take_notice()
    watched.peer.send(b"more")
    assert watched.readable
