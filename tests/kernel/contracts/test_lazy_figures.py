"""Figures that are made when they are read."""

from __future__ import annotations

from kernel.contracts.lazy_figures import LazyFigures, made


def _figures(thing: list[int]) -> dict[str, int]:
    thing.append(0)
    return {"count": len(thing)}


def test_each_is_made_when_it_is_read() -> None:
    things: dict[str, list[int]] = {"a": [], "b": []}
    figures = LazyFigures(things, _figures)
    assert (len(figures), list(figures)) == (2, ["a", "b"])
    assert things["b"] == []
    rows = iter(figures.items())
    assert next(rows) == ("a", {"count": 1})
    assert things["b"] == []


def test_all_are_made_for_those_who_want_plain_ones() -> None:
    counters = {"total": 1, "vhosts": {"/": {"queues": LazyFigures({"a": []}, _figures)}}}
    plain = made(counters)
    assert plain == {"total": 1, "vhosts": {"/": {"queues": {"a": {"count": 1}}}}}
    assert type(plain["vhosts"]["/"]["queues"]) is dict
