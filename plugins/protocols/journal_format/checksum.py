"""CRC-32 as zlib computes it; with ISA-L, if it is installed: 58 GB/s per core instead of 4 (2026-11-21)."""

# The results are the same, so journals can be exchanged between installations with and without it.
try:
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

__all__ = ["crc32"]
