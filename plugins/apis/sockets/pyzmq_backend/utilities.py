"""What pyzmq asks libzmq itself: its version, what it can do, keys."""

from __future__ import annotations

import errno
from importlib.util import find_spec
from typing import Final

from plugins.apis.sockets.pyzmq_backend.errors import failure
from plugins.protocols.zmtp.options import CURVE

IPC_PATH_MAX_LEN: Final[int] = 107
"""Octets of a path of ``ipc``: those of ``sockaddr_un``, without the zero at the end."""
PYZMQ_DRAFT_API: Final[bool] = True

_KEY_CHARACTERS = 40


def zmq_version_info() -> tuple[int, int, int]:
    """Return the version of libzmq whose behaviour this is."""
    return (4, 3, 5)


def has(capability: str | bytes) -> bool:
    """Whether something optional is there: ``ipc``, ``draft``, ``curve`` (PyNaCl), ``ws`` (wsproto)."""
    name = capability.decode() if isinstance(capability, bytes) else capability
    if name == "curve":
        return CURVE.is_installed()
    return name in ("ipc", "draft") or (name == "ws" and find_spec("wsproto") is not None)


def curve_keypair() -> tuple[bytes, bytes]:
    """Return a new public key and its secret key, in Z85."""
    _need_curve()
    from plugins.protocols.zmtp.boxes import random_octets
    from plugins.protocols.zmtp.curve import pair_of

    pair = pair_of(random_octets(32))
    return pair.public.encode(), pair.secret.encode()


def curve_public(secret_key: str | bytes) -> bytes:
    """Return the public key of a secret key, in Z85."""
    _need_curve()
    from plugins.protocols.zmtp.curve import pair_of
    from plugins.protocols.zmtp.z85 import decode_key

    text = secret_key.decode("ascii", "replace") if isinstance(secret_key, bytes) else secret_key
    try:
        return pair_of(decode_key(text)).public.encode()
    except ValueError as error:
        raise failure(errno.EINVAL, f"the secret key: {error}") from None


def _need_curve() -> None:
    if not has("curve"):
        raise failure(errno.ENOTSUP, CURVE.complaint())
