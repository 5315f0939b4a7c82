"""The line of each key in a TOML text.  ``tomllib`` reads the values but keeps no positions.

The text has been read by ``tomllib`` before, so it is valid and this scanner need not look for mistakes: it
follows table headers, keys, arrays and inline tables, and skips everything else.

The result maps a path to a line: ``("engines", "link", "address")``, ``("routes", 0, "to", 1)``.  The numbers
in a path count the tables of an array and the elements of a list, so that a path leads through the values of
``tomllib`` as well.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]
"""The way to a value: ``("routes", 0, "from")``."""

# White space includes line ends and comments: nothing here depends on where a line ends.
_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
# The four strings of TOML 1.0, multi-line ones first, since ``""`` is also the beginning of three quotes.  A
# multi-line string may end in two quotes of its own before the closing three: hence ``{3,5}``.
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\])*"|\'[^\']*\'', re.DOTALL)
# A date may have a space before its time of day (TOML 1.0, "Offset Date-Time").  No other scalar has one.
_SCALAR = re.compile(r"[^\s,\]\}#]+(?: \d\d:[^\s,\]\}#]+)?")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")
_ESCAPED = {"b": "\b", "t": "\t", "n": "\n", "f": "\f", "r": "\r"}


def lines_of(text: str) -> dict[Path, int]:
    """Return the line, from 1, of every table and key of a valid TOML text."""
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._lines: dict[Path, int] = {}
        # The number of the newest table of each array of tables, from 0.
        self._tables: dict[Path, int] = {}

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        while self._skip():
            if self._peek("[["):
                table = self._header(2)
            elif self._peek("["):
                table = self._header(1)
            else:
                self._pair(table)
        return self._lines

    def _skip(self) -> bool:
        """Skip white space and comments; return whether there is more."""
        match = _SPACE.match(self._text, self._at)
        if match:
            self._at = match.end()
        return self._at < len(self._text)

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _note(self, path: Path) -> None:
        # ``a.b.c = 1`` makes the tables ``a`` and ``a.b`` on the way.  The first mention of a table is its
        # line.
        for length in range(1, len(path) + 1):
            self._lines.setdefault(path[:length], self._text.count("\n", 0, self._at) + 1)

    def _header(self, brackets: int) -> Path:
        start = self._at
        self._at += brackets
        names = self._key()
        path: Path = ()
        # The last name of ``[[a.b]]`` is that of the array, to which a new table is added below.
        for name in names[: len(names) - (brackets - 1)]:
            path = self._newest((*path, name))
        if brackets == 2:
            array: Path = (*path, names[-1])
            number = self._tables[array] = self._tables.get(array, -1) + 1
            path = (*array, number)
        # Noted at the opening bracket.
        end, self._at = self._at, start
        self._note(path)
        self._at = end + brackets
        return path

    def _newest(self, path: Path) -> Path:
        """Return the path of the table that a header names: in an array of tables it is the newest one."""
        return (*path, self._tables[path]) if path in self._tables else path

    def _key(self) -> list[str]:
        names: list[str] = []
        while True:
            self._skip()
            string = _STRING.match(self._text, self._at)
            match = string or _BARE.match(self._text, self._at)
            if match is None:
                raise ValueError(f"not a key, at character {self._at}")
            names.append(_unquoted(match.group()) if string else match.group())
            self._at = match.end()
            self._skip()
            if not self._peek("."):
                return names
            self._at += 1

    def _pair(self, table: Path) -> None:
        start = self._at
        path = (*table, *self._key())
        end, self._at = self._at, start
        self._note(path)
        # Behind the "=".
        self._at = end + 1
        self._value(path)

    def _value(self, path: Path) -> None:
        self._skip()
        if self._peek("["):
            self._array(path)
        elif self._peek("{"):
            self._inline_table(path)
        else:
            match = _STRING.match(self._text, self._at) or _SCALAR.match(self._text, self._at)
            if match is None:
                raise ValueError(f"not a value, at character {self._at}")
            self._at = match.end()

    def _array(self, path: Path) -> None:
        self._at += 1
        number = 0
        # Commas are skipped like space: ``tomllib`` has found that they are where they have to be.
        while self._skip() and not self._peek("]"):
            if self._peek(","):
                self._at += 1
                continue
            self._note((*path, number))
            self._value((*path, number))
            number += 1
        self._at += 1

    def _inline_table(self, path: Path) -> None:
        self._at += 1
        while self._skip() and not self._peek("}"):
            if self._peek(","):
                self._at += 1
                continue
            self._pair(path)
        self._at += 1


def _unquoted(text: str) -> str:
    # A key is never a multi-line string, so one quote on each side is all there is.
    if text.startswith("'"):
        return text[1:-1]
    return _ESCAPE.sub(_character, text[1:-1])


def _character(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code[1:], 16)) if code[0] in "uU" and len(code) > 1 else _ESCAPED.get(code, code)
