"""What commands about messages share: which system and engine to ask, and how a message is printed."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable
from typing import Any, TypeAlias

import click

from kernel.inspection.printing import printable

Row: TypeAlias = dict[str, Any]

_MOST_SHOWN = 32
"""Octets of a body that is no text."""

control_option: Callable[[Any], Any] = click.option(
    "--control",
    metavar="PATH",
    help="The control socket of the system.  Default: that of the only running one.",
)
json_option: Callable[[Any], Any] = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def pair_of(option: str, text: str) -> tuple[str, str]:
    """Return the name and the value of an option NAME=VALUE."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise click.UsageError(f"{option} {text!r} has to be NAME=VALUE")
    return name, value


def message_lines(row: Row) -> list[str]:
    """Return a message for a terminal: a line of what is known of it, and its body, indented.

    Nothing in them has an effect on the terminal, whatever the publisher has chosen.
    """
    facts = [f"key {row['key']!r}"]
    if row["exchange"]:
        facts.insert(0, f"exchange {row['exchange']!r}")
    facts += [name for name in ("persistent", "redelivered", "on_disk") if row.get(name)]
    facts += [f"{name} {row[name]}" for name in ("priority", "expires_in", "reply_to") if row.get(name)]
    if row["expiration"] is not None:
        facts.append(f"expiration {row['expiration']} ms")
    facts.append(f"{row['body_bytes']} bytes")
    place = row.get("position", row.get("from"))
    lines = [", ".join(facts) if place is None else f"{place}: {', '.join(facts)}"]
    lines += [f"  {name}: {value}" for name, value in row["properties"].items()]
    return [printable(line) for line in (*lines, f"  {_body(row)}")]


def _body(row: Row) -> str:
    more = " ..." if row["truncated"] else ""
    if row["body_encoding"] == "text":
        return f"{row['body']}{more}"
    octets = b64decode(row["body"])
    more = " ..." if row["truncated"] or len(octets) > _MOST_SHOWN else ""
    return f"<{octets[:_MOST_SHOWN].hex(' ')}{more}>"
