"""Look: the figures of one moment for the page, with rates since the look before."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from plugins.engines.web.answer import encoded
from plugins.engines.web.families import brokers_in

if TYPE_CHECKING:
    from kernel.topology.plan import Plan
    from kernel.topology.statistics import EngineStatistics, SystemStatistics

MOST_THREADS, MOST_ROWS = 32, 200
"""Threads, and engines or routes, of one event.  How many there are besides is shown."""

LARGEST_PAGE = 100
"""Queues of one event."""

LONGEST_TEXT = 300
"""Characters of the reason of a failure."""

PIECE = 200
"""Queues that are worked through in one go: a fraction of a millisecond."""

Row: TypeAlias = dict[str, Any]


class QueueFigures(NamedTuple):
    """One queue."""

    vhost: str
    name: str
    ready: int
    unacked: int
    consumers: int
    in_rate: float
    out_rate: float


class View(NamedTuple):
    """Which queues somebody wants to see."""

    vhost: str = ""
    """Empty: all that the user may open."""
    queue: str | None = None
    """The one with this name."""
    name: str = ""
    """Only those with this text in their names, in any case."""
    sort: str = "name"
    reverse: bool = False
    page: int = 1
    size: int = 0

    @classmethod
    def of(cls, query: Mapping[str, str]) -> View:
        """Return what a query asks for; ``ValueError`` if it makes no sense."""
        sort, page, size = query.get("sort", "name"), int(query.get("page", 1)), int(query.get("size", 0))
        if sort not in QueueFigures._fields or page < 1 or not 0 <= size <= LARGEST_PAGE:
            raise ValueError(
                f"sort is one of {', '.join(QueueFigures._fields)}; size is at most {LARGEST_PAGE}"
            )
        return cls(
            query.get("vhost", ""),
            query.get("queue"),
            query.get("name", "").lower(),
            sort,
            query.get("reverse") == "true",
            page,
            size,
        )


class Rates:
    """How fast figures have grown since the look before; those that are gone are forgotten with it."""

    def __init__(self, now: float, before: Rates | None) -> None:
        self._now = now
        self._figures: dict[tuple[str, ...], int] = {}
        self._before = {} if before is None else before._figures
        self._elapsed = 0.0 if before is None else now - before._now

    def of(self, key: tuple[str, ...], figure: int) -> float:
        """Return the rate a second; 0.0 at the first time, and if the figure has begun anew."""
        self._figures[key] = figure
        before = self._before.get(key, figure)
        # A figure that is smaller than before is one of something new under an old name: a queue that was
        # deleted and made again.
        return round((figure - before) / self._elapsed, 1) if figure > before and self._elapsed else 0.0

    def close(self) -> None:
        """Let go of the look before."""
        self._before = {}


class Look:
    """Figures that are made once, however many look at them."""

    def __init__(
        self, statistics: SystemStatistics, plan: Plan, broker: str, now: float, rates: Rates
    ) -> None:
        self.now = now
        self.queues: list[QueueFigures] = []
        self.system = b"{}"
        """What only those who monitor may see, in JSON."""
        self._statistics = statistics
        self._plan = plan
        self._broker = broker
        self._rates = rates

    def make(self) -> Iterator[None]:
        """Make it, with pauses."""
        statistics, rates = self._statistics, self._rates
        threads = statistics.threads[:MOST_THREADS]
        engines = sorted(statistics.engines, key=attrgetter("name"))
        routes = statistics.routes[:MOST_ROWS]
        system = {
            "threads": [
                {
                    "name": each.name,
                    "engines": each.engines[:MOST_ROWS],
                    "depth": each.depth,
                    "turns": rates.of(("thread", each.name), each.turns),
                }
                for each in threads
            ],
            "cells": list(self._cells(len(threads))),
            "engines": [self._engine(each) for each in engines[:MOST_ROWS]],
            "routes": [
                {
                    "name": each.name,
                    "pipes": each.pipes,
                    "depth": each.depth + each.held,
                    "rate": rates.of(("route", each.name), each.written),
                    "written": each.written,
                    "lost": each.dropped + each.refused + each.unrouted,
                    "lost_rate": rates.of(("lost", each.name), each.dropped + each.refused + each.unrouted),
                    "dropped": each.dropped,
                    "refused": each.refused,
                    "unrouted": each.unrouted,
                }
                for each in routes
            ],
            "not_shown": {
                "threads": len(statistics.threads) - len(threads),
                "engines": max(0, len(engines) - MOST_ROWS),
                "routes": len(statistics.routes) - len(routes),
            },
        }
        # Encoded once for all views, of which most is this: 1.5 ms for a further view of 1,000 queues instead
        # of 1.7.
        self.system = encoded(system)
        yield
        yield from self._make_queues()
        # Nobody asks for them any more: they would keep the figures of all queues of two looks in memory.
        rates.close()

    def _cells(self, threads: int) -> Iterator[Row]:
        """Make a row for each cell of the matrix that has pipes."""
        cells: dict[tuple[int, int], Row] = {}
        empty = {"pipes": 0, "depth": 0, "fill": 0.0, "taken": 0, "dropped": 0, "blocked": 0, "suspended": 0}
        for cell, pipe in zip(self._statistics.cells, self._statistics.pipes, strict=True):
            row = cells.setdefault(cell, dict(empty))
            row["pipes"] += 1
            row["depth"] += pipe.depth
            # A message may be in a pipe beyond its mark: a batch is written whole.
            row["fill"] = max(row["fill"], min(1.0, pipe.depth / pipe.high) if pipe.high else 0.0)
            row["taken"] += pipe.taken
            row["dropped"] += pipe.dropped
            row["blocked"] += pipe.blocked
            row["suspended"] += pipe.suspended
        for (writer, reader), row in cells.items():
            if writer < threads and reader < threads:
                key = (str(writer), str(reader))
                rate = self._rates.of(("taken", *key), row["taken"])
                dropping = self._rates.of(("dropped", *key), row["dropped"])
                yield {"from": writer, "to": reader, **row, "rate": rate, "dropping": dropping}

    def _engine(self, engine: EngineStatistics) -> Row:
        planned = self._plan.engine(engine.name)
        counters, name = engine.counters, engine.name
        return {
            "name": name,
            "kind": "" if planned is None else planned.kind,
            "state": engine.state,
            "address": engine.address[:LONGEST_TEXT],
            "failures": engine.failures,
            "last_failure": engine.last_failure[:LONGEST_TEXT],
            "connections": counters.get("connections"),
            "tries": _tries(counters),
            "in_rate": self._rates.of(("in", name), counters.get("messages_in", 0)),
            "out_rate": self._rates.of(("out", name), counters.get("messages_out", 0)),
            "alarms": counters.get("alarms", ""),
        }

    def _make_queues(self) -> Iterator[None]:
        rates = self._rates
        counters = brokers_in(self._statistics).get(self._broker, {})
        for vhost, figures in counters.get("vhosts", {}).items():
            for name, queue in figures["queues"].items():
                key = (vhost, name)
                self.queues.append(
                    QueueFigures(
                        vhost,
                        name,
                        queue["messages_ready"],
                        queue["messages_outstanding"],
                        queue["consumers"],
                        rates.of(("queue in", *key), queue["messages_in"]),
                        rates.of(("queue out", *key), queue["messages_out"]),
                    )
                )
                if len(self.queues) % PIECE == 0:
                    yield

    def page(self, opens: Callable[[str], bool], view: View, take: Callable[[Row], None]) -> Iterator[None]:
        """Have ``take`` called with the queues that a view asks for, and the sums of all that are opened."""
        total = 0
        sums = dict.fromkeys(("ready", "unacked", "consumers", "in_rate", "out_rate"), 0.0)
        pieces: list[list[QueueFigures]] = []
        key = attrgetter(view.sort)
        for piece in _pieces(self.queues):
            opened = [row for row in piece if opens(row.vhost)]
            total += len(opened)
            for name in sums:
                sums[name] += sum(map(attrgetter(name), opened))
            # Each piece is sorted by itself and the runs are merged: one ``sorted`` over 100,000 queues would
            # take one turn.
            if view.size:
                pieces.append(sorted(filter(_chosen(view), opened), key=key, reverse=view.reverse))
            yield
        matched = sum(map(len, pieces))
        pages = -(-matched // view.size) if view.size else 1
        page = max(1, min(view.page, pages))
        merged = heapq.merge(*pieces, key=key, reverse=view.reverse)
        skipped = islice(merged, (page - 1) * view.size)
        # Of a merge nothing can be skipped without looking at it, so pages far behind are reached in pieces,
        # too.
        while list(islice(skipped, PIECE)):
            yield
        take(
            {
                "total": total,
                "matched": matched,
                "page": page,
                "pages": max(1, pages),
                "sums": sums,
                "rows": [row._asdict() for row in islice(merged, view.size)],
            }
        )


def _chosen(view: View) -> Callable[[QueueFigures], bool]:
    def chosen(row: QueueFigures) -> bool:
        if view.vhost and row.vhost != view.vhost:
            return False
        if view.queue is not None:
            return row.name == view.queue
        return view.name in row.name.lower()

    return chosen


def _pieces(rows: list[QueueFigures]) -> Iterable[list[QueueFigures]]:
    return (rows[start : start + PIECE] for start in range(0, len(rows), PIECE))


def _tries(counters: Mapping[str, Any]) -> int:
    """Return how often an engine that dials has tried in vain to connect.

    0: it is connected, or waits for others.
    """
    links = counters.get("links")
    if links:
        return max((link.get("attempts", 0) for link in links), default=0)
    return 0 if counters.get("connections") else counters.get("attempts", 0)
