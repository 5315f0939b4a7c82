"""``kernel plugins``: lists what is installed, from which distribution, with which options."""

from __future__ import annotations

import json
from typing import Any

import click

from kernel.contracts.errors import UnknownName, nearest
from kernel.plugins import Installed, PluginRegistry


@click.command("plugins")
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(name: str | None, as_json: bool) -> None:
    """List what is installed, or show the options of the kind NAME.

    Plugins that were refused are listed with the reason.  The environment variable KERNEL_PLUGINS says what
    is loaded: "backend,stream" only these two, "-amqp" all except this one.
    """
    registry = PluginRegistry.load()
    # A list also for one name: names are unique within a group only.  ``native`` is an API and a walk.
    found = [
        (group.listed_as or group.noun, kind_name, installed)
        for group in registry.groups.values()
        for kind_name, installed in sorted(registry.group(group.name).items())
        if name in (None, kind_name)
    ]
    # A plugin of that name may have been refused.  The reason says more than "not installed".
    if name is not None and not found:
        known = {known for group in registry.groups for known in registry.group(group)}
        refused = [str(refused) for refused in registry.refused if refused.origin.plugin == name]
        raise UnknownName(
            refused[0] if refused else f"nothing called {name!r} is installed; {nearest(name, known)}"
        )
    if as_json:
        click.echo(
            json.dumps(
                {"kinds": [_as_data(*each) for each in found], "refused": _refused(registry)}, indent=2
            )
        )
    elif name is not None:
        for each in found:
            _show_one(*each)
    else:
        _show_all(registry, found)


def _show_all(registry: PluginRegistry, found: list[tuple[str, str, Installed]]) -> None:
    from rich.table import Table

    console = _console()
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("kind", "name", "what it is", "from"):
        table.add_column(column, overflow="fold")
    for noun, name, installed in found:
        origin = installed.origin
        table.add_row(noun, name, installed.kind.summary, f"{origin.distribution} {origin.version}")
    console.print(table)
    for refused in registry.refused:
        # A reason is the text of an exception, in which brackets are no markup.
        console.print(str(refused), style="red", markup=False)


def _show_one(noun: str, name: str, installed: Installed) -> None:
    from rich.markup import escape
    from rich.table import Table

    from kernel.topology.reference import OptionDoc, options_of

    console = _console()
    console.print(f"[bold]{noun} {escape(name)}[/bold]: {escape(installed.kind.summary)}")
    console.print(f"from {installed.origin}", markup=False)
    # A command has no options class: its options are those of click, and ``--help`` shows them.
    options: list[OptionDoc] = [] if noun == "command" else options_of(installed.kind.options_class())
    if not options:
        console.print("It has no options.")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("option", "type", "default", "meaning"):
        table.add_column(column, overflow="fold")
    for option in options:
        table.add_row(
            *(
                escape(text.replace("`", ""))
                for text in (option.name, option.value, option.default, option.text)
            )
        )
    console.print(table)


def _as_data(noun: str, name: str, installed: Installed) -> dict[str, Any]:
    from kernel.topology.reference import options_of

    options = [] if noun == "command" else options_of(installed.kind.options_class())
    return {
        "kind": noun,
        "name": name,
        "summary": installed.kind.summary,
        "plugin": installed.origin.plugin,
        "distribution": installed.origin.distribution,
        "version": installed.origin.version,
        "options": [{"name": each.name, "type": each.value, "default": each.default} for each in options],
    }


def _refused(registry: PluginRegistry) -> list[dict[str, str]]:
    return [
        {
            "plugin": refused.origin.plugin,
            "distribution": refused.origin.distribution,
            "version": refused.origin.version,
            "reason": refused.reason,
        }
        for refused in registry.refused
    ]


def _console() -> Any:
    from rich.console import Console

    # As in ``looking.print_table``: into a pipe or a file rich would fold lines at 80 columns.
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=160)
