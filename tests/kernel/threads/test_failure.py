"""What a log says of an engine that raises."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kernel.contracts.errors import KernelError
from kernel.threads.failure import described, traced


def raised(call: Any) -> Exception:
    with pytest.raises(Exception) as caught:
        call()
    return caught.value


def test_type_text_and_place_of_a_mistake_are_told() -> None:
    error = raised(lambda: dict[str, int]()["nokey"])
    assert re.fullmatch(
        rf"KeyError: 'nokey' \({re.escape(__file__)}, line \d+, in <lambda>\)", described(error)
    )
    assert traced(error).endswith("KeyError: 'nokey'")
    assert "Traceback" in traced(error)


def test_the_place_is_the_last_that_is_in_no_library() -> None:
    def reads() -> None:
        json.loads("{")

    assert described(raised(reads)).endswith(
        f"({__file__}, line {reads.__code__.co_firstlineno + 1}, in reads)"
    )


def fails(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [OSError(98, "Address already in use"), KernelError("no such broker")])
def test_errors_whose_texts_are_for_operators_have_no_place(error: Exception) -> None:
    assert described(raised(lambda: fails(error))) == f"{type(error).__name__}: {error}"
