"""Output formats for rows: text, JSON, CSV, bodies only."""

from __future__ import annotations

import csv
import io
import json
from base64 import b64encode
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pyarrow as pa

from plugins.protocols.journal_format.schema import ROWS

_PREVIEW = 100
_UNPRINTABLE = dict.fromkeys([*range(32), 127], "·")


def text(rows: pa.RecordBatch) -> bytes:
    """Return one line per message: offset, time, key, size, the beginning of its body."""
    lines = []
    for row in rows.to_pylist():
        body = row["body"]
        shown = body[:_PREVIEW].decode("utf-8", "replace").translate(_UNPRINTABLE)
        more = "..." if len(body) > _PREVIEW else ""
        lines.append(f"{row['offset']} {_time(row['ts'])} {row['key'] or '-'} {len(body)} {shown}{more}\n")
    return "".join(lines).encode()


def as_json(rows: pa.RecordBatch) -> bytes:
    """Return one JSON object per line; a body that is not UTF-8 is given as ``body_base64``."""
    return "".join(json.dumps(_object(row)) + "\n" for row in rows.to_pylist()).encode()


def as_csv(rows: pa.RecordBatch) -> bytes:
    """Return one CSV record per message, without a header; bytes that are not UTF-8 are escaped."""
    out = io.StringIO(newline="")
    writer = csv.writer(out)
    for row in rows.to_pylist():
        # CSV is text, and a body may be any bytes.
        row["body"] = row["body"].decode("utf-8", "backslashreplace")
        row["parts"] = None if row["parts"] is None else " ".join(map(str, row["parts"]))
        writer.writerow(_time(value) if isinstance(value, datetime) else value for value in row.values())
    return out.getvalue().encode()


def raw(rows: pa.RecordBatch) -> bytes:
    """Return the unchanged bodies, with a line feed after each."""
    return b"".join(body + b"\n" for body in rows.column("body").to_pylist())


FORMATS: dict[str, Callable[[pa.RecordBatch], bytes]] = {
    "text": text,
    "json": as_json,
    "csv": as_csv,
    "raw": raw,
}
"""The functions that format rows, by the names that users give."""


def header_of(name: str) -> bytes:
    """Return the bytes before the first row: for CSV the names of the columns."""
    return (",".join(ROWS.names) + "\r\n").encode() if name == "csv" else b""


def _object(row: dict[str, Any]) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            continue
        if isinstance(value, datetime):
            shown[name] = _time(value)
        elif name in ("headers", "properties"):
            shown[name] = json.loads(value)
        elif name == "body":
            try:
                shown["body"] = value.decode()
            except UnicodeDecodeError:
                shown["body_base64"] = b64encode(value).decode()
        else:
            shown[name] = value
    return shown


def _time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
