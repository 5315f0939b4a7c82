"""Listing: sorting, filters, pages and columns of lists, as RabbitMQ's queries ask for them.

A list is worked through in pieces of ``PIECE`` rows, with other turns in between.
"""

from __future__ import annotations

import heapq
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, NamedTuple, TypeAlias

from plugins.engines.web.answer import JSON, Answer, encoded
from plugins.engines.web.management.call import PAUSE, Refused, Rows, Steps, bad_request, shown
from plugins.engines.web.management.quick_patterns import require_quick

PIECE = 500
"""Rows that one turn works through: a millisecond or two."""
LARGEST_PAGE = 500
"""Rows of a page, RabbitMQ's limit."""

Row: TypeAlias = dict[str, Any]
Shape: TypeAlias = Callable[[Row], Row]


class Page(NamedTuple):
    """Which part of a list is wanted."""

    number: int
    size: int


def listed(rows: list[Row], shape: Shape, query: Mapping[str, str]) -> Steps:
    """Answer with the rows that a query asks for.

    ``shape`` makes RabbitMQ's form of a row.  It is called for the rows that are shown, and for all of them
    only where they are sorted by something else than their names.
    """
    page = _page(query)
    total = len(rows)
    rows = yield from _filtered(rows, query, page)
    sort = query.get("sort", "name" if page is not None and rows and "name" in rows[0] else "")
    if sort:
        # These two are the same in the broker's row and in RabbitMQ's form. By anything else it can be sorted
        # only when all rows have their form.
        if sort not in ("name", "vhost"):
            rows = yield from _in_pieces(rows, shape)
            shape = _unchanged
        rows = yield from _sorted(rows, sort, reverse=query.get("sort_reverse") == "true")

    def final(row: Row) -> Any:
        return only_columns(shape(row), query)

    if page is None:
        return (yield from _answer(rows, final))
    start = (page.number - 1) * page.size
    if start >= len(rows) and page.number > 1:
        reason = f"Page out of range, page: {page.number} page size: {page.size}, len: {len(rows)}"
        raise Refused(400, "page_out_of_range", reason)
    items = yield from _in_pieces(rows[start : start + page.size], final)
    return shown(
        {
            "filtered_count": len(rows),
            "item_count": len(items),
            "items": items,
            "page": page.number,
            "page_count": max(1, -(-len(rows) // page.size)),
            "page_size": page.size,
            "total_count": total,
        }
    )


def _page(query: Mapping[str, str]) -> Page | None:
    if "page" not in query:
        return None
    try:
        number, size = int(query["page"]), int(query.get("page_size") or 100)
    except ValueError:
        raise bad_request("Pagination parameters are invalid") from None
    if number < 1 or not 1 <= size <= LARGEST_PAGE:
        size_text = query.get("page_size", "undefined")
        reason = f"Invalid pagination parameters: page number {number}, page size {size_text}"
        raise Refused(400, "invalid_pagination_parameters", reason)
    return Page(number, size)


def _filtered(rows: list[Row], query: Mapping[str, str], page: Page | None) -> Rows:
    # RabbitMQ filters pages only.
    name = query.get("name", "")
    if page is None or not name:
        return rows
    if query.get("use_regex") == "true":
        matches: Callable[[str], Any] = _filter(name).search
    else:
        wanted = name.lower()

        def matches(text: str) -> bool:
            return wanted in text.lower()

    found: list[Row] = []
    for piece in _pieces(rows):
        found += [row for row in piece if matches(str(row.get("name", "")))]
        yield PAUSE
    return found


def _filter(text: str) -> re.Pattern[str]:
    require_quick(text)
    try:
        return re.compile(text, re.IGNORECASE)
    except re.error:
        raise bad_request("Pagination parameters are invalid") from None


def _sorted(rows: list[Row], sort: str, *, reverse: bool) -> Rows:
    path = sort.split(".")

    def key(row: Row) -> tuple[int, Any]:
        # Numbers before texts before what is missing: values of one column may be of several types.
        value = _at(row, path)
        if isinstance(value, int | float):
            return 0, value
        return (1, value) if isinstance(value, str) else (2, "")

    runs = []
    for piece in _pieces(rows):
        runs.append(sorted(piece, key=key, reverse=reverse))
        yield PAUSE
    # Sorted pieces, merged: to sort 100,000 rows in one go would hold up the thread.
    merged = heapq.merge(*runs, key=key, reverse=reverse)
    return (yield from _in_pieces(merged, _unchanged))


def _in_pieces(rows: Iterable[Row], shape: Callable[[Row], Any]) -> Rows:
    found: list[Any] = []
    remaining = iter(rows)
    while piece := list(islice(remaining, PIECE)):
        found += [shape(row) for row in piece]
        if len(piece) == PIECE:
            yield PAUSE
    return found


def _answer(rows: list[Row], shape: Callable[[Row], Any]) -> Steps:
    body = [b"["]
    for piece in _pieces(rows):
        # Without its brackets, so that the pieces together are one list.
        text = encoded([shape(row) for row in piece])[1:-1]
        body += [text, b","]
        if len(piece) == PIECE:
            yield PAUSE
    if len(body) > 1:
        body.pop()
    body.append(b"]")
    return Answer(200, body, JSON)


def _pieces(rows: list[Row]) -> Iterable[list[Row]]:
    return (rows[start : start + PIECE] for start in range(0, len(rows), PIECE))


def _unchanged(row: Row) -> Row:
    return row


def _at(row: Any, path: list[str]) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def only_columns(row: Row, query: Mapping[str, str]) -> Any:
    """Return of a row what the query names as ``columns``: everything, if it names none."""
    names = query.get("columns", "")
    if not names:
        return row
    found: Row = {}
    for path in [name.split(".") for name in names.split(",")]:
        value: Any = row
        for name in path:
            value = value.get(name, _NOTHING) if isinstance(value, dict) else _NOTHING
        if value is not _NOTHING:
            place = found
            for name in path[:-1]:
                place = place.setdefault(name, {})
            place[path[-1]] = value
    # RabbitMQ has no empty object here, but Erlang's empty list.
    return found or []


_NOTHING = object()
