r"""Escapes in names and values of headers (STOMP 1.2, Value Encoding).

1.0 has none.  1.1 has ``\n``, ``\c`` and ``\\``.  1.2 adds ``\r``.  CONNECT and CONNECTED have none in any
version: pass ``Version.V1_0`` for them.
"""

from __future__ import annotations

import re

from plugins.protocols.stomp.errors import CannotCarry, Fault
from plugins.protocols.stomp.versions import Version

_MEANINGS: dict[Version, dict[str, str]] = {
    Version.V1_0: {},
    Version.V1_1: {r"\n": "\n", r"\c": ":", r"\\": "\\"},
    Version.V1_2: {r"\n": "\n", r"\c": ":", r"\\": "\\", r"\r": "\r"},
}
_FORMS = {
    version: str.maketrans({meaning: form for form, meaning in meanings.items()})
    for version, meanings in _MEANINGS.items()
}
# A backslash at the end of a line is a sequence without a second character.
_SEQUENCE = re.compile(r"\\.?", re.DOTALL)


def unescape(text: str, version: Version) -> str:
    """Return what ``text`` stands for.  An undefined sequence is a ``Fault``."""
    if "\\" not in text or version is Version.V1_0:
        return text
    meanings = _MEANINGS[version]

    def meaning(found: re.Match[str]) -> str:
        sequence = found[0]
        if sequence not in meanings:
            raise Fault(
                "Invalid escape", f"{sequence!r} is no escape sequence of STOMP {version} in {text!r:.200}"
            )
        return meanings[sequence]

    return _SEQUENCE.sub(meaning, text)


def escape(text: str, version: Version) -> str:
    """Escape what has an escape in this version."""
    # Most names and values are plain words, which a translation would copy letter by letter.
    return text if text.isalnum() else text.translate(_FORMS[version])


def header_line(name: str, value: str, version: Version) -> bytes:
    """Encode one header entry with its end of line.  Raises ``CannotCarry``."""
    # NUL has no escape in any version.  Nothing forbids it in a header, but most clients take it for the end
    # of the frame.
    if not name or "\0" in name or "\0" in value:
        raise CannotCarry(f"header {name!r:.80} is empty or contains NUL")
    if version is Version.V1_0 and (":" in name or "\n" in name or "\n" in value):
        raise CannotCarry(f"header {name!r:.80} needs an escape, which STOMP 1.0 does not have")
    # Without an escape it would belong to the end of the line.
    if version is not Version.V1_2 and value.endswith("\r"):
        raise CannotCarry(f"header {name!r:.80} ends with a carriage return, as lines of STOMP {version} may")
    try:
        return f"{escape(name, version)}:{escape(value, version)}\n".encode()
    except UnicodeEncodeError:
        raise CannotCarry(f"header {name!r:.80} is not UTF-8") from None
