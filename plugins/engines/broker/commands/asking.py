"""What the commands for a running broker have in common: which system, which broker, and its answers."""

from __future__ import annotations

from typing import Any, TypeAlias

import click

from kernel import ask, find_running
from kernel.contracts.errors import KernelError

Row: TypeAlias = dict[str, Any]

TIMEOUT = 40.0
"""Seconds that a change may take; an import is the longest."""

control_option = click.option(
    "--control", metavar="PATH", help="The system's control socket; default: the only one running."
)
engine_option = click.option("--engine", help="Which broker, where the system has several.")
vhost_option = click.option("--vhost", default="/", show_default=True, help="The virtual host.")


class RunningBroker:
    """A broker of a running system, as a command sees it."""

    def __init__(self, control: str | None, engine: str | None) -> None:
        """The only system, and its only broker, unless they are named."""
        self._path = control or find_running()
        self._engine = engine

    def rows(self, what: str) -> list[Row]:
        """Return the rows of a table."""
        answer = ask(self._path, what)
        if answer["failed"]:
            # An engine did not answer.  Half of the definitions in a file that looks whole would
            # be worse than none.
            raise KernelError("; ".join(answer["failed"]))
        engine = self._engine
        rows: list[Row] = [row for row in answer["rows"] if engine in (None, row["engine"])]
        engines = sorted({row["engine"] for row in answer["rows"]})
        # Every broker has exchanges, so an engine without them is none.  One without queues may well be.
        if engine is not None and engine not in engines and what == "exchanges":
            raise KernelError(
                f"no engine {engine!r} has exchanges; those that have: {', '.join(engines) or 'none'}"
            )
        if engine is None and len(engines) > 1:
            raise KernelError(f"several engines have {what}; say which: --engine {' | '.join(engines)}")
        if not engines and what == "exchanges":
            raise KernelError("no engine of the system is a broker")
        return rows

    def operate(self, what: str, argument: Any) -> dict[str, Any]:
        """Have the broker do something; return its answer."""
        # Every broker has exchanges, those that begin with ``amq.`` at least.
        name = self._engine or self.rows("exchanges")[0]["engine"]
        done: dict[str, Any] = ask(self._path, what, TIMEOUT, engine=name, argument=argument)["done"]
        return done

    def change(self, what: str, sort: str, item: Row) -> None:
        """Import or delete one definition; raise ``KernelError`` if that cannot be done.

        Says so on standard error if the change ends with the broker.
        """
        done = self.operate(what, {sort: [item]})
        if done["complaints"]:
            # There is one item only, so that its place in the document says nothing.
            raise KernelError("; ".join(each.removeprefix(f"$.{sort}[0]: ") for each in done["complaints"]))
        if not done["outlives"]:
            click.echo("kernel: the broker has no data_dir: this change ends when it stops", err=True)
