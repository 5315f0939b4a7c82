"""Certificates of CURVE: files with keys, as ``zmq.auth`` of pyzmq writes and reads them.

Lines ``public-key = "..."`` and ``secret-key = "..."`` with a key in Z85.  ``NAME.key`` has the first, and
``NAME.key_secret`` both.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from kernel.contracts.errors import KernelError
from plugins.engines.zmq.options import ZmqOptions
from plugins.protocols.zmtp.z85 import decode_key

PUBLIC, SECRET = ".key", ".key_secret"
_LARGEST = 64 * 1024
"""Bytes of a file that are read."""


class Certificate(msgspec.Struct, frozen=True):
    """The keys of one file, in Z85; empty if it has none."""

    public: str = ""
    secret: str = ""


def read_certificate(path: Path) -> Certificate:
    """Read a file.  ``KernelError`` says what is wrong, without the keys."""
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            lines = file.read(_LARGEST).splitlines()
    except OSError as error:
        raise KernelError(f"certificate {path}: {error.strerror or error}") from error
    keys = {"public-key": "", "secret-key": ""}
    for number, line in enumerate(lines, 1):
        name, separator, value = line.partition("=")
        name = name.strip()
        if not separator or name not in keys:
            continue
        value = value.strip().strip("\"'")
        try:
            decode_key(value)
        except ValueError as error:
            raise KernelError(f"certificate {path}:{number}: {error}") from None
        keys[name] = value
    return Certificate(keys["public-key"], keys["secret-key"])


def write_certificates(folder: Path, name: str, certificate: Certificate) -> tuple[Path, Path]:
    """Write the public and the secret file; only the owner may read the second.

    ``KernelError`` if there is one already.
    """
    public, secret = folder / f"{name}{PUBLIC}", folder / f"{name}{SECRET}"
    if public.exists() and not secret.exists():
        # Before the secret file is written: it would stay behind, and stop the next try.
        raise KernelError(f"{public}: File exists")
    text = '# Keys of CURVE. {0}\nmetadata\ncurve\n    public-key = "{1}"\n'
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # The secret file first: without it the public one is of no use.
        # O_EXCL: an existing key is never overwritten. The mode is given here, and not by ``chmod``
        # afterwards: the file must not be readable for others even for a moment.
        descriptor = os.open(secret, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with open(descriptor, "w", encoding="utf-8") as file:
            file.write(text.format("Keep this file secret.", certificate.public))
            file.write(f'    secret-key = "{certificate.secret}"\n')
        with public.open("x", encoding="utf-8") as file:
            file.write(text.format("For whoever is to know this side.", certificate.public))
    except OSError as error:
        raise KernelError(f"{error.filename}: {error.strerror or error}") from error
    return public, secret


def with_certificate(options: ZmqOptions) -> ZmqOptions:
    """Return options with the key of ``curve_certificate`` in them."""
    if not options.curve_certificate:
        return options
    path = Path(options.curve_certificate)
    secret = read_certificate(path).secret
    if not secret:
        raise KernelError(f"certificate {path} has no secret-key; take the file *{SECRET}")
    return msgspec.structs.replace(options, curve_certificate="", curve_secret_key=secret)


class ClientsFolder:
    """A folder with certificates of clients.  It is read again when it has changed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read_at: int | None = None
        self._names: dict[str, str] = {}

    def name_of(self, key: str) -> str | None:
        """Return the name of the client with this key; None: there is none.  Raises ``KernelError``."""
        try:
            # One ``stat`` for each login. It tells of files that were added, removed or renamed, and not of
            # one that was written in place: the time of a folder does not change then.
            changed = self._path.stat().st_mtime_ns
            if changed != self._read_at:
                files = sorted(self._path.glob(f"*{PUBLIC}"))
                self._names = {
                    read_certificate(file).public: file.name.removesuffix(PUBLIC) for file in files
                }
                # A file without a public key is nobody's.
                self._names.pop("", None)
                # Only now: if a file could not be read, the next login tries again. The time is from before
                # the files were listed, so a change in between is seen by the next login.
                self._read_at = changed
        except OSError as error:
            raise KernelError(f"curve_clients_folder {self._path}: {error.strerror or error}") from error
        return self._names.get(key)
