"""``make bench``: the kernel side by side with its peers, in the same run."""

from __future__ import annotations

import sys
from datetime import UTC, datetime

import click
from rich.console import Console

from benchmarks import charts, plots, report, results
from benchmarks.scenario import Scenario, run_rounds
from benchmarks.scenarios import all_scenarios

QUICK = 0.1


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Only these scenarios or rows, or with 'NAME_' all whose names begin so; may be given again.",
)
@click.option("--rounds", default=3, show_default=True, help="How often each side is measured.")
@click.option(
    "--quick",
    is_flag=True,
    help="A tenth of the messages, nothing is written: to see that it works, not how fast.",
)
@click.option(
    "--rabbitmq",
    metavar="VERSION",
    help="The peer is this RabbitMQ, which KERNEL_RABBITMQ_SERVER and KERNEL_RABBITMQ_CONTROL name: only the rows beside "
    "it are written, under names of their own.",
)
@click.option("--strict", is_flag=True, help="Exit with status 1 when a row misses its bar.")
@click.option("--dry", is_flag=True, help="Write neither results.json nor docs/measured.md.")
@click.option("--render", is_flag=True, help="Measure nothing: write the page and its pictures again.")
@click.option("--list", "only_list", is_flag=True, help="Show the scenarios and their rows.")
def main(
    only: tuple[str, ...],
    rounds: int,
    quick: bool,
    rabbitmq: str | None,
    strict: bool,
    dry: bool,
    render: bool,
    only_list: bool,
) -> None:
    """Measure the kernel side by side with its peers, by turns, and write down the medians."""
    if render:
        rows = results.read()
        report.write_page(rows, None, charts.draw(rows), plots.draw(rows))
        return
    dry = dry or quick  # figures of a tenth of the messages are none
    console = Console(width=None if sys.stdout.isatty() else 120)
    scenarios = all_scenarios()
    chosen = _chosen(scenarios, only)
    if only_list:
        for scenario in chosen:
            console.print(f"{scenario.name}: {', '.join(row.name for row in scenario.rows)}")
        return
    command = "python -m benchmarks " + " ".join(sys.argv[1:])
    measured = []
    with console.status("") as status:
        for scenario in chosen:
            outcome = run_rounds(scenario, rounds, QUICK if quick else 1.0, status.update)
            new = results.results_of(scenario, outcome, command.strip())
            if rabbitmq:
                new = results.of_rabbitmq(rabbitmq, new)
            measured += new
            if not dry:  # after each: whoever interrupts keeps what was measured so far
                order = [row.name for scenario in scenarios for row in scenario.rows]
                results.write(results.merge(results.read(), new, order))
    if not dry:
        rows = results.read()
        date = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
        report.write_page(rows, report.written_by(command.strip(), date), charts.draw(rows), plots.draw(rows))
    report.show(console, measured)
    if strict and any(result.passed is False for result in measured):
        sys.exit(1)


def _chosen(scenarios: list[Scenario], only: tuple[str, ...]) -> list[Scenario]:
    names = {scenario: (scenario.name, *(row.name for row in scenario.rows)) for scenario in scenarios}

    def named(scenario: Scenario, wanted: str) -> bool:
        return wanted in names[scenario] or (
            wanted.endswith("_") and any(name.startswith(wanted) for name in names[scenario])
        )

    for wanted in only:
        if not any(named(scenario, wanted) for scenario in scenarios):
            raise click.UsageError(f"there is no scenario or row {wanted!r}; --list shows what there is")
    return [scenario for scenario in scenarios if not only or any(named(scenario, wanted) for wanted in only)]


if __name__ == "__main__":
    main()
