"""Lines and tables, as text or JSON. Bytes from the network are never written to a terminal unchanged.

A dissector returns what it has decoded as Python objects, with whatever a peer has put into them: bytes,
names with escape sequences, tables in tables, numbers that JSON does not have.  ``plain`` makes values of
JSON of them, with a bounded depth.  What a person reads also goes through ``printable``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernel.inspection.inspector import Shown

DEEPEST = 10
"""Depth of nested tables that is shown."""
SIDE_BY_SIDE = 5
"""Sessions up to which each is a column of the table; more are rows."""


def for_people(shown: Shown) -> str:
    """Return a line of text: time, session, endpoints, name and facts."""
    line = shown.line
    facts = " ".join(f"{name}={_fact(plain(value))}" for name, value in line.facts.items())
    where = f"{shown.source} > {shown.destination}"
    text = f"{shown.time:11.6f}  {shown.session}  {where}  {line.what}"
    return printable(f"{text}  {facts}" if facts else text)


def as_json(shown: Shown) -> str:
    """Return a line as JSON."""
    # Without ``printable``: ``json.dumps`` writes escape sequences as ``\u001b`` itself.
    line = {
        "time": round(shown.time, 9),
        "protocol": shown.protocol,
        "session": shown.session,
        "from": shown.source,
        "to": shown.destination,
        "what": shown.line.what,
        **({"facts": plain(shown.line.facts)} if shown.line.facts else {}),
    }
    return json.dumps(line)


def row_as_json(protocol: str, row: Mapping[str, Any]) -> str:
    """Return a row of a table as JSON."""
    return json.dumps({"summary": protocol, **plain(row)})


def printable(text: str) -> str:
    """Return text without control characters that a terminal would obey."""
    if text.isprintable():
        return text
    return "".join(
        # A name or key of the peer may contain escape sequences, which a terminal would obey.
        # ``ascii`` gives the escape in quotes, which are cut off.
        letter if letter.isprintable() else ascii(letter)[1:-1] if letter not in "\n\t" else " "
        for letter in text
    )


def table(rows: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return columns and their rows: few sessions are columns, many are rows."""
    # ``dict.fromkeys`` keeps the order in which the figures were given.
    names = [name for name in dict.fromkeys(name for row in rows for name in row) if _says(name, rows)]
    if len(rows) > SIDE_BY_SIDE:
        return names, [{name: _cell(row.get(name)) for name in names} for row in rows]
    sessions = [printable(str(row["session"])) for row in rows]
    figures = [name for name in names if name != "session"]
    turned = [
        {
            "session": name,
            **{session: _cell(row.get(name)) for session, row in zip(sessions, rows, strict=True)},
        }
        for name in figures
    ]
    return ["session", *sessions], turned


def _says(name: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Whether a figure is worth a column: some row has a value other than nothing."""
    return any(row.get(name) for row in rows)


def _cell(value: Any) -> Any:
    return printable(value) if isinstance(value, str) else value


def plain(value: Any, depth: int = 0) -> Any:
    """Return a value that JSON can represent, whatever is nested in a table of the peer's."""
    if depth > DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {str(plain(name)): plain(each, depth + 1) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [plain(each, depth + 1) for each in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    # JSON has no NaN and no infinity.
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    return str(value)


def _fact(value: Any) -> str:
    """Return a simple value as text."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        # In quotes if it is empty or has a space, which would look like the end of the fact.
        return value if value and " " not in value else json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name}: {_fact(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return ",".join(map(_fact, value)) or "none"
    return str(value)
