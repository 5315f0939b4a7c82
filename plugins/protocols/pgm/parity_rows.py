"""Rows: what of a packet goes into the parity of its group (RFC 3208, 11.2).

A row has three fields: the data, padded to the longest of the group; its length, if lengths differ
(OPT_VAR_PKTLEN); and the value of OPT_FRAGMENT, if a packet of the group has this option. A parity packet
carries the parity of the first two fields as its data, and that of the third in an OPT_FRAGMENT of its own,
which is marked OP_ENCODED.

Where the RFC has the bit OP_ENCODED_NULL for a packet without the option, this implementation has a fragment
of size 0: a unit in fragments is never empty.
"""

from __future__ import annotations

from collections.abc import Collection
from struct import Struct

from plugins.protocols.pgm.extensions import NONE, Extensions, Fragment

_LENGTH = 2
_FRAGMENT = Struct(">III")

Item = tuple[bytes, Fragment | None]
"""Data of a packet, and which fragment it is, if one."""


class RowShape:
    """How the rows of one group are composed."""

    __slots__ = ("fragments", "size", "variable")

    def __init__(self, size: int, *, variable: bool, fragments: bool) -> None:
        self.size = size
        self.variable = variable
        self.fragments = fragments

    @classmethod
    def of_items(cls, items: Collection[Item]) -> RowShape:
        """Return the shape for these packets."""
        sizes = {len(data) for data, _ in items}
        fragments = any(fragment is not None for _, fragment in items)
        return cls(max(sizes), variable=len(sizes) > 1, fragments=fragments)

    @classmethod
    def of_parity(cls, data: bytes, *, variable: bool, extensions: Extensions) -> RowShape:
        """Return the shape that a parity packet announces."""
        size = len(data) - (_LENGTH if variable else 0)
        return cls(size, variable=variable, fragments=extensions.fragment is not None)

    def row(self, item: Item) -> bytes | None:
        """Return a packet's row; None if it does not fit the shape."""
        data, fragment = item
        # The shape comes from a parity packet. A data packet that does not fit was not encoded in it.
        if len(data) > self.size or (fragment is not None and not self.fragments):
            return None
        row = data.ljust(self.size, b"\0")
        if self.variable:
            row += len(data).to_bytes(_LENGTH, "big")
        if self.fragments:
            row += _pack(fragment or Fragment(0, 0, 0))
        return row

    def item(self, row: bytes) -> Item | None:
        """Return the packet of a row; None if there can be none."""
        end = self.size
        if self.variable:
            end = int.from_bytes(row[self.size : self.size + _LENGTH], "big")
            # The length was computed from other packets, so a damaged or forged one among them makes it
            # arbitrary.
            if end > self.size:
                return None
        fragment = Fragment(*_FRAGMENT.unpack(row[-_FRAGMENT.size :])) if self.fragments else None
        return row[:end], fragment if fragment is not None and fragment.size else None

    def parity_of_row(self, row: bytes) -> tuple[bytes, Extensions]:
        """Return data and options of a parity packet."""
        if not self.fragments:
            return row, NONE
        fragment = Fragment(*_FRAGMENT.unpack(row[-_FRAGMENT.size :]))
        return row[: -_FRAGMENT.size], Extensions(fragment=fragment, encoded=True)

    @staticmethod
    def row_of_parity(data: bytes, extensions: Extensions) -> bytes:
        """Return the row of a parity packet."""
        return data if extensions.fragment is None else data + _pack(extensions.fragment)


def _pack(fragment: Fragment) -> bytes:
    return _FRAGMENT.pack(fragment.first, fragment.offset, fragment.size)
