"""Two link ends and their sockets; the test gives the sockets, as the border does."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

import pytest

from kernel.contracts.engine import EngineEvent
from kernel.hosting import link
from kernel.hosting.link import LinkEnd, LinkEngine
from kernel.plugins import PluginRegistry
from kernel.testing.fixtures import KernelFactory
from kernel.topology.border import link_protocol
from kernel.topology.plan import EnginePlan, RoutePlan, ThreadPlan


class ToldLate(LinkEnd):
    """Its engine learns of a socket only when it uses it already, as it may if the thread that gives it is slow."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.in_use = threading.Event()

    def when_given(self, poke: Callable[[], Any] | None) -> None:
        def late() -> None:
            assert self.in_use.wait(60)
            assert poke is not None
            poke()

        super().when_given(late if poke is not None else None)


class Ends:
    """ask -> client, sockets, server -> end.  ``told`` has what the client has asked for and reported, in order."""

    def __init__(self, kernel_factory: KernelFactory, client: type[LinkEnd], *, answers: bool) -> None:
        self.told: SimpleQueue[str] = SimpleQueue()
        self._pairs = itertools.count(1)
        self._answers = answers
        self.client = client("client", "end", "there", "client", self._lost)
        self.server = LinkEnd("server", "ask", "here", "server")
        self.kernel = kernel_factory(
            ThreadPlan(name="poll-1", kind="poll"),
            EnginePlan(name="ask", kind="native"),
            EnginePlan(name="end", kind="native"),
            RoutePlan(source="ask", targets=("client",)),
            RoutePlan(source="server", targets=("end",)),
            on_event=self._report,
        )
        protocol, options = link_protocol(PluginRegistry.load())
        for end in (self.server, self.client):
            make = partial(LinkEngine, end=end, protocol=protocol, options=options)
            self.kernel.host(end.name, make, thread="poll-1")

    def _lost(self, pair: int) -> None:
        self.told.put(f"lost {pair}")
        if self._answers:
            self.give()

    def _report(self, event: EngineEvent) -> None:
        if event.engine == "client":
            self.told.put(event.what)

    def give(self) -> None:
        """Give both ends the sockets of one pair."""
        pair = next(self._pairs)
        for end, connected in zip((self.server, self.client), socket.socketpair(), strict=True):
            end.give(connected, pair)

    def expect(self, *told: str) -> None:
        assert [self.told.get(timeout=60) for _ in told] == list(told)

    def pass_one(self) -> None:
        """See a message pass, and that nothing else has been told since."""
        with self.kernel.open("ask") as ask, self.kernel.open("end") as end:
            ask.send(b"x")
            assert end.receive(timeout=60) == b"x"
        assert self.told.empty()


def test_sockets_that_an_end_is_given_while_it_asks_for_them_are_used(
    kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "RENEW", 0.01)
    # In the thread of the end: it takes the socket before it learns that there is one.
    ends = Ends(kernel_factory, LinkEnd, answers=True)
    ends.expect("lost 0", "running")
    ends.pass_one()


def test_a_conversation_does_not_end_because_its_end_learns_late_of_its_socket(
    kernel_factory: KernelFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It looks for a socket now and then, also if nobody tells it of one.
    monkeypatch.setattr(link, "RENEW", 0.01)
    ends = Ends(kernel_factory, ToldLate, answers=False)
    giving = threading.Thread(target=ends.give)
    giving.start()
    while (told := ends.told.get(timeout=60)) != "running":
        assert told.startswith("lost")
    assert isinstance(ends.client, ToldLate)
    ends.client.in_use.set()
    giving.join()
    ends.pass_one()


def test_newer_sockets_end_a_conversation_and_begin_another_one(kernel_factory: KernelFactory) -> None:
    ends = Ends(kernel_factory, LinkEnd, answers=False)
    ends.give()
    ends.expect("running")
    ends.pass_one()
    ends.give()
    ends.expect("disconnected", "connected")
    ends.pass_one()
