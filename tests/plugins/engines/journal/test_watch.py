"""Watching a directory: as Linux tells it, and by looking where no system call does."""

from __future__ import annotations

import select
from pathlib import Path

import pytest

from plugins.engines.journal import watch
from plugins.engines.journal.watch import DirectoryWatch, watch_directory

TIMEOUT = 30.0


class _WithoutInotify:
    """A C library as that of macOS."""


@pytest.fixture(params=["inotify", "looks"])
def watched(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    if request.param == "looks":
        monkeypatch.setattr(watch.ctypes, "CDLL", lambda *_, **__: _WithoutInotify())
    return tmp_path


def has_changed(watching: DirectoryWatch) -> None:
    """Wait until it is told, and take notice."""
    assert select.select([watching], [], [], TIMEOUT)[0]
    watching.drain()


def test_each_sort_of_change_is_told(watched: Path) -> None:
    file = watched / "a.index"
    watching = watch_directory(watched)
    try:
        assert not select.select([watching], [], [], 0)[0]
        file.write_bytes(b"1")
        has_changed(watching)
        with file.open("ab") as appended:
            appended.write(b"2")
        has_changed(watching)
        (watched / "new").write_bytes(b"3")
        has_changed(watching)
        (watched / "new").rename(file)
        has_changed(watching)
    finally:
        watching.close()


def test_what_was_before_is_no_change(watched: Path) -> None:
    (watched / "a.index").write_bytes(b"1")
    watching = watch_directory(watched)
    try:
        # Longer than the time between two looks.
        assert not select.select([watching], [], [], 3 * watch._LOOK)[0]
    finally:
        watching.close()


def test_a_missing_directory(watched: Path) -> None:
    with pytest.raises(OSError, match="No such file or directory"):
        watch_directory(watched / "none")


def test_a_directory_that_goes(watched: Path) -> None:
    folder = watched / "j"
    folder.mkdir()
    (folder / "a").write_bytes(b"1")
    watching = watch_directory(folder)
    try:
        (folder / "a").unlink()
        folder.rmdir()
    finally:
        watching.close()
