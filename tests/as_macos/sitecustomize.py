"""Plays macOS on Linux, as far as that goes: what Linux alone has is gone, and what macOS refuses is refused.

``PYTHONPATH=$PWD/tests/as_macos python -m pytest ...`` runs tests so, with all processes that they start.
It finds code that needs Linux without saying so.  How kqueue, or a socket of macOS, behaves it cannot show.
The facts are from the headers and sources of XNU, and from what Python's library says of each name.
"""

from __future__ import annotations

import asyncio.unix_events
import builtins
import ctypes
import errno
import fcntl
import http.client
import importlib.util
import io
import logging.handlers
import multiprocessing.popen_spawn_posix
import multiprocessing.resource_tracker
import os
import platform
import resource
import select
import selectors
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import sysconfig
import tempfile
import time
import types
import urllib.request
import uuid
import webbrowser
from typing import Any
from weakref import WeakKeyDictionary

import trio
import trio._core._io_epoll as trio_epoll

# These choose by the system when they are imported, and have to find Linux.
_IMPORTED_BEFORE = (
    asyncio.unix_events, http.client, logging.handlers, multiprocessing.popen_spawn_posix,
    multiprocessing.resource_tracker, platform, shutil, ssl, subprocess, tempfile, trio, urllib.request, uuid, webbrowser,
)  # fmt: skip
sysconfig.get_config_vars()
if importlib.util.find_spec("scapy") is not None:
    import scapy.all  # noqa: F401

# asyncio and trio go on with epoll, which stands for kqueue: descriptors of both can be polled.
_epoll = types.ModuleType("select")
_epoll.__dict__.update(select.__dict__)
selectors.select = _epoll  # type: ignore[attr-defined]
trio_epoll.select = _epoll  # type: ignore[attr-defined]


def _without_epoll(self: object, name: str) -> Any:
    """Look up an attribute of trio's I/O manager; the kernel does not find the epoll, which trio has not there."""
    if name == "_epoll" and sys._getframe(1).f_code.co_filename.endswith("trio_inside.py"):
        raise AttributeError(name)
    return object.__getattribute__(self, name)


trio_epoll.EpollIOManager.__getattribute__ = _without_epoll  # type: ignore[method-assign]

_GONE = {
    os: (
        "eventfd eventfd_read eventfd_write EFD_CLOEXEC EFD_NONBLOCK EFD_SEMAPHORE fdatasync posix_fallocate posix_fadvise"
        " POSIX_FADV_WILLNEED POSIX_FADV_DONTNEED O_DIRECT O_PATH O_RSYNC sched_setaffinity sched_getaffinity"
        " sched_setscheduler sched_getscheduler sched_setparam sched_getparam SCHED_BATCH SCHED_IDLE pipe2 pidfd_open"
        " memfd_create splice copy_file_range getresuid setresuid getresgid setresgid getrandom waitid"
    ),
    select: " ".join(name for name in dir(select) if name.startswith(("epoll", "EPOLL"))),
    socket: (
        "SOCK_NONBLOCK SOCK_CLOEXEC MSG_ERRQUEUE MSG_CMSG_CLOEXEC MSG_MORE MSG_CONFIRM MSG_FASTOPEN SO_PEERCRED SO_BINDTODEVICE"
        " SO_INCOMING_CPU SO_MARK SO_PRIORITY SO_DOMAIN SO_PROTOCOL SO_PASSCRED SO_PASSSEC SO_PEERSEC TCP_USER_TIMEOUT"
        " TCP_KEEPIDLE TCP_QUICKACK TCP_CONGESTION TCP_CORK TCP_DEFER_ACCEPT TCP_SYNCNT TCP_WINDOW_CLAMP TCP_LINGER2 TCP_INFO"
        " AF_NETLINK AF_PACKET AF_VSOCK AF_ALG AF_CAN AF_TIPC IP_TRANSPARENT IP_RECVTOS IPPROTO_UDPLITE IPPROTO_MPTCP"
        " SCM_CREDENTIALS"
    ),
    resource: "prlimit RUSAGE_THREAD",
    time: "pthread_getcpuclockid CLOCK_BOOTTIME CLOCK_TAI",
    signal: "sigtimedwait sigwaitinfo SIGRTMIN SIGRTMAX SIGSTKFLT SIGPWR SIGPOLL",
    errno: "ENONET ECOMM",
}
for _module, _names in _GONE.items():
    for _name in _names.split():
        if hasattr(_module, _name):
            delattr(_module, _name)
sys.platform = "darwin"
platform.libc_ver = lambda *_: ("", "")
del fcntl.F_SETPIPE_SZ, fcntl.F_GETPIPE_SZ
fcntl.F_FULLFSYNC = 51  # type: ignore[attr-defined]

# ---------------------------------------------------------------------- sockets

_MOST_BUFFER = 8 << 20
"""``kern.ipc.maxsockbuf``."""
_UNIX_PATH = 104
"""Size of ``sun_path``, with the zero at its end."""
_USUAL_DATAGRAM = 9216
"""``net.inet.udp.maxdgram``: the size of a UDP socket's send buffer, and of its datagrams, unless it is set."""
_PREFIXES = {
    socket.SOL_SOCKET: "SO_",
    socket.IPPROTO_TCP: "TCP_",
    socket.IPPROTO_IP: "IP_",
    socket.IPPROTO_IPV6: "IPV6_",
    socket.IPPROTO_UDP: "UDP_",
}
_KNOWN = {
    (level, getattr(socket, name))
    for level, prefix in _PREFIXES.items()
    for name in dir(socket)
    if name.startswith(prefix)
}
_BUFFERS = (socket.SO_RCVBUF, socket.SO_SNDBUF)
_plain = {
    name: getattr(socket.socket, name) for name in ("__init__", "setsockopt", "getsockopt", "bind", "sendto")
}
_sendmsg = socket.socket.sendmsg
_datagram_sizes: WeakKeyDictionary[socket.socket, int] = WeakKeyDictionary()


def _new(self: socket.socket, *args: Any, **named: Any) -> None:
    _plain["__init__"](self, *args, **named)
    if self.family == socket.AF_UNIX and self.type == socket.SOCK_SEQPACKET:
        self.close()
        raise OSError(errno.EPROTONOSUPPORT, os.strerror(errno.EPROTONOSUPPORT))


def _set(self: socket.socket, level: int, option: int, *value: Any) -> None:
    # The number of an option that is Linux's alone: it is none here, or worse, another one.
    assert level not in _PREFIXES or (level, option) in _KNOWN, (
        f"socket option {option} of level {level} is Linux's"
    )
    if level == socket.SOL_SOCKET and option in _BUFFERS and isinstance(value[0], int):
        if value[0] > _MOST_BUFFER:
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        if option == socket.SO_SNDBUF:
            _datagram_sizes[self] = value[0]
    _plain["setsockopt"](self, level, option, *value)


def _get(self: socket.socket, level: int, option: int, *size: int) -> Any:
    assert level not in _PREFIXES or (level, option) in _KNOWN, (
        f"socket option {option} of level {level} is Linux's"
    )
    got = _plain["getsockopt"](self, level, option, *size)
    # Linux returns twice what was set.
    return got // 2 if level == socket.SOL_SOCKET and option in _BUFFERS else got


def _bind(self: socket.socket, address: Any) -> None:
    if self.family == socket.AF_UNIX:
        name = os.fsencode(address)
        if len(name) >= _UNIX_PATH or name.startswith(b"\0"):
            raise OSError("AF_UNIX path too long")
    _plain["bind"](self, address)


def _check_size(self: socket.socket, size: int) -> None:
    udp = self.family in (socket.AF_INET, socket.AF_INET6) and self.type == socket.SOCK_DGRAM
    if udp and size > _datagram_sizes.get(self, _USUAL_DATAGRAM):
        raise OSError(errno.EMSGSIZE, os.strerror(errno.EMSGSIZE))


def _send_to(self: socket.socket, data: Any, *rest: Any) -> int:
    _check_size(self, len(data))
    return int(_plain["sendto"](self, data, *rest))


def _send_message(
    self: socket.socket, buffers: Any, ancillary: Any = (), flags: int = 0, address: Any = None
) -> int:
    buffers = list(buffers)
    _check_size(self, sum(map(len, buffers)))
    # What it does not know is ignored (``udp_check_pktinfo``): UDP_SEGMENT divides nothing.
    known = [part for part in ancillary if part[0] != socket.IPPROTO_UDP]
    return _sendmsg(self, buffers, known, flags, address)


for _name, _method in {
    "__init__": _new, "setsockopt": _set, "getsockopt": _get, "bind": _bind, "sendto": _send_to, "sendmsg": _send_message,
}.items():  # fmt: skip
    setattr(socket.socket, _name, _method)

# ---------------------------------------------------------------------- files

_OURS = tuple(
    f"{os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))}/{name}/"
    for name in ("kernel", "plugins")
)
_FRAMES = 8


def _hides(path: Any) -> bool:
    """Whether the kernel or a plugin asks for a file that is not there; tests may read it."""
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path).startswith(
        ("/proc/", "/sys/", "/dev/shm")
    ):
        return False
    frame = sys._getframe(2)
    for _ in range(_FRAMES):
        if frame.f_code.co_filename.startswith(_OURS):
            return True
        if frame.f_back is None:
            break
        frame = frame.f_back
    return False


def _hiding(function: Any) -> Any:
    def call(path: Any, *args: Any, **named: Any) -> Any:
        if _hides(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return function(path, *args, **named)

    return call


_open = io.open
builtins.open = io.open = _hiding(_open)
os.open = _hiding(os.open)
os.stat = _hiding(os.stat)
_ioctl = fcntl.ioctl
_fcntl = fcntl.fcntl
_usage = resource.getrusage


def _no_linux_ioctl(descriptor: Any, request: int, *args: Any) -> Any:
    # SIOCGIFMTU of BSD stands for Linux's.
    if request == 0xC0206933:
        return _ioctl(descriptor, 0x8921, *args)
    if 0x8900 <= request < 0x8A00:
        raise OSError(errno.ENOTTY, os.strerror(errno.ENOTTY))
    return _ioctl(descriptor, request, *args)


def _usage_in_octets(who: int) -> Any:
    usage = list(_usage(who))
    usage[2] *= 1024
    return resource.struct_rusage(usage)


def _full_sync(descriptor: Any, command: int, *args: Any) -> Any:
    if command == fcntl.F_FULLFSYNC:
        return os.fsync(descriptor)
    return _fcntl(descriptor, command, *args)


fcntl.ioctl = _no_linux_ioctl
fcntl.fcntl = _full_sync
resource.getrusage = _usage_in_octets


class _Library:
    """The C library without what glibc and Linux have added."""

    def __init__(self, real: ctypes.CDLL) -> None:
        self._real = real

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("inotify_", "mallopt", "malloc_trim", "prctl", "recvmmsg", "sendmmsg")):
            raise AttributeError(f"dlsym(RTLD_DEFAULT, {name}): symbol not found")
        return getattr(self._real, name)

    def proc_pid_rusage(self, process: int, flavour: int, buffer: Any) -> int:
        """Fill ``struct rusage_info_v0``; the pages are those of Linux."""
        assert (process, flavour, len(buffer)) == (os.getpid(), 0, 96)
        with _open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        struct.pack_into("=7Q", buffer, 16, *range(6), resident)
        return 0


_library = ctypes.CDLL


def _load(name: str | None, *args: Any, **named: Any) -> Any:
    loaded = _library(name, *args, **named)
    return _Library(loaded) if name is None else loaded


ctypes.CDLL = _load  # type: ignore[assignment, misc]
