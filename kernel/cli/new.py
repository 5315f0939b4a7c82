"""``kernel new``: writes a plugin as a complete distribution, which can be installed and passes its tests.

The files come from ``templates/``: those of ``common`` and those of the sort of plugin.  Words such as
``@NAME@`` are replaced in texts and in the names of files.  Templates are ordinary code with such words in
it: tests write each of them, check it with ruff and mypy, and run its tests.
"""

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
# Engines and APIs share their names, since the ``kind`` of ``[engines.NAME]`` may be either.
_GROUPS = {
    "engine": ("engines", "apis"),
    "protocol": ("protocols",),
    "api": ("engines", "apis"),
    "frontend": ("front_ends",),
}
"""The groups in which no kind may have the name yet, or the kernel would refuse the new plugin."""
_EXAMPLE = {
    "engine": '[engines.some]\nkind = "@NAME@"',
    "protocol": '[engines.some]\nkind = "stream"\naddress = "@NAME@+tcp://127.0.0.1:7000"\nmode = "listen"',
    "frontend": (
        '[engines.some]\nkind = "broker"\n\n'
        '[[engines.some.listeners]]\nprotocol = "@NAME@"\naddress = "tcp://127.0.0.1:7000"'
    ),
    "api": '[engines.some] # opened with kernel.open("some")\nkind = "@NAME@"',
}
# With this suffix no tool takes a template for Python code, which it is not before its words are replaced.
_SUFFIX = ".tmpl"


@click.command("new")
@click.argument("what", type=click.Choice(list(_WHAT)))
@click.argument("name")
@click.option(
    "--into",
    type=click.Path(file_okay=False, path_type=Path),
    default=".",
    help="The folder in which the folder kernel-NAME is made.",
)
def command(what: str, name: str, into: Path) -> None:
    """Write a new engine, protocol, API or front end called NAME as a distribution of its own.

    The distribution is called kernel-NAME.  It does something small, with tests, until you replace that.
    """
    # Of this name a distribution, a package and a class are named: it has to be good for all three.
    if not re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", name):
        raise click.BadParameter(
            f"{name!r} must consist of small letters, digits and dashes, and begin with a letter",
            param_hint="NAME",
        )
    # Before the first file: a distribution is written whole or not at all.
    _check_free(what, name)
    folder = into / f"kernel-{name}"
    if folder.exists():
        raise KernelError(f"{folder} exists already; choose another NAME or --into; nothing was written")
    for path in write_distribution(what, name, folder):
        click.echo(path)
    click.echo(f"\nNext: cd {shlex.quote(str(folder))} && pip install --editable '.[test]' && pytest")


def _check_free(what: str, name: str) -> None:
    """Raise ``KernelError`` if a plugin or kind has that name: the kernel would refuse the new one."""
    registry = PluginRegistry.load()
    # A group that a plugin announces, as ``front_ends``, exists only if that plugin was loaded.
    kinds = [registry.group(group).get(name) for group in _GROUPS[what] if group in registry.groups]
    for owner in (registry.plugins.get(name), *(kind.origin for kind in kinds if kind is not None)):
        # The same distribution may be written again, in another folder.
        if owner is not None and owner.distribution != f"kernel-{name}":
            raise KernelError(
                f"there is a {name!r} already, from {owner}; choose another NAME; nothing was written"
            )


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
        # Last, since the text for ``@EXAMPLE@`` has this word in it.
        "@NAME@": name,
    }
    # Through ``importlib``, because an installed package need not be a folder.
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
