"""The clock and the random numbers of usrsctp, replaced by ours: a course with it is the same each time.

usrsctp waits by the clock of whoever hosts it (``usrsctp_handle_timers``), and measures by ``gettimeofday``.
Where the two do not agree, a timer that has expired three times in a row may stop its data for ever: 4 of 500
courses with 10 % loss and resets of streams, none of 500 by one clock (usrsctp 0.9.5).  It has no option for
that, so its references to the functions of libc are replaced: the entries of the global offset table, through
which a shared library calls others (System V ABI, ELF-64).
"""

from __future__ import annotations

import ctypes
import mmap
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_SECTIONS_AT, _SECTION_SIZE_AT = 0x28, 0x3A
"""Where the header of an ELF-64 file says where its sections are, and how large each one's header is, and how many they are."""
_RELOCATIONS = 4
"""The type of a section with relocations, SHT_RELA."""
_RELOCATION_SIZE, _SYMBOL_SIZE = 24, 24

_GetTimeOfDay = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_SystemCall = ctypes.CFUNCTYPE(ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint)


class Clock:
    """The time of day and the random numbers that usrsctp gets, in this whole process and as long as it lives."""

    def __init__(self, library: str) -> None:
        """``library``: how the name of its file begins; it has been loaded; Linux only."""
        self.milliseconds = 1_000_000_000
        self.random = random.Random(0)
        functions = {"gettimeofday": _GetTimeOfDay(self._tell), "syscall": _SystemCall(self._fill)}
        self._functions = functions  # the library has nothing but their addresses
        at, path = _loaded(library)
        file = path.read_bytes()
        for name, function in functions.items():
            address = ctypes.cast(function, ctypes.c_void_p).value
            for offset in _references(file, name):
                _write(at + offset, address)

    def _tell(self, to: int, _: Any) -> int:
        seconds, milliseconds = divmod(self.milliseconds, 1000)
        ctypes.memmove(to, struct.pack("@qq", seconds, milliseconds * 1000), 16)
        return 0

    def _fill(self, _: int, to: int, size: int, __: int) -> int:
        """Answer getrandom(2), the one system call that usrsctp makes by ``syscall``."""
        ctypes.memmove(to, self.random.randbytes(size), size)
        return size


def _loaded(library: str) -> tuple[int, Path]:
    """Say from which address a library is loaded, and from which file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = Path(line.split()[-1])
        if path.name.startswith(library):
            return int(line.partition("-")[0], 16), path  # the first has the file's beginning
    raise AssertionError(f"{library} is not loaded")


def _references(file: bytes, name: str) -> Iterator[int]:
    """Say where the addresses of a function of another library are, from where the file is loaded."""
    (sections_at,) = struct.unpack_from("<Q", file, _SECTIONS_AT)
    size, count = struct.unpack_from("<HH", file, _SECTION_SIZE_AT)
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", file, sections_at + size * number) for number in range(count)
    ]
    for _, kind, _, _, at, length, link, *_ in headers:
        if kind == _RELOCATIONS:
            symbols = headers[link]
            names = headers[symbols[6]][4]
            for entry in range(at, at + length, _RELOCATION_SIZE):
                offset, _, symbol = struct.unpack_from("<QII", file, entry)
                (name_at,) = struct.unpack_from("<I", file, symbols[4] + symbol * _SYMBOL_SIZE)
                if symbol and file.startswith(name.encode() + b"\0", names + name_at):
                    yield offset


def _write(at: int, address: int | None) -> None:
    """Write an address where the loader has forbidden it behind its own work (RELRO)."""
    page = at & -mmap.PAGESIZE
    libc = ctypes.CDLL(None, use_errno=True)
    length, writable = ctypes.c_size_t(at + 8 - page), mmap.PROT_READ | mmap.PROT_WRITE
    assert libc.mprotect(ctypes.c_void_p(page), length, writable) == 0
    ctypes.c_void_p.from_address(at).value = address
