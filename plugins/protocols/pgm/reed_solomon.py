"""Reed-Solomon erasure code over GF(256): any k of a group's packets and parity packets give the k packets.

The code is Rizzo's (RFC 3208, 11.1, refers to it), in its systematic form: a Vandermonde matrix over the
field with polynomial 0x11D, made to begin with the unit matrix.  zfec and OpenPGM compute the same parity.

Multiplying a block by a constant is one ``bytes.translate``, adding blocks is XOR of large integers: about
2.5 us for a packet of 1,400 bytes and each packet that it is made of.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

FIELD = 255
"""Blocks and parity blocks of one group at the most."""
_POLYNOMIAL = 0x11D


def _exponents() -> list[int]:
    powers = [1]
    for _ in range(2 * FIELD):
        # Twice the powers of the field are stored, so that a product needs no reduction of the sum of
        # logarithms.
        following = powers[-1] << 1
        powers.append(following ^ _POLYNOMIAL if following & 0x100 else following)
    return powers


_EXP = _exponents()
_LOG = {power: exponent for exponent, power in enumerate(_EXP[:FIELD])}

Matrix = list[list[int]]


def multiply(a: int, b: int) -> int:
    """Return the product of two elements."""
    return _EXP[_LOG[a] + _LOG[b]] if a and b else 0


def _inverse(a: int) -> int:
    return _EXP[FIELD - _LOG[a]]


@lru_cache(maxsize=256)
def _times(factor: int) -> bytes:
    """Return the table of products with ``factor``."""
    return bytes(multiply(factor, other) for other in range(256))


def encode(blocks: Sequence[bytes], index: int) -> bytes:
    """Return the parity block of that index, counted from 0; the blocks are of one size."""
    return _combine(_parity_row(len(blocks), index), blocks)


def recover(k: int, data: Mapping[int, bytes], parity: Mapping[int, bytes]) -> dict[int, bytes]:
    """Return the missing blocks of a group of ``k``; all blocks have one size.

    ``data`` (by position) has the others, ``parity`` (by index) at least as many as are missing.
    """
    missing = [position for position in range(k) if position not in data]
    indexes = sorted(parity)[: len(missing)]
    if len(indexes) < len(missing):
        raise ValueError(f"{len(data)} packets and {len(parity)} of parity are not {k}")
    # Any selection of indexes does: every square part of the generator matrix is invertible, which is what
    # makes k blocks enough.
    present = sorted(data)
    rows = [_parity_row(k, index) for index in indexes]
    # What the parity blocks have of the missing ones: take away what is known, then solve.
    rests = [
        _combine([1, *(row[position] for position in present)], [parity[index], *(data[p] for p in present)])
        for index, row in zip(indexes, rows, strict=True)
    ]
    inverse = _invert([[row[position] for position in missing] for row in rows])
    return {position: _combine(inverse[at], rests) for at, position in enumerate(missing)}


def _combine(factors: Sequence[int], blocks: Sequence[bytes]) -> bytes:
    total = 0
    for factor, block in zip(factors, blocks, strict=True):
        if factor:
            # Addition in GF(256) is XOR, here of all bytes at once. The byte order is of no importance as
            # long as it is the same everywhere.
            total ^= int.from_bytes(block if factor == 1 else block.translate(_times(factor)), "little")
    return total.to_bytes(len(blocks[0]), "little")


@lru_cache(maxsize=4096)
def _parity_row(k: int, index: int) -> tuple[int, ...]:
    """Return a row of the generator matrix, below the unit matrix."""
    if k + index >= FIELD:
        raise ValueError(f"{k} packets have {FIELD - k} of parity at the most")
    # The rows below the unit matrix: a row of the Vandermonde matrix times the inverse of its upper part.
    row = _vandermonde_row(k, k + index)
    inverse = _inverse_top(k)
    return tuple(_dot(row, [inverse[at][column] for at in range(k)]) for column in range(k))


@lru_cache(maxsize=16)
def _inverse_top(k: int) -> Matrix:
    return _invert([_vandermonde_row(k, row) for row in range(k)])


def _vandermonde_row(k: int, row: int) -> list[int]:
    if row == 0:
        return [1] + [0] * (k - 1)
    return [_EXP[(row - 1) * column % FIELD] for column in range(k)]


def _dot(left: Sequence[int], right: Sequence[int]) -> int:
    total = 0
    for a, b in zip(left, right, strict=True):
        total ^= multiply(a, b)
    return total


def _invert(matrix: Matrix) -> Matrix:
    """Invert by Gauss and Jordan."""
    size = len(matrix)
    rows = [[*row, *(int(at == column) for column in range(size))] for at, row in enumerate(matrix)]
    for column in range(size):
        # No search for the largest pivot: arithmetic in a finite field is exact.
        pivot = next(at for at in range(column, size) if rows[at][column])
        rows[column], rows[pivot] = rows[pivot], rows[column]
        scale = _inverse(rows[column][column])
        rows[column] = [multiply(scale, value) for value in rows[column]]
        for at in range(size):
            factor = rows[at][column]
            if at != column and factor:
                rows[at] = [a ^ multiply(factor, b) for a, b in zip(rows[at], rows[column], strict=True)]
    return [row[size:] for row in rows]
