"""The golden examples of docs/backend_protocol.md."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import msgspec

PAGE = Path(__file__).parents[4] / "docs" / "backend_protocol.md"
_BLOCK = re.compile(r'^```golden title="(.*?)"\n(.*?)^```', re.MULTILINE | re.DOTALL)


class Example(msgspec.Struct, frozen=True):
    """One block of the page."""

    name: str
    data: bytes
    words: tuple[str, ...]
    """Its meaning, after the equals sign."""

    @property
    def what(self) -> str:
        return self.words[0]


def read_examples() -> list[Example]:
    """Read the page."""
    return [_read(name, block) for name, block in _BLOCK.findall(PAGE.read_text())]


def _read(name: str, block: str) -> Example:
    data = b""
    meaning = ""
    for line in block.splitlines():
        if line.startswith("= "):
            meaning = line[2:]
            continue
        for token in line.partition("#")[0].split():
            byte, _, times = token.partition("*")
            data += bytes.fromhex(byte) * int(times or 1)
    words = shlex.split(re.sub(r'"(.)" \* (\d+)', lambda found: f'"{found[1] * int(found[2])}"', meaning))
    return Example(name, data, tuple(words))
