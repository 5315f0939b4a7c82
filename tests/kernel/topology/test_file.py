"""Values of a topology file, and what the environment puts into them."""

from __future__ import annotations

import pytest

from kernel.contracts.errors import PlanError
from kernel.topology.file import read_text
from tests.notes import for_each


@for_each(
    "text,value",
    [
        ("plain", "plain"),
        ("${A}", "one"),
        ("x${A}y${A}", "xoney" + "one"),
        ("${B:-two}", "two"),
        ("${EMPTY:-two}", "two"),
        ("${EMPTY}", ""),
        ("${B:-}", ""),
        ("$$", "$"),
        ("$${A}", "${A}"),
        ("100 $", "100 $"),
        ("${B:-a:b/c}", "a:b/c"),
    ],
)
def test_variables_are_replaced(text: str, value: str) -> None:
    file = read_text(f"x = [{{ y = '{text}' }}]", environ={"A": "one", "EMPTY": ""})
    assert file.values == {"x": [{"y": value}]}
    assert file.complaints == []


@pytest.mark.parametrize("environ", [{}, {"A": "one"}])
def test_a_variable_within_a_default_is_complained_about(environ: dict[str, str]) -> None:
    file = read_text("a = 1\nb = '${A:-${B:-x}}'\n", "f", environ=environ)
    assert file.complaints == [
        "f:2: the default of A has a variable in it, which is not possible; write plain text"
    ]


def test_only_a_whole_variable_counts_as_from_the_environment() -> None:
    file = read_text("a = '${X:-1}'\nb = 'x${X:-1}'\nc = ['${X:-1}']\n", environ={})
    assert file.from_environment == {("a",), ("c", 0)}


def test_the_line_of_what_has_none_is_that_of_the_table_around_it() -> None:
    file = read_text("\n[a]\n\nb = 1\n")
    assert file.line(("a", "b")) == 4
    assert file.line(("a", "missing")) == 2
    assert file.line(("nothing",)) == 1


def test_windows_line_ends_count_once() -> None:
    assert read_text("a = 1\r\nb = 2\r\n").line(("b",)) == 2


def test_a_mistake_at_the_end_of_the_text_has_a_line() -> None:
    with pytest.raises(PlanError, match=r"^f:2: not TOML: "):
        read_text("a = 1\nb = [", "f")


@pytest.mark.parametrize(
    "text",
    ["a = " + "9" * 5000, "a = " + "[" * 3000 + "]" * 3000],
    ids=["a number too long", "lists too deep"],
)
def test_what_is_too_much_for_python_is_a_complaint(text: str) -> None:
    """And no other error: that would end the running system which is told to read the file again."""
    with pytest.raises(PlanError) as caught:
        read_text(text, "f")
    assert caught.value.complaints[0].startswith("f:1: cannot be read: ")
