"""Lines of keys, whatever TOML is written around them."""

from __future__ import annotations

import tomllib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kernel.topology.toml_lines import Path, lines_of

TEXT = r'''
top = 1 # [not.a.table]
dotted . "quo.ted" . 'lit' = """
[not.a.table]
x = 1 \""" """ # x
[a.b]
date = 1979-05-27 07:32:00
text = "a \" [b] = 1" # c
literal = 'C:\'
multi = \'\'\'
# no
[no]\'\'\'
list = [
  1, # one ]
  { x = [2, 3], y.z = "}" },
  "]",
]
[[many]]
k = 1
[[many]]
k = 2
[many.inner]
j = 3
[[many.deep]]
i = 4
'''.replace("\\'\\'\\'", "'''")


def test_every_key_has_its_line() -> None:
    lines = lines_of(TEXT)
    expected: dict[Path, int] = {
        ("top",): 2,
        ("dotted", "quo.ted", "lit"): 3,
        ("a", "b"): 6,
        ("a", "b", "date"): 7,
        ("a", "b", "text"): 8,
        ("a", "b", "literal"): 9,
        ("a", "b", "multi"): 10,
        ("a", "b", "list"): 13,
        ("a", "b", "list", 0): 14,
        ("a", "b", "list", 1, "x"): 15,
        ("a", "b", "list", 1, "x", 1): 15,
        ("a", "b", "list", 1, "y", "z"): 15,
        ("a", "b", "list", 2): 16,
        ("many", 0): 18,
        ("many", 0, "k"): 19,
        ("many", 1, "k"): 21,
        ("many", 1, "inner", "j"): 23,
        ("many", 1, "deep", 0, "i"): 25,
    }
    assert {path: lines.get(path) for path in expected} == expected
    assert paths_of(tomllib.loads(TEXT)) <= set(lines)


def paths_of(value: Any, path: Path = ()) -> set[Path]:
    found = {path} if path else set()
    if isinstance(value, dict):
        for key, each in value.items():
            found |= paths_of(each, (*path, key))
    elif isinstance(value, list):
        for number, each in enumerate(value):
            found |= paths_of(each, (*path, number))
    return found


@given(st.text(alphabet="ab.=[]{}\"'#, \n1", max_size=60))
def test_no_valid_text_confuses_the_scanner(text: str) -> None:
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert paths_of(values) <= set(lines_of(text))
