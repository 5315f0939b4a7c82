"""What the host of the system's sockets does when the system has no more of them."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from plugins.engines.sctp.system import sockets
from plugins.engines.sctp.system.host import ACCEPT_RETRY, SystemHost
from tests.plugins.engines.sctp.system.test_sockets import Strange, options


class Full(Strange):
    """One that has somebody to accept, and no descriptor for him."""

    def fileno(self) -> int:
        return 9

    def listen(self, backlog: int) -> None:
        self.accepted = 0

    def accept(self) -> Any:
        self.accepted += 1
        raise OSError(errno.EMFILE, "Too many open files")


class Thread:
    """What a host uses of the thread that it lives in."""

    def __init__(self) -> None:
        self.poller = self
        self.watched: dict[int, Callable[[], None] | None] = {}
        self.timers: dict[object, tuple[float | None, Callable[[], None]]] = {}

    def now(self) -> float:
        return 100.0

    def watch(self, fd: int, *, readable: Callable[[], None] | None, writable: None) -> None:
        self.watched[fd] = readable

    def set_timer(self, when: float | None, callback: Callable[[], None], key: object) -> None:
        self.timers[key] = when, callback


def test_who_cannot_be_accepted_is_looked_at_again_a_moment_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets.socket, "socket", Full)
    monkeypatch.setattr(Strange, "made", [])
    thread = Thread()
    host = SystemHost(thread, "net", options(), print, hosts=["127.0.0.1"], port=0, udp_port=None)
    readable = thread.watched[9]
    assert readable is not None
    readable()
    assert thread.watched[9] is None
    when, again = thread.timers[host]
    assert when == 100.0 + ACCEPT_RETRY
    again()
    assert thread.watched[9] is not None
    host.close()
    assert thread.watched[9] is None
    assert thread.timers[host][0] is None
