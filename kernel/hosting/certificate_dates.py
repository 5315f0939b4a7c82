"""When certificates expire, as the files say in which they are."""

from __future__ import annotations

import re
import ssl
from datetime import UTC, datetime
from typing import NamedTuple

_BLOCK = re.compile(r"-----BEGIN CERTIFICATE-----.*?-----END CERTIFICATE-----", re.DOTALL)
_VERSION = 0xA0
"""The tag of a certificate's version, which may be missing."""
_SHORT_YEAR = 0x17
"""The tag of a time whose year has two digits (UTCTime)."""


def ends_of(path: str) -> list[datetime]:
    """Return when the certificates of a PEM file expire.

    ``OSError`` or ``ValueError`` if it cannot be read.
    """
    with open(path, encoding="ascii", errors="replace") as file:
        blocks = _BLOCK.findall(file.read())
    if not blocks:
        raise ValueError(f"{path}: there is no certificate in it")
    try:
        return [_end_of(ssl.PEM_cert_to_DER_cert(block)) for block in blocks]
    except (ValueError, IndexError):
        raise ValueError(f"{path}: a certificate in it is damaged") from None


def _end_of(certificate: bytes) -> datetime:
    # RFC 5280, section 4.1: version (optional), serial number, signature, issuer, validity.
    signed = _element(certificate, _element(certificate, 0).begin)
    field = _element(certificate, signed.begin)
    if field.tag == _VERSION:
        field = _element(certificate, field.end)
    for _ in range(3):
        field = _element(certificate, field.end)
    begin = _element(certificate, field.begin)
    end = _element(certificate, begin.end)
    text = certificate[end.begin : end.end].decode("ascii")
    if end.tag == _SHORT_YEAR:
        # Section 4.1.2.5.1.
        text = ("19" if text >= "50" else "20") + text
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)


class _Element(NamedTuple):
    """One element of DER: its tag, and where its content is."""

    tag: int
    begin: int
    end: int


def _element(octets: bytes, at: int) -> _Element:
    tag, length = octets[at], octets[at + 1]
    at += 2
    if length & 0x80:
        count = length & 0x7F
        length = int.from_bytes(octets[at : at + count])
        at += count
    return _Element(tag, at, at + length)
