"""Two versions of the project side by side: ``python -m benchmarks.before_after FOLDER``.

``FOLDER`` is another checkout with its own environment (``git worktree add FOLDER COMMIT; make -C FOLDER
setup``).  Our side of every row is measured in both by turns, one measurement here and one there, so that
other work of the machine disturbs both alike.  Neighbouring measurements make a pair.  The result is the
median of the pairs' ratios, which varies less than the ratio of the medians if the machine is slow for a
minute.

Next to each figure stands the processor time of all processes of the measurement, start and imports included.
It hardly depends on how the system places the threads, and so it tells a change from noise where rates differ
from round to round.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import click
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from benchmarks.report import number

HERE = Path(__file__).parents[1]
_IN_THE_TREE = Path(__file__).with_name("one_tree.py")
NOTABLE = 0.03
"""A row that lost more than this, in most of the pairs, is marked."""


class Tree:
    """A checkout, and the process in it that measures."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        python = folder / ".venv" / "bin" / "python"
        if not python.exists():
            raise click.UsageError(f"{python} is missing: run `make -C {folder} setup`")
        # With compiled modules lying there, as after an installation: what starts is not to compile first.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        self._process = subprocess.Popen(
            [python, _IN_THE_TREE],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.rows: list[dict[str, Any]] = self._hear()

    def measure(self, scenario: str, side: str) -> dict[str, Any]:
        """Measure a side once; return ``figures`` and ``processor``, or why it is ``missing``."""
        assert self._process.stdin is not None
        print(f"{scenario}\t{side}", file=self._process.stdin, flush=True)
        answer: dict[str, Any] = self._hear()
        return answer

    def _hear(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise click.ClickException(f"the measurements in {self._folder} ended: see the error above")
        return json.loads(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes its input, which is what it ends with


@dataclass
class Pairs:
    """The measurements of one figure, before and after, in the order in which they were made."""

    more_is_better: bool
    before: list[float] = field(default_factory=list)
    after: list[float] = field(default_factory=list)

    def gain(self) -> float:
        """Return the median of how much better each pair's second version is: 0.1 is a tenth better."""
        # A side that works for less than a tick of the clock has taken no time at all, and makes no ratio.
        gains = self._gains()
        return statistics.median(gains) if gains else 0.0

    def lost(self) -> bool:
        """Say whether it is worse by more than ``NOTABLE``, and by something in three of four pairs."""
        gains = self._gains()
        return (
            bool(gains) and self.gain() < -NOTABLE and sum(gain < 0 for gain in gains) * 4 >= len(gains) * 3
        )

    def _gains(self) -> list[float]:
        pairs = zip(self.before, self.after, strict=True)
        return [(new / old if self.more_is_better else old / new) - 1 for old, new in pairs if old and new]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("before", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--only", multiple=True, metavar="NAME", help="Only these scenarios or rows; may be given again."
)
@click.option("--rounds", default=5, show_default=True, help="How many pairs are measured.")
@click.option("--out", type=click.Path(path_type=Path), help="Write the pairs to this file, as JSON.")
def main(before: Path, only: tuple[str, ...], rounds: int, out: Path | None) -> None:
    """Measure our side of every row in the checkout BEFORE and in this one by turns; print the changes."""
    console = Console(width=None if sys.stdout.isatty() else 120)
    with Tree(before.resolve()) as old, Tree(HERE) as new, console.status("") as status:
        known = {row["name"] for row in old.rows}
        rows = [
            row
            for row in new.rows
            if row["name"] in known and (not only or row["name"] in only or row["scenario"] in only)
        ]
        if not rows:
            raise click.UsageError("no row is in both checkouts and was asked for")
        figures = {row["name"]: Pairs(row["more"]) for row in rows}
        processor = {(row["scenario"], row["side"]): Pairs(more_is_better=False) for row in rows}
        missing: dict[tuple[str, str], str] = {}
        for turn in range(rounds):
            for scenario, side in processor:
                if (scenario, side) in missing:
                    continue
                status.update(f"pair {turn + 1} of {rounds}, {scenario}: {side}")
                # The order changes each time: the first may warm something up for the second.
                trees = (old, new) if turn % 2 == 0 else (new, old)
                answers = {tree: tree.measure(scenario, side) for tree in trees}
                if why := [answer["missing"] for answer in answers.values() if "missing" in answer]:
                    missing[scenario, side] = why[0]
                    continue
                _note(answers[old], answers[new], scenario, side, rows, figures, processor)
            if out is not None:  # after each round: whoever interrupts keeps what was measured so far
                _write(out, figures, processor)
    _show(console, rows, figures, processor, missing)


def _note(
    old: dict[str, Any],
    new: dict[str, Any],
    scenario: str,
    side: str,
    rows: list[dict[str, Any]],
    figures: dict[str, Pairs],
    processor: dict[tuple[str, str], Pairs],
) -> None:
    """Add one pair of measurements to all rows that it tells something about."""
    for row in rows:
        figure = row["figure"]
        if (row["scenario"], row["side"]) == (scenario, side) and figure in old["figures"]:
            figures[row["name"]].before.append(old["figures"][figure])
            figures[row["name"]].after.append(new["figures"][figure])
    processor[scenario, side].before.append(old["processor"])
    processor[scenario, side].after.append(new["processor"])


def _write(out: Path, figures: dict[str, Pairs], processor: dict[tuple[str, str], Pairs]) -> None:
    measured = {**figures, **{f"processor: {': '.join(side)}": pairs for side, pairs in processor.items()}}
    values = {name: {"before": pairs.before, "after": pairs.after} for name, pairs in measured.items()}
    out.write_text(json.dumps(values, indent=1) + "\n")


def _show(
    console: Console,
    rows: list[dict[str, Any]],
    figures: dict[str, Pairs],
    processor: dict[tuple[str, str], Pairs],
    missing: dict[tuple[str, str], str],
) -> None:
    table = Table(title="Before and after, medians; gains of neighbouring pairs", box=SIMPLE_HEAD)
    table.add_column("row", no_wrap=True)
    for heading in ("before", "after"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("unit", no_wrap=True)
    for heading in ("gain", "gain in processor time"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True, min_width=4)
    for row in rows:
        pairs, worked = figures[row["name"]], processor[row["scenario"], row["side"]]
        if not pairs.before:
            console.print(f"{row['name']}: {missing.get((row['scenario'], row['side']), 'not measured')}")
            continue
        table.add_row(
            row["name"],
            number(statistics.median(pairs.before)),
            number(statistics.median(pairs.after)),
            row["unit"],
            f"{pairs.gain():+.1%}",
            f"{worked.gain():+.1%}",
            "[red]lost" if pairs.lost() or worked.lost() else "",
        )
    console.print(table)


if __name__ == "__main__":
    main()
