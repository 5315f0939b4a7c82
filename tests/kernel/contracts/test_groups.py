"""How members of a group write their patterns."""

from __future__ import annotations

import pytest

from kernel.contracts.groups import in_group, split_group


@pytest.mark.parametrize("pattern", ["job.*", "prefix:job", "", "group:inner:x"])
def test_a_pattern_of_a_member_says_its_group(pattern: str) -> None:
    assert split_group(in_group(pattern, "workers")) == ("workers", pattern)


@pytest.mark.parametrize("pattern", ["job.*", "group", "group:", "group::x", "group:name"])
def test_other_patterns_belong_to_no_group(pattern: str) -> None:
    assert split_group(pattern) == ("", pattern)


@pytest.mark.parametrize("name", ["", "a:b"])
def test_a_name_that_cannot_be_read_back_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="without a colon"):
        in_group("x", name)
