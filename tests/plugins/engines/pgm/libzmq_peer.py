"""A program on the system's libzmq, whose build has PGM (that of pyzmq's wheels has not).

``publish URL COUNT SIZE SECONDS-BETWEEN``: sends numbered messages once something comes in on stdin.
``subscribe URL COUNT [PREFIX]``: says ``ready``, then what it receives, a line each.
"""

from __future__ import annotations

import ctypes
import sys
import time
from typing import Any

PUB, SUB = 1, 2
SUBSCRIBE, RATE, RECOVERY_IVL, LINGER, SNDHWM, RCVHWM, RCVTIMEO = 6, 8, 9, 17, 23, 24, 27
RATE_KBIT = 100_000
TIMEOUT = 60_000


def load() -> Any:
    """Return libzmq if it is there and has PGM; ``OSError`` otherwise."""
    library = ctypes.CDLL("libzmq.so.5", use_errno=True)
    if not library.zmq_has(b"pgm"):
        raise OSError("this libzmq was built without PGM")
    library.zmq_ctx_new.restype = ctypes.c_void_p
    library.zmq_socket.restype = ctypes.c_void_p
    library.zmq_socket.argtypes = [ctypes.c_void_p, ctypes.c_int]
    library.zmq_connect.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.zmq_setsockopt.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t]
    library.zmq_send.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.zmq_recv.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    library.zmq_strerror.restype = ctypes.c_char_p
    return library


def is_there() -> bool:
    """Whether tests can use it."""
    try:
        load()
    except OSError:
        return False
    return True


def connected(library: Any, kind: int, url: str, rate_kbit: int = RATE_KBIT) -> ctypes.c_void_p:
    """Return a socket with no limit to what waits in it."""
    sock = ctypes.c_void_p(library.zmq_socket(ctypes.c_void_p(library.zmq_ctx_new()), kind))
    for option, value in ((RATE, rate_kbit), (RECOVERY_IVL, 10_000), (LINGER, 0), (SNDHWM, 0), (RCVHWM, 0)):
        number = ctypes.c_int(value)
        if library.zmq_setsockopt(sock, option, ctypes.byref(number), 4):
            raise OSError(f"option {option}: {library.zmq_strerror(library.zmq_errno()).decode()}")
    if kind == SUB:
        timeout = ctypes.c_int(TIMEOUT)
        library.zmq_setsockopt(sock, RCVTIMEO, ctypes.byref(timeout), 4)
        library.zmq_setsockopt(sock, SUBSCRIBE, b"", 0)
    if library.zmq_connect(sock, url.encode()):
        raise OSError(f"{url}: {library.zmq_strerror(library.zmq_errno()).decode()}")
    return sock


def publish(url: str, count: int, size: int, between: float) -> None:
    library = load()
    sock = connected(library, PUB, url)
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(count):
        message = (b"%06d " % number).ljust(size, b"x")
        library.zmq_send(sock, message, len(message), 0)
        if between:
            time.sleep(between)
    print("sent", flush=True)
    sys.stdin.readline()  # whoever asks for repairs needs us


def subscribe(url: str, count: int) -> None:
    library = load()
    sock = connected(library, SUB, url)
    print("ready", flush=True)
    room = ctypes.create_string_buffer(1 << 20)
    for _ in range(count):
        size = library.zmq_recv(sock, room, len(room), 0)
        if size < 0:
            sys.exit(f"zmq_recv: {library.zmq_strerror(library.zmq_errno()).decode()}")
        print(room.raw[:size].decode(), flush=True)


if __name__ == "__main__":
    if sys.argv[1] == "publish":
        publish(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]))
    else:
        subscribe(sys.argv[2], int(sys.argv[3]))
