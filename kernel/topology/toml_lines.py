"""Where each key of a TOML text stands.  ``tomllib`` reads the values but keeps no positions.

The text has been read by ``tomllib`` before, so it is valid and this scanner need not look for mistakes: it
follows table headers, keys, arrays and inline tables, and skips everything else.
"""

from __future__ import annotations

import re

Path = tuple[str | int, ...]
"""The way to a value: ``("routes", 0, "from")``."""

_SPACE = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_STRING = re.compile(r'"""(?:\\.|[^\\])*?"{3,5}|\'\'\'.*?\'{3,5}|"(?:\\.|[^"\\])*"|\'[^\']*\'', re.DOTALL)
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
        self._tables: dict[Path, int] = {}  # how many tables an array of tables has so far

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
        for length in range(1, len(path) + 1):  # a dotted key makes its tables on the way
            self._lines.setdefault(path[:length], self._text.count("\n", 0, self._at) + 1)

    def _header(self, brackets: int) -> Path:
        start = self._at
        self._at += brackets
        names = self._key()
        path: Path = ()
        for name in names[: len(names) - (brackets - 1)]:
            path = self._newest((*path, name))
        if brackets == 2:
            array: Path = (*path, names[-1])
            number = self._tables[array] = self._tables.get(array, -1) + 1
            path = (*array, number)
        end, self._at = self._at, start
        self._note(path)
        self._at = end + brackets
        return path

    def _newest(self, path: Path) -> Path:
        """In an array of tables a header speaks of the newest one."""
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
        self._at = end + 1  # "="
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
    if text.startswith("'"):
        return text[1:-1]
    return _ESCAPE.sub(_character, text[1:-1])


def _character(match: re.Match[str]) -> str:
    code = match.group(1)
    return chr(int(code[1:], 16)) if code[0] in "uU" and len(code) > 1 else _ESCAPED.get(code, code)
