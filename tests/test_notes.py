"""Of many cases in one test each that fails is told, and all are tried."""

from __future__ import annotations

import inspect

import pytest

from tests.notes import for_each


def _tried(*names: str) -> list[str]:
    """Try the names as cases, of which those with an x fail; return what pytest would print as their notes."""
    tried = []

    @for_each("name", names)
    def test(name: str) -> None:
        tried.append(name)
        assert "x" not in name

    try:
        test()
    except AssertionError as error:
        return [*error.__notes__, *tried]
    except BaseExceptionGroup as group:
        return [*(error.__notes__[0] for error in group.exceptions), *tried]
    return tried


def test_all_cases_are_tried_and_those_that_fail_are_named() -> None:
    assert _tried("a", "b") == ["a", "b"]
    assert _tried("ax", "b") == ["the case: 'ax'", "ax", "b"]
    assert _tried("ax", "b", "cx") == ["the case: 'ax'", "the case: 'cx'", "ax", "b", "cx"]


def test_what_pytest_says_has_failed_has_failed() -> None:
    @for_each("number, text", [(1, "a"), (2, "b")], ids=["one", "two"])
    def test(number: int, text: str) -> None:
        with pytest.raises(ValueError, match=text):
            int(str(number))

    with pytest.raises(BaseExceptionGroup, match="2 of 2 cases") as caught:
        test()
    notes = [error.__notes__ for error in caught.value.exceptions]
    assert notes == [["the case: one"], ["the case: two"]]


def test_other_arguments_are_fixtures_and_tables_may_be_crossed() -> None:
    seen = []

    @for_each("one", [1, 2])
    @for_each("two", "ab", ids=str.upper)
    def test(one: int, two: str, path: str) -> None:
        seen.append(f"{path}{one}{two}")

    assert list(inspect.signature(test).parameters) == ["path"]
    test(path="/")
    assert seen == ["/1a", "/1b", "/2a", "/2b"]


@for_each("tables", [[], ["a"]], ids=["none", "one"])
def test_a_table_that_is_wrong_is_told_at_once(tables: list[str]) -> None:
    with pytest.raises(AssertionError, match=r"no cases|has no argument other|2 ids for 1 cases"):

        @for_each("other", tables, ids=["a", "b"] if tables else None)
        def test(name: str) -> None:
            pass
