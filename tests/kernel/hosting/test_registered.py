"""Registered files: one that somebody has deleted or exchanged is not taken for another."""

from __future__ import annotations

from pathlib import Path

from kernel.hosting.registered import (
    forget_registered,
    is_foreign,
    is_missing,
    missing_in,
    replace_registered,
)


def write(path: Path) -> str:
    """Write a file that has only its token; return that."""
    replace_registered(path, lambda token: token.encode())
    return path.read_text()


def test_a_file_that_was_deleted_is_missed_until_it_is_written_or_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert not is_missing(path)
    token = write(path)
    assert write(path) == token
    write(tmp_path / "b.json")
    assert (is_missing(path), missing_in(tmp_path, ".json")) == (False, [])
    path.unlink()
    assert is_missing(path)
    assert missing_in(tmp_path, ".json") == [path]
    assert write(path) == token
    assert not is_missing(path)
    forget_registered(path)
    assert [other.name for other in tmp_path.iterdir() if other.stem == "a"] == []
    assert not is_missing(path)
    forget_registered(path)


def test_the_file_of_another_is_foreign(tmp_path: Path) -> None:
    path, other = tmp_path / "a.json", tmp_path / "b.json"
    ours, theirs = write(path), write(other)
    assert not is_foreign(path, ours)
    assert is_foreign(path, theirs)
    assert not is_foreign(path, ""), "an older version has written it"
    path.with_suffix(".known").write_text("")
    assert is_foreign(path, ours), "one of the two is not as it was"
    forget_registered(path)
    assert not is_foreign(path, theirs)


def test_a_crash_leaves_no_file_that_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write(path)
    path.with_suffix(".known").unlink()  # between the two steps of either function
    assert missing_in(tmp_path, ".json") == []
    assert not is_foreign(path, write(path))
    path.unlink()
    assert is_missing(path)
