"""Registered files: one that somebody has deleted is not taken for one that was never there."""

from __future__ import annotations

from pathlib import Path

from kernel.hosting.registered import forget_registered, is_missing, missing_in, replace_registered


def test_a_file_that_was_deleted_is_missed_until_it_is_written_or_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    assert not is_missing(path)
    replace_registered(path, b"1")
    replace_registered(path, b"2")
    replace_registered(tmp_path / "b.json", b"3")
    assert (path.read_bytes(), is_missing(path), missing_in(tmp_path, ".json")) == (b"2", False, [])
    path.unlink()
    assert is_missing(path)
    assert missing_in(tmp_path, ".json") == [path]
    replace_registered(path, b"4")
    assert not is_missing(path)
    forget_registered(path)
    assert [other.name for other in tmp_path.iterdir() if other.stem == "a"] == []
    assert not is_missing(path)
    forget_registered(path)


def test_a_crash_leaves_no_file_that_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    replace_registered(path, b"1")
    path.with_suffix(".known").unlink()  # between the two steps of either function
    assert missing_in(tmp_path, ".json") == []
    replace_registered(path, b"2")
    path.unlink()
    assert is_missing(path)
