"""``kernel new``: writes a plugin as a complete distribution that installs, runs and passes its tests as it is."""

from __future__ import annotations

import re
import shlex
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from kernel.contracts.errors import KernelError
from kernel.plugins import PluginRegistry

_WHAT = {"engine": "engine", "protocol": "protocol", "api": "API", "frontend": "front end"}
_MODULE = {"engine": "engine", "protocol": "connection", "api": "api", "frontend": "front_end"}
_GROUPS = {
    "engine": ("engines", "apis"),
    "protocol": ("protocols",),
    "api": ("engines", "apis"),
    "frontend": ("front_ends",),
}
"""Where no kind may have the name."""
_EXAMPLE = {
    "engine": '[engines.some]\nkind = "@NAME@"',
    "protocol": '[engines.some]\nkind = "stream"\naddress = "@NAME@+tcp://127.0.0.1:7000"\nmode = "listen"',
    "frontend": '[engines.some]\nkind = "broker"\n\n[[engines.some.listeners]]\nprotocol = "@NAME@"\naddress = "tcp://127.0.0.1:7000"',
    "api": '[engines.some] # opened with kernel.open("some")\nkind = "@NAME@"',
}
_SUFFIX = ".tmpl"  # so that no tool takes a template for the code that it becomes


@click.command("new")
@click.argument("what", type=click.Choice(list(_WHAT)))
@click.argument("name")
@click.option(
    "--into", type=click.Path(file_okay=False, path_type=Path), default=".", help="The folder to write it in."
)
def command(what: str, name: str, into: Path) -> None:
    """Write a new engine, protocol, api or front end of a broker called NAME as a distribution of its own.

    It is called kernel-NAME, and does something small, with tests, until you replace it.
    """
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise click.BadParameter(
            f"{name!r}: small letters, digits and dashes only, a letter first", param_hint="NAME"
        )
    _check_free(what, name)
    folder = into / f"kernel-{name}"
    if folder.exists():
        raise KernelError(f"{folder} is there already; nothing was written")
    for path in write_distribution(what, name, folder):
        click.echo(path)
    click.echo(f"\nNext: cd {shlex.quote(str(folder))} && pip install --editable '.[test]' && pytest")


def _check_free(what: str, name: str) -> None:
    """Raise ``KernelError`` if the kernel would refuse a plugin of that name, for there is one, or its kind."""
    registry = PluginRegistry.load()
    kinds = [registry.group(group).get(name) for group in _GROUPS[what] if group in registry.groups]
    for owner in (registry.plugins.get(name), *(kind.origin for kind in kinds if kind is not None)):
        if owner is not None and owner.distribution != f"kernel-{name}":
            raise KernelError(f"there is a {name!r} already, from {owner}; nothing was written")


def write_distribution(what: str, name: str, folder: Path) -> list[Path]:
    """Write the files of a new distribution; return their paths."""
    plain = name.replace("-", "_")
    words = {
        "@DISTRIBUTION@": f"kernel-{name}",
        "@EXAMPLE@": _EXAMPLE[what],
        "@PACKAGE@": f"kernel_{plain}",
        "@MODULE@": _MODULE[what],
        "@CLASS@": "".join(word.capitalize() for word in plain.split("_")),
        "@WHAT@": _WHAT[what],
        "@NAME@": name,  # last: the example holds it as well
    }
    templates = files("kernel.cli") / "templates"
    written = []
    for root in ("common", what):
        for path, template in _walk(templates / root):
            target = folder / _filled(path.removesuffix(_SUFFIX), words)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(_filled(template.read_text(encoding="utf-8"), words), encoding="utf-8")
            written.append(target)
    return sorted(written)


def _walk(folder: Traversable, prefix: str = "") -> list[tuple[str, Traversable]]:
    found: list[tuple[str, Traversable]] = []
    for entry in sorted(folder.iterdir(), key=lambda entry: entry.name):
        if entry.is_dir():
            found += _walk(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(_SUFFIX):
            found.append((f"{prefix}{entry.name}", entry))
    return found


def _filled(text: str, words: dict[str, str]) -> str:
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text
