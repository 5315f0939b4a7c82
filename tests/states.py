"""The state of objects of ours, to compare what two ways to the same end leave behind."""

from __future__ import annotations

from collections import deque
from typing import Any


def dump(what: Any, seen: set[int], leave_out: frozenset[str]) -> Any:
    """Return what an object consists of, down to numbers and strings, as far as it is ours.

    Each object once; of those that were ``seen``, and of keys, what they are.  ``leave_out``: names of
    attributes.
    """
    kind = type(what)
    if isinstance(what, (list, tuple, deque)):
        return [dump(each, seen, leave_out) for each in what]
    if isinstance(what, dict):
        return {_name(key): dump(value, seen, leave_out) for key, value in what.items()}
    ours = kind.__module__.startswith("plugins.") and not isinstance(what, (int, str))
    # Values may be shared or not.
    value = getattr(getattr(kind, "__struct_config__", None), "frozen", False)
    if not ours or (id(what) in seen and not value):
        return what if isinstance(what, (int, float, str, bytes, type(None))) else _name(what)
    seen.add(id(what))
    names = {*getattr(what, "__dict__", ()), *getattr(kind, "__struct_fields__", ())}
    for base in kind.__mro__:
        names |= set(getattr(base, "__slots__", ()))
    return {
        name: dump(getattr(what, name), seen, leave_out)
        for name in sorted(names - leave_out)
        if not callable(getattr(what, name, None))
    }


def _name(what: Any) -> str:
    if isinstance(what, (int, str, bytes, tuple)):
        return repr(what)
    number = getattr(what, "number", "")
    return type(what).__name__ if callable(number) else f"{type(what).__name__} {number}"


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Return where two dumps differ."""
    if type(one) is type(other) is dict and one.keys() == other.keys():
        pairs = [(f"{where}.{name}", one[name], other[name]) for name in one]
    elif type(one) is type(other) is list and len(one) == len(other):
        pairs = [(f"{where}[{at}]", *each) for at, each in enumerate(zip(one, other, strict=True))]
    else:
        return [] if one == other else [f"{where}: {one} and {other}"]
    return [found for name, each, another in pairs for found in differences(each, another, name)]
