"""The options of ``spark.read``, ``readStream``, ``write`` and ``writeStream`` of the format ``kernel``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self, TypeAlias
from urllib.parse import unquote, urlsplit

import msgspec

from plugins.apis.spark.errors import SparkOptionError
from plugins.apis.spark.running_kernel import journal_of
from plugins.protocols.journal_format.folders import Files, Location, is_address
from plugins.protocols.journal_format.names import segment_names

ROWS_PER_TASK = 1_000_000
ROWS_PER_TRIGGER = 2_000_000
"""With this number all columns stream at 3.1 million rows per second, with half of it at 2.85 million.

Each micro-batch costs some 55 ms, whatever its size."""
_SPARKS_OWN = (
    "checkpointlocation",
    "queryname",
    "asyncprogresstrackingenabled",
    "asyncprogresstrackingcheckpointintervalms",
)
"""Options of Spark itself, in lower case, which it also passes to a source or sink.

``DataStreamWriter.queryName`` is one of them.  Spark acts on them, and refuses what it does not support."""
StartOrEnd: TypeAlias = int | Literal["earliest", "latest"]


class _Options(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Options with names in Spark's style (camelCase), matched without regard to case, as Spark does."""

    @classmethod
    def parse(cls, given: Mapping[str, str]) -> Self:
        """Return the options from Spark's texts.

        Raises ``SparkOptionError``, which names the invalid option.
        """
        known = {name.lower(): name for name in cls.__struct_encode_fields__}
        # Spark passes options of its own as well.  An unknown option is an error: with a misspelled
        # ``startingOffset`` the whole journal would be read, without a word.
        texts = {}
        for name, text in given.items():
            if name.lower() in _SPARKS_OWN:
                continue
            if name.lower() not in known:
                raise SparkOptionError(
                    f"the format kernel has no option {name!r} for this operation; it has: "
                    f"{', '.join(known.values())}"
                )
            texts[known[name.lower()]] = text
        # All values are texts; ``strict=False`` converts them to numbers and booleans.
        try:
            return msgspec.convert(texts, cls, strict=False)
        except msgspec.ValidationError as error:
            raise SparkOptionError(f"an option of the format kernel has an invalid value: {error}") from error


class ReadOptions(_Options, frozen=True, kw_only=True):
    """Options for reading."""

    path: str = ""
    """The journal's directory, or a pattern such as ``/var/journals/*``: then the table has the rows of all
    journals that match.  Every process that reads must see them: the driver, and on a cluster the executors.
    Or the address of a journal's archive (``s3://bucket/folder``), which every computer can read."""
    paths: str = ""
    """Instead of ``path``: several, as a JSON list.  Spark makes it of ``load([...])``."""
    kernel: str = ""
    """Instead of ``path``: the control socket of the running kernel that writes the journal, or ``running``
    for the only one."""
    engine: str = ""
    """The name of the journal's engine, if that kernel has several journals."""
    columns: str = ""
    """The columns to read, separated by commas; empty: all.  Spark does not tell a Python source which
    columns a query uses, and all sixteen take several times as long as two."""
    starting_offset: StartOrEnd = "earliest"
    """The first offset; a stream with a checkpoint continues at its position there.  If retention has deleted
    the row with that number, ``fail_on_data_loss`` decides; ``earliest`` always begins with the first row
    that there is."""
    ending_offset: StartOrEnd = "latest"
    """The offset after the last one; batches only."""
    starting_timestamp: str = ""
    """Instead of an offset: the first time, in ISO 8601 (UTC if it has no zone) or microseconds since
    1970."""
    ending_timestamp: str = ""
    """Instead of an offset: the time to stop before; batches only."""
    rows_per_task: int = ROWS_PER_TASK
    """The number of rows for one task.  A Python task takes 20 to 90 ms before its first row."""
    max_offsets_per_trigger: int = ROWS_PER_TRIGGER
    """The largest number of rows of a micro-batch, so that a backlog is divided; 0: no limit."""
    fail_on_data_loss: bool = True
    """Whether a query fails, rather than continues after the gap, if retention has deleted rows that it has
    not read, or rows are damaged."""
    consumer: str = ""
    """The name under which a stream stores its position in the journal: retention keeps what it has not
    read."""
    pushdown: bool = False
    """Whether filters narrow what is read: those on offset and ts, and on the texts that every message has
    (engine, route, exchange, key).  Needs ``spark.sql.python.filterPushdown.enabled``."""

    def __post_init__(self) -> None:
        if (bool(self.path) + bool(self.paths) + bool(self.kernel)) != 1:
            raise SparkOptionError(
                "give one of the options path (a journal's directory) and kernel (a running kernel's control "
                "socket), and not both. Spark passes a table of CREATE TABLE none of its options: give them in "
                "the query, SELECT ... FROM name WITH (path '...'), or make a temporary view"
            )
        if self.consumer and any(map(is_address, _texts(self.paths) if self.paths else [self.path])):
            raise SparkOptionError(
                f"{self.path or self.paths}: the option consumer writes a position into a journal's directory, and this is an "
                "archive, which is only read. Leave it out, and keep rows as long as a query may be stopped"
            )
        if self.rows_per_task < 1:
            raise SparkOptionError(f"rowsPerTask is {self.rows_per_task}; it must be 1 or more")
        for name in ("starting", "ending"):
            # A number, because the default of an offset is a word: with a word nobody may have set it.
            if getattr(self, f"{name}_timestamp") and isinstance(getattr(self, f"{name}_offset"), int):
                raise SparkOptionError(
                    f"{name}Offset and {name}Timestamp exclude each other: remove one of these options"
                )

    @property
    def several(self) -> bool:
        """Whether the table may have rows of several journals, and so says of each row in which one it is."""
        return names_several(self.path, self.paths)

    @property
    def journals(self) -> list[Location]:
        """The directories and archives of all journals.

        ``SparkOptionError`` if there is none, or one that is named is none.
        """
        if not self.several:
            return [self.journal]
        for name in ("starting_offset", "ending_offset"):
            if isinstance(getattr(self, name), int):
                raise SparkOptionError(
                    f"{self.path or self.paths} may be several journals, and each has offsets of its own: use "
                    "startingTimestamp and endingTimestamp"
                )
        found: dict[Location, None] = {}
        for path in _texts(self.paths) if self.paths else [self.path]:
            found |= dict.fromkeys(_matching(path) if _is_pattern(path) else [_checked(_location(path))])
        return list(found)

    @property
    def journal(self) -> Location:
        """The journal's directory, or its archive.

        ``SparkOptionError`` if there is none, or there may be several.

        A running kernel is asked each time.
        """
        if self.several:
            raise SparkOptionError(
                f"{self.path or self.paths} may be several journals, and a report with a history reads one: make one "
                "of each"
            )
        return _checked(journal_of(self.kernel, self.engine) if self.kernel else _location(self.path))


_MOST_OF_A_NAME = 255
"""Octets that a broker takes as a publisher's name."""


class WriteOptions(_Options, frozen=True, kw_only=True):
    """Options for writing."""

    path: str = ""
    """A journal's directory, seen by the driver and every executor: exactly once."""
    address: str = ""
    """Instead of ``path``: a running kernel, such as ``backend+tcp://127.0.0.1:5556``: at least once, with a
    token per message; exactly once with ``deduplicate``."""
    token: str = ""
    """For batch writes: a write with a token that has already been published does nothing.  To a running
    kernel it needs ``staging``, where tokens are remembered, or ``deduplicate``.  Streams have their own."""
    deduplicate: bool = False
    """For a running kernel: number the messages, so that a broker to which its routes lead drops what is sent
    again.  Needs ``confirm = true`` on these routes, and for batch writes a token."""
    staging: str = ""
    """For a running kernel: a directory that the driver and every executor see, in which rows wait to be
    sent.  The default is the query's checkpoint, and for a batch write the folder for temporary files."""
    timeout: float = 60.0
    """Seconds that a running kernel may take to confirm an epoch's messages."""

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.address):
            raise SparkOptionError(
                "give one of the options path (a journal's directory) and address (of a running kernel), and "
                "not both"
            )
        # A slash would lead out of the folder ``producers``, and a hidden file is one that is being written.
        if "/" in self.token or self.token.startswith("."):
            raise SparkOptionError(
                f"the option token is {self.token!r}; it becomes the name of a file, so it must not "
                "contain a slash or begin with a dot"
            )
        if self.deduplicate and self.path:
            raise SparkOptionError(
                "the option deduplicate is for the broker of a running kernel: give it with address. Into a "
                "journal (path) rows are written exactly once in any case"
            )
        if self.deduplicate and len(self.token.encode()) > _MOST_OF_A_NAME:
            raise SparkOptionError(
                f"the option token has more than {_MOST_OF_A_NAME} octets; with deduplicate it is the publisher's "
                "name in the header x-publisher"
            )


def _location(path: str) -> Location:
    return path if is_address(path) else local_path(path)


def _checked(path: Location) -> Location:
    """Return where a journal is; ``SparkOptionError`` if there is none."""
    if isinstance(path, str):
        if not Files(path).listed()[0]:
            raise SparkOptionError(
                f"there is no segment of a journal at {path}. An engine moves segments to its archive when they "
                "are complete: see its options roll_bytes and roll_seconds"
            )
    elif not segment_names(path):
        there = "the directory has no segment (.index)" if path.is_dir() else "the directory does not exist"
        raise SparkOptionError(
            f"there is no journal at {path}: {there}. A kernel creates a journal when its journal engine "
            "starts"
        )
    return path


def names_several(path: str, paths: str) -> bool:
    """Return whether these options may name several journals.

    A directory may have the characters of a pattern.
    """
    return bool(paths) or (_is_pattern(path) and not local_path(path).is_dir())


def _is_pattern(path: str) -> bool:
    # An address may have options behind a question mark.
    return not is_address(path) and any(character in path for character in "*?[")


def _matching(pattern: str) -> list[Location]:
    """Return the journals that match, by name.  Other directories, and files, are left out."""
    import glob

    found = [Path(each) for each in sorted(glob.glob(str(local_path(pattern))))]
    journals: list[Location] = [each for each in found if each.is_dir() and segment_names(each)]
    if not journals:
        what = f"{len(found)} files and directories, none of which is a journal" if found else "nothing"
        raise SparkOptionError(f"there is no journal at {pattern}: the pattern matches {what}")
    return journals


def _texts(paths: str) -> list[str]:
    try:
        return msgspec.json.decode(paths, type=list[str])
    except msgspec.DecodeError as error:
        raise SparkOptionError(f"the option paths is to be a JSON list of texts: {error}") from None


def local_path(path: str) -> Path:
    """Return the path of a directory; Spark may give it as a ``file:`` URL."""
    parts = urlsplit(path)
    if parts.scheme not in ("", "file"):
        raise SparkOptionError(
            f"{path}: the format kernel needs the path of a mounted directory, not a {parts.scheme} address"
        )
    # Absolute: workers may have another working directory than the driver.
    return Path(unquote(parts.path) if parts.scheme else path).absolute()


def microseconds(moment: str, option: str) -> int:
    """Return a moment in microseconds since 1970."""
    # Not ``isdigit``, which is also true of digits that ``int`` refuses, such as "²".
    if moment.removeprefix("-").isdecimal():
        return int(moment)
    try:
        when = datetime.fromisoformat(moment)
    except ValueError:
        raise SparkOptionError(
            f"{option} is {moment!r}; it must be a time in ISO 8601, such as 2026-01-31T12:00:00, or "
            "microseconds since 1970"
        ) from None
    aware = when if when.tzinfo else when.replace(tzinfo=UTC)
    return round(aware.timestamp() * 1_000_000)
