"""A destination that takes nothing does not stop the others for longer than the stall timeout."""

from __future__ import annotations

import math

import pytest

from tests.kernel.dispatcher.conftest import System


def three(system: System, *targets: str, **route: object) -> None:
    """A source and its targets, connected."""
    system.route("a", *targets, **route)  # type: ignore[arg-type]
    for name in ("a", *targets):
        system.port(name)
    system.turn()


def fill(system: System, *, of: str = "full", key: str = "") -> None:
    """Send from ``a`` until it has to wait; everybody but ``of`` has taken all there was."""
    while system.send("a", b"x", key=key):
        system.turn()
        for name in system.ports:
            if name not in ("a", of):
                system.take(name)
    for name in system.ports:
        if name not in ("a", of):
            system.take(name)


def test_a_destination_that_takes_nothing_is_suspended(system: System) -> None:
    three(system, "full", "free", high=4, stall_timeout=5)
    fill(system)
    system.wait(4.9)
    assert system.owners["a"].writables == 0
    system.wait(0.2)
    assert system.owners["a"].writables == 1
    for number in range(100):
        assert system.send("a", b"%d" % number)
        assert system.take("free") == [b"%d" % number]
    assert [pipe.dropped for _, _, _, pipe in system.dispatcher.pipes()] == [100, 0]
    assert len(system.take("full")) == 4


def test_it_is_back_as_soon_as_it_takes_and_that_is_reported(system: System) -> None:
    three(system, "full", "free", high=4, stall_timeout=5)
    fill(system)
    system.wait(6)
    system.send("a", b"missed")
    system.take("full")
    system.turn()
    system.send("a", b"seen")
    assert system.take("full") == [b"seen"]
    assert system.reports == [
        (
            "suspended",
            "a > full has taken nothing for 5 s and others wait: what it cannot take is dropped and counted",
        ),
        ("back", "a > full takes messages again, having missed 1"),
    ]


def test_it_is_waited_for_again_when_it_is_the_only_one_left_and_that_is_reported(system: System) -> None:
    three(system, "full", "free", high=4, stall_timeout=5)
    fill(system)
    system.wait(6)
    system.send("a", b"missed")
    system.ports.pop("free").close()
    system.turn()
    assert [what for what, _ in system.reports] == ["suspended", "back"]
    assert system.reports[1][1] == "a > full is waited for again, as the only target, having missed 1"
    assert not system.send("a", b"seen")
    assert system.take("full")[-1] == b"seen"


def test_a_slow_destination_sets_the_pace_and_loses_nothing(system: System) -> None:
    three(system, "slow", "free", high=4, stall_timeout=5)
    got: list[bytes] = []
    for number in range(20):
        if not system.send("a", b"%d" % number):
            for _ in range(3):
                system.wait(4)
                got += system.take("slow", 1)
        system.take("free")
    got += system.take("slow")
    assert got == [b"%d" % number for number in range(20)]
    assert system.reports == []


def test_the_only_destination_is_waited_for_for_ever(system: System) -> None:
    three(system, "b", high=4)
    fill(system, of="b")
    system.wait(1e6)
    assert system.owners["a"].writables == 0
    assert system.ports["a"].stall_watch.deadline() is None


def test_when_all_are_stuck_nobody_is_dropped(system: System) -> None:
    three(system, "b", "c", high=4)
    while system.send("a", b"x"):
        pass
    system.turn()
    system.wait(100)
    assert system.owners["a"].writables == 0
    assert len(system.take("c")) == 4  # now b holds up c
    system.turn()
    system.wait(100)
    assert system.owners["a"].writables == 1
    assert len(system.take("b")) == 4


def test_the_last_that_is_left_is_waited_for(system: System) -> None:
    three(system, "b", "c", high=4, stall_timeout=1)
    fill(system, of="b")
    system.wait(2)
    while system.send("a", b"x"):
        pass
    system.turn()
    writables = system.owners["a"].writables
    system.wait(100)
    assert system.owners["a"].writables == writables
    assert len(system.take("c")) == 4


def test_a_stall_timeout_may_be_without_end(system: System) -> None:
    three(system, "full", "free", high=4, stall_timeout=math.inf)
    fill(system)
    system.wait(1e6)
    assert system.owners["a"].writables == 0


def test_a_stall_timeout_may_be_zero(system: System) -> None:
    three(system, "full", "free", high=4, stall_timeout=0)
    fill(system)
    system.wait(0.001)
    assert system.owners["a"].writables == 1


def test_a_route_that_leads_to_nobody_does_not_hold_up_another(system: System) -> None:
    system.route("a", "nobody", stall_timeout=5)
    three(system, "b")
    assert not system.send("a", b"1")
    system.wait(6)
    assert system.owners["a"].writables == 1
    assert system.send("a", b"2")
    assert system.take("b") == [b"1", b"2"]
    assert system.ports["a"].routes[0].unrouted == 1
    system.port("nobody")
    system.turn()
    system.send("a", b"3")
    assert system.take("nobody") == [b"1", b"3"]


def test_a_route_whose_workers_are_all_stuck_does_not_hold_up_another(system: System) -> None:
    system.route("a", "w1", "w2", router="round-robin", high=2, stall_timeout=5)
    system.port("w1")
    system.port("w2")
    three(system, "b", high=1000)
    while system.send("a", b"x"):
        pass
    system.turn()
    system.wait(6)
    assert system.owners["a"].writables == 1
    waiting = system.ports["a"].routes[0].waiting
    for _ in range(10):
        assert system.send("a", b"y")
    assert system.ports["a"].routes[0].unrouted == 10
    assert system.ports["a"].routes[0].waiting == waiting
    system.take("w1")
    system.turn()
    assert system.send("a", b"z")
    assert system.take("w1")[-1:] == [b"z"]


def test_by_key_only_what_is_for_the_full_one_waits(system: System) -> None:
    three(system, "full", "free", router="by-key", high=4)
    system.ports["full"].subscribe("f")
    system.ports["free"].subscribe("#")
    system.turn()
    for number in range(4):
        assert system.send("a", b"%d" % number, key="f")
        system.take("free")
    for number in range(100):
        assert system.send("a", b"%d" % number, key="g")
        system.take("free")
    assert not system.send("a", b"4", key="f")
    assert system.take("free") == [b"4"]
    assert system.take("full") == [b"0", b"1", b"2", b"3"]
    system.turn()
    assert system.owners["a"].writables == 1
    assert system.take("full") == [b"4"]


def test_what_is_deferred_to_a_full_pipe_is_not_overtaken(system: System) -> None:
    three(system, "b", router="reply", high=2)
    for number in range(2):
        system.send("a", b"%d" % number, reply_to="b")
    system.send("a", b"2", reply_to="b")  # deferred
    system.turn("b")
    assert system.ports["b"].take().count == 2  # the news of it has not reached the writer yet
    system.send("a", b"3", reply_to="b")
    assert system.take("b") == []
    system.turn()
    assert system.take("b") == [b"2", b"3"]


def test_by_key_the_full_one_is_suspended_with_what_is_deferred_to_it(system: System) -> None:
    three(system, "full", "free", router="by-key", high=4, stall_timeout=5)
    for name in ("full", "free"):
        system.ports[name].subscribe("#")
    system.turn()
    fill(system, key="k")
    system.wait(6)
    for _ in range(10):
        assert system.send("a", b"y", key="k")
        assert system.take("free") == [b"y"]
    assert system.ports["a"].routes[0].waiting == 0
    assert sum(pipe.dropped for _, _, _, pipe in system.dispatcher.pipes()) == 11


@pytest.mark.parametrize("router", ["fan-out", "by-key"])
def test_a_destination_that_confirms_is_never_suspended(system: System, router: str) -> None:
    three(system, "full", "free", router=router, high=4, confirm=True)
    for name in ("full", "free"):
        system.ports[name].subscribe("#")
    system.turn()
    fill(system, key="k")
    system.wait(1e6)
    assert system.owners["a"].writables == 0


def test_what_a_dead_port_left_waits_for_the_next_of_its_engine(system: System) -> None:
    system.route("a", "l", confirm=True, stall_timeout=5)
    source = system.port("a")
    for number in (1, 2):
        system.port(f"l/{number}", "l")
    system.turn()
    system.send("a", b"x")
    for number in (1, 2):
        assert system.take(f"l/{number}") == [b"x"]
    system.confirm("l/2", 1)
    system.ports["l/1"].close()
    system.turn()
    assert source.confirmed() == 0
    system.port("l/3", "l")
    system.turn()
    assert system.take("l/3") == [b"x"]
    system.confirm("l/3", 1)
    system.turn()
    assert source.confirmed() == 1
    assert source.abandoned == 0


def test_it_does_not_wait_for_ever_while_others_of_its_engine_are_left(system: System) -> None:
    system.route("a", "l", confirm=True, stall_timeout=5)
    source = system.port("a")
    for number in (1, 2):
        system.port(f"l/{number}", "l")
    system.turn()
    system.send("a", b"x")
    system.take("l/2")
    system.confirm("l/2", 1)
    system.ports["l/1"].close()
    system.turn()
    system.wait(4)
    assert source.confirmed() == 0
    system.wait(2)
    assert source.confirmed() == source.abandoned == 1
    assert system.owners["a"].confirmations == [1]
    assert system.reports == [("abandoned", "route a -> l: l did not come back for 1 unconfirmed message")]


def test_what_comes_is_deferred_to_an_engine_without_a_port(system: System) -> None:
    system.route("a", "b", "c", confirm=True, high=3)
    source = system.port("a")
    system.port("c")
    system.turn()
    for number in range(2):
        assert system.send("a", b"%d" % number)
    assert not system.send("a", b"2")  # as much as a pipe may hold
    assert system.take("c") == [b"0", b"1", b"2"]
    system.confirm("c", 3)
    system.turn()
    assert source.confirmed() == 0
    system.port("b")
    system.turn()
    assert system.take("b") == [b"0", b"1", b"2"]
    system.confirm("b", 3)
    system.turn()
    assert source.confirmed() == 3
    assert system.owners["a"].writables == 1
