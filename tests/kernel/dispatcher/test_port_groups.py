"""Ports that are one destination together: each source leads to one of them."""

from __future__ import annotations

import pytest

from kernel.contracts.engine import PortGroup
from tests.kernel.dispatcher.conftest import System

SOURCES = ("a/0", "a/1", "a/2", "a/3")


def members(system: System, whole: str = "net", of: int = 3) -> list[str]:
    """Let the shares of a destination join."""
    names = [f"{whole}/{index}" for index in range(of)]
    for index, name in enumerate(names):
        system.port(name, "net", "net", port_group=PortGroup(whole=whole, index=index, of=of))
    return names


def got(system: System, names: list[str]) -> dict[str, list[bytes]]:
    system.turn()
    return {name: bodies for name in names if (bodies := system.take(name))}


@pytest.mark.parametrize("first", ["sources", "shares"])
def test_each_source_has_one_share_and_no_share_has_two_more_than_another(system: System, first: str) -> None:
    system.route("a", "net")
    names = members(system) if first == "shares" else []
    for source in SOURCES:
        system.port(source, "a")
    names = names or members(system)
    system.turn()
    for source in SOURCES:
        system.send(source, source.encode())
    received = got(system, names)
    assert sorted(body for bodies in received.values() for body in bodies) == [b"a/0", b"a/1", b"a/2", b"a/3"]
    assert sorted(map(len, received.values())) == [1, 1, 2]


def test_everybody_that_shares_gets_everything_once(system: System) -> None:
    """Two destinations of a fan-out, each in shares."""
    system.route("a", "net")
    left, right = members(system, "left"), members(system, "right")
    system.port("a")
    system.turn()
    system.send("a", b"x")
    assert list(got(system, left).values()) == list(got(system, right).values()) == [[b"x"]]


def test_a_full_share_stops_its_own_sources_only(system: System) -> None:
    system.route("a", "net", high=2)
    for source in SOURCES[:2]:
        system.port(source, "a")
    members(system)
    system.turn()
    assert not all(system.send("a/0", b"x") for _ in range(4))
    assert all(system.send("a/1", b"x") for _ in range(1))
    assert system.ports["a/1"].writable()
    assert not system.ports["a/0"].writable()


def test_a_source_that_comes_while_shares_join_has_one(system: System) -> None:
    system.route("a", "net")
    for index in range(3):
        system.port(f"a/{index}", "a")
        system.port(f"net/{index}", "net", "net", port_group=PortGroup(whole="net", index=index, of=3))
    system.turn()
    for index in range(3):
        system.send(f"a/{index}", b"%d" % index)
    received = got(system, ["net/0", "net/1", "net/2"])
    assert sorted(body for bodies in received.values() for body in bodies) == [b"0", b"1", b"2"]


def test_what_a_share_left_unconfirmed_goes_to_the_next_that_the_source_leads_to(system: System) -> None:
    system.route("a", "net", confirm=True)
    for source in SOURCES[:2]:
        system.port(source, "a")
    names = members(system)
    system.turn()
    for source in SOURCES[:2]:
        system.send(source, b"from " + source.encode())
    assert len(got(system, names)) == 2
    for name in names:
        system.ports[name].close()
    system.turn()
    received = got(system, members(system))
    assert sorted(map(tuple, received.values())) == [(b"from a/0",), (b"from a/1",)]
