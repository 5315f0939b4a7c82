"""Reads a topology file: its values, the line of each value, and which values came from the environment.

In every string ``${NAME}`` is replaced by that variable, and ``${NAME:-default}`` by the default if the
variable is not set or empty, as in a shell; ``$$`` is a dollar.  ``check.py`` checks the values.

An engine or a route whose key ``when`` is empty is left out.  Of such a table nothing else is read, so that
it may name variables that are not set, and a kind that is not installed.

The text is read twice: by ``tomllib`` for the values, and by ``toml_lines`` for the lines.  Both describe a
value by its path, and the path connects them: a check that finds a mistake knows the path and so the line.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import Any

import msgspec

from kernel.contracts.errors import PlanError
from kernel.topology.toml_lines import Path, lines_of

# The last branch takes anything else after "$" and a brace, so that a mistake such as ``${HO ST}`` is
# reported and not passed on as text.  A single "$" before other letters stays as it is.
_VARIABLE = re.compile(
    r"\$(?:(?P<dollar>\$)|\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\{(?P<bad>[^}]*)\}?)"
)
# How ``tomllib`` ends its messages: the line is moved to the front, as in all other complaints.
_PLACE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)\s*$")
# What ``tomllib`` says of a table that is declared again: the names are a tuple of Python.
_TWICE = re.compile(r"Cannot declare \((.*)\) twice")
_NAME = re.compile(r"'([^']*)'")
_WITHOUT_QUOTES = ("Invalid value", "Expected newline or end of document after a statement")
"""What ``tomllib`` says of ``name = text`` and ``address = 127.0.0.1:5672``."""
_WITH_CONDITIONS = ("engines", "routes")
"""Sections whose tables may have a key ``when``."""


class TopologyFile(msgspec.Struct, kw_only=True):
    """The values of a file as they were written, not checked yet."""

    name: str
    """The name in complaints: the path that the user gave."""
    values: dict[str, Any]
    lines: dict[Path, int]
    from_environment: set[Path]
    """Strings that consist of one variable only.  They may be converted to a number or a truth value."""
    complaints: list[str]
    warnings: list[str] = []
    """What is probably not meant, and could be."""
    left_out: set[Path] = set()
    """Engines and routes whose ``when`` is empty; the check adds optional engines whose kind
    is not installed."""
    with_variables: set[Path] = set()
    """Strings with a variable in them.  They are never shown, because they may be secrets."""
    without_value: set[Path] = set()
    """Strings with a variable that is not set, which has been reported: what follows from it is not."""
    from_python: bool = False
    """Whether the values come from a plan made in Python.  They may then be of any type that can be
    converted."""

    def line(self, path: Path) -> int:
        """Return the line of a value, or of the nearest table around it."""
        while path:
            if path in self.lines:
                return self.lines[path]
            path = path[:-1]
        return 1

    def at(self, path: Path) -> str:
        """Return the value at a path, as text."""
        value: Any = self.values
        for name in path:
            value = value[name]
        return str(value)

    def shown(self, path: Path, value: Any) -> str:
        """Return a value as a complaint may show it."""
        return "(from the environment)" if path in self.with_variables else repr(value)

    def complain(self, path: Path, text: str) -> None:
        """Add a complaint about a value."""
        self.complaints.append(f"{self.name}:{self.line(path)}: {text}")

    def warn(self, path: Path, text: str) -> None:
        """Add a warning about a value."""
        self.warnings.append(f"{self.name}:{self.line(path)}: warning: {text}")


def read_file(path: str | FilePath, environ: Mapping[str, str] = os.environ) -> TopologyFile:
    """Read a topology file; ``PlanError`` if it cannot be read or is not TOML."""
    try:
        # With or without the byte order mark that some editors on Windows begin a file with.
        text = FilePath(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise PlanError([f"{path}: {error.strerror or error}"]) from error
    except UnicodeDecodeError as error:
        raise PlanError([f"{path}: not UTF-8, at byte {error.start}"]) from error
    return read_text(text, str(path), environ)


def read_text(text: str, name: str = "<topology>", environ: Mapping[str, str] = os.environ) -> TopologyFile:
    """Read a topology from a text; ``name`` is used in complaints instead of a path."""
    # As ``tomllib`` does itself.  Otherwise the positions of the two readers could differ.
    text = text.replace("\r\n", "\n")
    try:
        values, lines = tomllib.loads(text), lines_of(text)
    except tomllib.TOMLDecodeError as error:
        raise PlanError([_syntax_error(str(error), text, name)]) from error
    # Valid TOML that is too much for Python: a number of more than 4,300 digits is a ``ValueError``, lists a
    # thousand deep are a ``RecursionError``.  Uncaught they would end a running system on SIGHUP.
    except (ValueError, RecursionError) as error:
        raise PlanError([f"{name}:1: cannot be read: {error}"]) from None
    file = TopologyFile(name=name, values={}, lines=lines, from_environment=set(), complaints=[])
    file.values = _interpolated(file, (), values, environ)
    return file


def _syntax_error(message: str, text: str, name: str) -> str:
    place = _PLACE.search(message)
    # "at end of document" has no number.
    line = int(place.group(1)) if place and place.group(1) else text.count("\n") + 1
    text = _PLACE.sub("", message)
    twice = _TWICE.fullmatch(text)
    if twice:
        return f"{name}:{line}: [{'.'.join(_NAME.findall(twice[1]))}] is there twice; join the two tables, or rename one"
    hint = '; text needs quotes, as in name = "text"' if text in _WITHOUT_QUOTES else ""
    return f"{name}:{line}: not TOML: {text}{hint}"


def _interpolated(file: TopologyFile, path: Path, value: Any, environ: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        read: dict[str, Any] = {}
        if len(path) == 2 and path[0] in _WITH_CONDITIONS and "when" in value:
            # First, since nothing else is read of a table that is left out: its variables need not be set.
            read["when"] = _interpolated(file, (*path, "when"), value["when"], environ)
            if read["when"] == "":
                file.left_out.add(path)
                return {}
        for key, each in value.items():
            if key not in read:
                read[key] = _interpolated(file, (*path, key), each, environ)
        return read
    if isinstance(value, list):
        return [_interpolated(file, (*path, number), each, environ) for number, each in enumerate(value)]
    if not isinstance(value, str) or "$" not in value:
        return value
    # Noted even if the variable is only a part of the string: no complaint may show any of it.
    if any(match["name"] for match in _VARIABLE.finditer(value)):
        file.with_variables.add(path)
    whole = _VARIABLE.fullmatch(value)
    if whole and whole["name"]:
        file.from_environment.add(path)
    return _VARIABLE.sub(lambda match: _replacement(file, path, match, environ), value)


def _replacement(file: TopologyFile, path: Path, match: re.Match[str], environ: Mapping[str, str]) -> str:
    if match["dollar"]:
        return "$"
    name, default = match["name"], match["default"]
    if not name:
        file.complain(
            path,
            f"{match.group()!r} is not a variable; write ${{NAME}}, ${{NAME:-default}}, or $$ for a dollar",
        )
        return ""
    # The default ends at the first brace, so that ``${A:-${B:-x}}`` would be the text ``${B:-x`` and a brace.
    if default and "${" in default:
        file.complain(
            path, f"the default of {name} has a variable in it, which is not possible; write plain text"
        )
    found = environ.get(name, "")
    # As in a shell, ":-" also replaces an empty value.  Without a default an empty variable is empty text.
    if found or (default is None and name in environ):
        return found
    if default is None:
        file.without_value.add(path)
        file.complain(path, f"the environment has no {name}; set it, or write ${{{name}:-default}}")
        return ""
    return str(default)
