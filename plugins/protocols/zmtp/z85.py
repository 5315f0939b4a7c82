"""Z85 (32/Z85): octets as printable text, five characters for each four octets.

Keys of CURVE are written so.
"""

from __future__ import annotations

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_VALUES = {character: value for value, character in enumerate(_ALPHABET)}
_BASE = len(_ALPHABET)

KEY_SIZE, KEY_CHARACTERS = 32, 40
"""Sizes of a key of CURVE, in octets and in Z85."""


def encode_z85(octets: bytes) -> str:
    """Return octets, whose number is a multiple of four, as text."""
    if len(octets) % 4:
        raise ValueError(f"{len(octets)} octets; Z85 needs a multiple of 4")
    text: list[str] = []
    for at in range(0, len(octets), 4):
        value = int.from_bytes(octets[at : at + 4], "big")
        text += [_ALPHABET[value // _BASE**power % _BASE] for power in (4, 3, 2, 1, 0)]
    return "".join(text)


def decode_z85(text: str) -> bytes:
    """Return the octets of a text.  ``ValueError`` does not show the text, which may be a secret."""
    if len(text) % 5:
        raise ValueError(f"{len(text)} characters; Z85 needs a multiple of 5")
    octets = []
    for at in range(0, len(text), 5):
        value = 0
        for place, character in enumerate(text[at : at + 5], at + 1):
            if character not in _VALUES:
                raise ValueError(f"character {place} is none of Z85")
            value = value * _BASE + _VALUES[character]
        if value >= 1 << 32:
            raise ValueError(f"characters {at + 1} to {at + 5} are more than four octets")
        octets.append(value.to_bytes(4, "big"))
    return b"".join(octets)


def decode_key(text: str) -> bytes:
    """Return the 32 octets of a key.  ``ValueError`` does not show it."""
    if len(text) != KEY_CHARACTERS:
        raise ValueError(f"a key in Z85 has {KEY_CHARACTERS} characters, this one {len(text)}")
    return decode_z85(text)
