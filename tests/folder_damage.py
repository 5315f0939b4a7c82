"""What may happen to the files of a folder: each one is removed, cut, emptied, or swapped for another of its kind.

The files are those that the folder has.  A new kind of file is therefore covered without a new test.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple


class Damage(NamedTuple):
    """What has happened to a copy of a folder."""

    what: str
    name: str
    """The file, from the folder."""
    folder: Path
    files: tuple[str, ...]
    """The names of the files that are not as they were."""

    def is_told_in(self, words: list[str]) -> bool:
        """Whether what was said names one of these files."""
        return any(name in said for name in self.files for said in words)

    def __str__(self) -> str:
        return f"{self.name} {self.what}"


def files_of(folder: Path) -> list[str]:
    """Return the names of all files, also of those in folders of the folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def damaged(folder: Path, others: Path, copies: Path, *, within: Sequence[str] = ("",)) -> Iterator[Damage]:
    """Yield copies of a folder with one damage each.  ``others``: a folder of another owner.

    ``within``: only of files in these folders of the folder.  A damage that changes nothing (a file that is
    empty already) is left out.
    """
    names = [name for name in files_of(folder) if name.startswith(tuple(within))]
    ours = {name: (folder / name).read_bytes() for name in names}
    theirs = {name: (others / name).read_bytes() for name in files_of(others)}
    copy = copies / "copy"
    for name in ours:
        for what, changes in _changes(name, ours, theirs):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(folder, copy)
            for each, octets in changes.items():
                if octets is None:
                    (copy / each).unlink()
                else:
                    (copy / each).write_bytes(octets)
            yield Damage(what, name, copy, tuple(Path(each).name for each in changes))


def _changes(
    name: str, ours: dict[str, bytes], theirs: dict[str, bytes]
) -> Iterator[tuple[str, dict[str, bytes | None]]]:
    octets = ours[name]
    yield "is removed", {name: None}
    if octets:
        yield "is emptied", {name: b""}
    if len(octets) > 1:
        yield "is cut", {name: octets[: len(octets) // 2]}
    behind = [other for other in ours if other > name and _kind(other) == _kind(name)]
    for other in dict.fromkeys(behind[:1] + behind[-1:]):  # not all pairs: the next one, and the last one
        if ours[other] != octets:
            yield f"is swapped with {other}", {name: ours[other], other: octets}
    foreign = [there for other, there in theirs.items() if _kind(other) == _kind(name) and there != octets]
    for there in foreign[:1]:
        yield "is another folder's", {name: there}


def _kind(name: str) -> str:
    """Return the name without what distinguishes files of one kind: their numbers, and in a folder their names."""
    path = Path(name)
    stem = re.sub(r"\d+", "#", path.stem) if path.parent == Path() else "*"
    return str(path.parent / f"{stem}{path.suffix}")
