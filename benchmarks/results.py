"""Results: what ``results.json`` holds.  Rows of other runs and of other programs are kept."""

from __future__ import annotations

import json
import os
import platform
import re
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import Any

from benchmarks.scenario import Measured, Row, Scenario

RESULTS = Path(__file__).with_name("results.json")


@dataclass
class Result:
    """One row as it is written to the file."""

    name: str
    ours: float | None
    peer: float | None
    peer_name: str
    unit: str
    ratio: float | None
    bar: str
    runs: list[dict[str, float | None]]
    """What each round measured."""
    what: str = ""
    scenario: str = ""
    also: dict[str, float] = field(default_factory=dict)
    """Medians of further sides, and of peers that did worse."""
    remarks: list[str] = field(default_factory=list)
    missing: str = ""
    """Why there is no figure, or no peer."""
    measured: str = ""
    """When, and with which command."""
    machine: str = ""
    """What ran it.  A row that was measured by itself may be of another machine than its neighbours."""

    @property
    def passed(self) -> bool | None:
        """Whether the ratio keeps to the bar; None when there is nothing to compare, or no bar."""
        return keeps(self.ratio, self.bar)


def keeps(ratio: float | None, bar: str) -> bool | None:
    """Return whether a ratio keeps to a bar such as ``>= 2.0``."""
    match = re.fullmatch(r"([<>])=\s*([0-9.]+)", bar.strip())
    if ratio is None or match is None:
        return None
    limit = float(match[2])
    return ratio >= limit if match[1] == ">" else ratio <= limit


def results_of(scenario: Scenario, measured: Measured, command: str) -> list[Result]:
    """Make rows of what was measured."""
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    made = [_result(scenario, row, measured, f"{when}, {command}") for row in scenario.rows]
    if made:
        made[0].remarks = scenario.remarks(measured)
    return made


def _result(scenario: Scenario, row: Row, measured: Measured, when: str) -> Result:
    best = measured.best(row)
    ours = measured.median(row.ours, row.figure)
    peer = measured.median(best, row.figure) if best else None
    our_runs = measured.runs.get((row.ours, row.figure), [])
    peer_runs = measured.runs.get((best, row.figure), []) if best else []
    others = {name: measured.median(name, row.figure) for name in (*row.peers, *row.also) if name != best}
    reasons = [f"{side}: {why}" for side in (row.ours, *row.peers) if (why := measured.missing.get(side))]
    return Result(
        name=row.name,
        ours=ours,
        peer=peer,
        peer_name=best or " or ".join(row.peers),
        unit=row.unit,
        ratio=ours / peer if ours is not None and peer else None,
        bar=row.bar,
        runs=[{"ours": a, "peer": b} for a, b in zip_longest(our_runs, peer_runs)],
        what=row.what,
        scenario=scenario.name,
        also={name: value for name, value in others.items() if value is not None},
        missing="; ".join(reasons),
        measured=when,
        machine=machine(),
    )


def of_rabbitmq(version: str, measured: list[Result]) -> list[Result]:
    """Return the rows that compare with RabbitMQ, under names of their own: it was another version than in others."""

    def named(text: str) -> str:
        return text.replace("RabbitMQ", f"RabbitMQ {version}")

    mark = f"_rabbitmq_{version.replace('.', '_')}"
    return [
        replace(
            each,
            name=each.name + mark,
            scenario=each.scenario + mark,
            peer_name=named(each.peer_name),
            also={named(side): value for side, value in each.also.items()},
            remarks=[named(remark) for remark in each.remarks],
            missing=named(each.missing),
        )
        for each in measured
        if "RabbitMQ" in each.peer_name
    ]


def read(path: Path = RESULTS) -> list[dict[str, Any]]:
    """Return the rows of the file, as they stand there."""
    if not path.exists():
        return []
    rows: list[dict[str, Any]] = json.loads(path.read_text())["results"]
    return rows


def merge(old: list[dict[str, Any]], new: list[Result], order: list[str]) -> list[dict[str, Any]]:
    """Replace old rows by new ones.  Rows of known scenarios come first, in their order, then the others."""
    rows = {row["name"]: row for row in old}
    rows.update({result.name: asdict(result) for result in new})
    return sorted(
        rows.values(), key=lambda row: order.index(row["name"]) if row["name"] in order else len(order)
    )


def write(rows: list[dict[str, Any]], path: Path = RESULTS) -> None:
    """Write the file; whoever reads it meanwhile sees the old one or the new one."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps({"results": rows}, indent=2, ensure_ascii=False) + "\n")
    beside.replace(path)


def machine() -> str:
    """Return what ran the benchmarks: the interpreter, the processor and the system."""
    model = "unknown processor"
    try:
        found = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
        model = found[1] if found else model
    except OSError:  # not Linux
        pass
    return (
        f"Python {platform.python_version()}, {os.cpu_count()} cores ({model}), "
        # The version alone: what follows it names a build.
        f"{platform.system()} {platform.release().partition('-')[0]}"
    )
