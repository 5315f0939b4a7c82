"""Checks the options in a file against the options class of their kind.

Reports all mistakes, each with its line.

``msgspec.convert`` stops at the first mistake and does not know lines.  So this module goes through structs
field by field, and uses ``msgspec.convert`` for single values only.  What it says of a value is translated
into the words of TOML: "a whole number", not "`int`".

Strictness differs by where a value comes from.  A number in quotes is a mistake in a file.  It is right where
the value is one environment variable, since variables are always text, and in a plan made in Python.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import msgspec

from kernel.contracts.errors import nearest, similar
from kernel.topology.file import TopologyFile
from kernel.topology.toml_lines import Path

_PLAIN = {
    "array": "a list",
    "bool": "true or false",
    "bytes": "text",
    "float": "a number",
    "int": "a whole number",
    "null": "nothing",
    "object": "a table",
    "str": "text",
}
_PLACE = re.compile(r" - at `(key in )?\$([^`]*)`$")
_NUMBER = re.compile(r"\[(\d+)\]")
_AFTER = re.compile(r"[.:\[]| = ")
"""What follows a name at the beginning of a complaint."""
_REQUIRED = msgspec.NODEFAULT


def check_options(
    file: TopologyFile,
    path: Path,
    values: dict[str, Any],
    options: type[msgspec.Struct],
    where: str,
    others: Iterable[str] = (),
) -> dict[str, Any]:
    """Check ``values`` against an options class; return them, with strings from the environment converted.

    Complaints go to ``file``.  ``where`` is the beginning of each: ``[engines.link]``.  ``others`` are
    further keys that hints may suggest.
    """
    before = len(file.complaints)
    checked = _struct(file, path, values, options, where, others)
    if len(file.complaints) == before:
        text = _refused(checked, options)
        if text:
            place, text = _placed(file, path, values, text)
            file.complain(place, f"{where} {text}")
    return checked


def _refused(checked: dict[str, Any], options: type[msgspec.Struct]) -> str:
    """Say what an options class refuses, although field by field everything is right; empty: nothing.

    It checks what concerns several fields or needs code, as an address does, in its ``__post_init__``.
    """
    try:
        msgspec.convert(checked, options, strict=False)
    except msgspec.ValidationError as error:
        return _PLACE.sub("", str(error))
    return ""


def _inner_struct(
    file: TopologyFile, path: Path, values: dict[str, Any], struct: type[msgspec.Struct], where: str
) -> dict[str, Any]:
    """Check a table inside the options, its class's own checks included: of these msgspec tells no place."""
    before = len(file.complaints)
    checked = _struct(file, path, values, struct, where)
    text = _refused(checked, struct) if len(file.complaints) == before else ""
    if text:
        place, told = _placed(file, path, values, text)
        # A text that begins with a key, and goes on where ``where`` ends; or one about the whole table.
        file.complain(place, f"{where}.{told}" if place != path else f"{where}: {told}")
    return checked


def _placed(file: TopologyFile, path: Path, values: dict[str, Any], text: str) -> tuple[Path, str]:
    """Return the path and the text of a complaint that an options class has raised.

    A text that begins with the name of a key, as in ``address: ...`` or ``users.me.vhosts: ...``, belongs to
    that key.  A text with a value from the environment is replaced, since the value may be secret.
    """
    # ``__post_init__`` knows neither paths nor lines.  By convention its text begins with the field.
    return without_secrets(file, path, (*path, *_named(values, text)), text)


def _named(values: Any, text: str) -> Path:
    """Return the way to the value with whose name a text begins, as far as it is in the file.

    Empty: the text begins with no name.
    """
    place: list[str | int] = []
    while True:
        number = _NUMBER.match(text) if isinstance(values, list | tuple) else None
        if number and int(number[1]) < len(values):
            key: str | int = int(number[1])
            text = text[number.end() :]
        else:
            # A name may have dots in it, and begin with another one.
            names = values if isinstance(values, dict) else {}
            fitting = [each for each in names if text.startswith(each) and _AFTER.match(text, len(each))]
            if not fitting:
                return tuple(place)
            name = max(fitting, key=len)
            key, text = name, text[len(name) :]
        values = values[key]
        place.append(key)
        text = text.removeprefix(".")


def without_secrets(file: TopologyFile, path: Path, place: Path, text: str) -> tuple[Path, str]:
    """Return the path and the text of a complaint without a value from the environment.

    It is about the value at ``place``, or one inside of it; ``path`` is that of the engine's table.
    """
    # The value need not be the whole text: a password may stand inside the address that is complained about.
    # The complaint then names the variable's place, and leaves out the text with the value.
    # Sorted, since a set has another order in each process, and a file should have the same complaints each
    # time.
    for told in sorted(file.with_variables, key=str):
        if told == place or (told[: len(place)] == place and file.at(told) in text):
            name = ".".join(map(str, told[len(path) :]))
            return told, f"{name}: the value from the environment is not valid"
    return place, text


@cache
def _fields(struct: type[msgspec.Struct]) -> dict[str, msgspec.structs.FieldInfo]:
    """Return the fields of a struct by their keys in a file.  To read its annotations takes about 1 ms."""
    # ``encode_name``: a key in a file may differ from the field's name, as ``from`` does.
    return {field.encode_name: field for field in msgspec.structs.fields(struct)}


def _struct(
    file: TopologyFile,
    path: Path,
    values: dict[str, Any],
    struct: type[msgspec.Struct],
    where: str,
    others: Iterable[str] = (),
) -> dict[str, Any]:
    fields = _fields(struct)
    checked: dict[str, Any] = {}
    meant: set[str] = set()
    for key, value in values.items():
        if key in fields:
            checked[key] = _value(file, (*path, key), value, fields[key].type, f"{where} {key}")
        else:
            file.complain((*path, key), f"{where} has no key {key!r}; {nearest(key, [*fields, *others])}")
            if near := similar(key, fields):
                meant.add(near)
    # After all keys, of which one may be a misspelling of a field that is missing.
    for name, field in fields.items():
        required = field.default is _REQUIRED and field.default_factory is _REQUIRED
        # A misspelt key has been reported with a hint.  It is not reported a second time as missing.
        if required and name not in values and name not in meant:
            file.complain(path, f"{where} lacks {name!r}, which must be {_described(field.type)}")
    return checked


def _value(file: TopologyFile, path: Path, value: Any, wanted: Any, where: str) -> Any:
    """Check one value, recursively for structs and for tables and lists of them."""
    wanted = _bare(wanted)
    arguments = get_args(wanted)
    # Wherever a struct is wanted and a table is given, its keys are checked here, so that each has its line.
    # Everything else goes to ``msgspec.convert`` as a whole, lists of plain values included.
    if isinstance(value, dict):
        if _is_struct(wanted):
            return _inner_struct(file, path, value, wanted, where)
        if get_origin(wanted) is dict and _is_struct(_bare(arguments[1])):
            return {
                key: _value(file, (*path, key), each, arguments[1], f"{where}.{key}")
                for key, each in value.items()
            }
    if (
        isinstance(value, list)
        and get_origin(wanted) in (list, tuple, set, frozenset)
        and _is_struct(_bare(arguments[0]))
    ):
        return [
            _value(file, (*path, number), each, arguments[0], f"{where}[{number}]")
            for number, each in enumerate(value)
        ]
    return _leaf(file, path, value, wanted, where)


def _leaf(file: TopologyFile, path: Path, value: Any, wanted: Any, where: str) -> Any:
    # Also if only a value inside is from the environment: a list of numbers may have one such element.
    lax = file.from_python or any(place[: len(path)] == path for place in file.from_environment)
    try:
        converted = msgspec.convert(value, wanted, strict=not lax)
    except msgspec.ValidationError as error:
        hint = _as_table(file, path, value, wanted)
        file.complain(
            path, f"{where}{_shown(file, path, value)}: {_explained(str(error), value, wanted)}{hint}"
        )
        # The plan is not used after a complaint, so that a wrong value may stay in it.
        return value
    # Back to what a file could have held: the options class converts it once more when the engine is made.
    return msgspec.to_builtins(converted) if lax else value


def _as_table(file: TopologyFile, path: Path, value: Any, wanted: Any) -> str:
    """Say how a text is written that stands where a table is wanted: as its first key."""
    if not (_is_struct(wanted) and isinstance(value, str)):
        return ""
    first = next(iter(_fields(wanted)))
    text = "..." if path in file.with_variables else value
    return f"; write {path[-1]} = {{ {first} = {json.dumps(text, ensure_ascii=False)} }}"


def _bare(wanted: Any) -> Any:
    """Take off what is around a type: ``X | None`` is X where a file is concerned, which has no null."""
    # Only around a struct.  Elsewhere the annotation has the bounds that ``_leaf`` has checked.
    if get_origin(wanted) is Annotated and _is_struct(get_args(wanted)[0]):
        return get_args(wanted)[0]
    if get_origin(wanted) in (Union, UnionType):
        rest = [each for each in get_args(wanted) if each is not NoneType]
        if len(rest) == 1:
            return _bare(rest[0])
    return wanted


def _is_struct(wanted: Any) -> bool:
    return isinstance(wanted, type) and issubclass(wanted, msgspec.Struct)


def _described(wanted: Any) -> str:
    wanted = _bare(wanted)
    if get_origin(wanted) is Annotated:
        return _described(get_args(wanted)[0])
    if get_origin(wanted) is Literal:
        return " or ".join(json.dumps(choice) for choice in get_args(wanted))
    if get_origin(wanted) in (Union, UnionType):
        return " or ".join(_described(each) for each in get_args(wanted) if each is not NoneType)
    if _is_struct(wanted) or get_origin(wanted) is dict:
        return "a table"
    if get_origin(wanted) in (list, tuple, set, frozenset):
        return "a list"
    return _PLAIN.get(getattr(wanted, "__name__", ""), "a value")


def _shown(file: TopologyFile, path: Path, value: Any) -> str:
    """Show a value in a complaint; never one that came from the environment, for it may be a secret."""
    if path in file.with_variables:
        return " (from the environment)"
    # A table or list would make the line long, and may have values from the environment in it.
    if isinstance(value, dict | list):
        return ""
    text = json.dumps(value, default=str, ensure_ascii=False)
    return f" = {text if len(text) <= 40 else text[:39] + '…'}"


def _explained(message: str, value: Any, wanted: Any) -> str:
    """Say in plain words what msgspec found."""
    # msgspec says "Expected `int`, got `str` - at `$[2]`".  The place inside the value is kept, and "got" is
    # not: the complaint shows the value itself.
    place = _PLACE.search(message)
    inside = f" at {place.group(2).lstrip('.')}" if place and place.group(2) else ""
    message = _PLACE.sub("", message)
    if get_origin(wanted) is Literal:
        choices = [str(choice) for choice in get_args(wanted)]
        near = similar(str(value), choices)
        hint = f"; did you mean {near!r}?" if near else ""
        return f"must be {_described(wanted)}{hint}"
    # Texts of other forms are those of options classes, which are in plain words already.
    found = re.fullmatch(r"Expected (.*?)(?:, got `\w+`)?", message)
    if found is None:
        return f"{message}{inside}"
    plain = re.sub(
        r"`(\w+)(?: \| null)?`", lambda match: _PLAIN.get(match.group(1), match.group(1)), found.group(1)
    )
    return f"must be {re.sub(r'`([^`]*)`', _alternatives, plain)}{inside}"


def _alternatives(match: re.Match[str]) -> str:
    return " or ".join(_PLAIN.get(name, name) for name in match.group(1).split(" | ") if name != "null")
