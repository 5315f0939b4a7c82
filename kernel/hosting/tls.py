"""TLS: makes contexts from options, again when their files have changed, and does the handshake."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Callable

from kernel.contracts.durations import in_seconds
from kernel.contracts.errors import ConnectionLost
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.waiting import TooSlow, Waits


def server_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the context of a listener."""
    if options.certificate is None:
        raise ValueError("a tls listener needs tls.certificate (and tls.key)")
    # ``authorities`` alone does not make the server ask for a certificate; ``verify_mode`` does.
    context = _context(ssl.Purpose.CLIENT_AUTH, options)
    if options.require_client_certificate:
        context.verify_mode = ssl.CERT_REQUIRED
    elif options.request_client_certificate:
        context.verify_mode = ssl.CERT_OPTIONAL
    return context


def client_context(options: TlsOptions) -> ssl.SSLContext:
    """Return the context of a dialler."""
    context = _context(ssl.Purpose.SERVER_AUTH, options)
    if options.verify == "none":
        # In this order: Python refuses CERT_NONE while names are checked.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class RenewedContext:
    """The context of one side, made again when one of its files has changed.

    Certificates are renewed while an engine runs: every two months by Let's Encrypt, every day by others.
    Connections that are there go on with what they have.
    """

    def __init__(
        self,
        make: Callable[[TlsOptions], ssl.SSLContext],
        options: TlsOptions,
        report: Callable[[str, str], None],
    ) -> None:
        """Raises as ``make`` does.  ``report`` gets the kind of an event and its text."""
        self._make = make
        self._options = options
        self._report = report
        # Before they are read: if one changes meanwhile, it is read again.
        self._seen = _states(options)
        self._context = make(options)

    def current(self) -> ssl.SSLContext:
        """Return the context to shake hands with; called for each handshake."""
        seen = _states(self._options)
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = self._make(self._options)
            except (OSError, ValueError) as error:
                # For example the certificate has changed, and its key not yet.  The next change tries again.
                self._report("certificates unread", f"those from before stay in use: {error}")
            else:
                self._report("certificates read", "their files have changed; new connections get them")
        return self._context


def _states(options: TlsOptions) -> list[tuple[int, int, int] | None]:
    """Return what changes when a file is written or replaced, also behind a symbolic link."""
    states: list[tuple[int, int, int] | None] = []
    for path in (options.certificate, options.key, options.authorities):
        try:
            found = os.stat(path) if path is not None else None
        except OSError:
            found = None
        states.append(None if found is None else (found.st_ino, found.st_mtime_ns, found.st_size))
    return states


def _context(purpose: ssl.Purpose, options: TlsOptions) -> ssl.SSLContext:
    """Return a context that has read the files of the options.

    ``OSError`` or ``ValueError`` if that fails, with the name of the file, which the errors of ``ssl`` lack.
    """
    for path in (options.authorities, options.certificate, options.key):
        if path is not None:
            with open(path, "rb"):
                pass
    try:
        context = ssl.create_default_context(purpose, cafile=options.authorities)
    except ssl.SSLError as error:
        raise ValueError(f"tls.authorities: {options.authorities}: {error}") from None
    if options.certificate is not None:
        try:
            context.load_cert_chain(options.certificate, options.key, _no_passphrase)
        except _Encrypted:
            option, path = (
                ("key", options.key) if options.key is not None else ("certificate", options.certificate)
            )
            raise ValueError(
                f"tls.{option}: {path}: the private key is encrypted, and nobody is asked for a passphrase; "
                f"write it without one, for this user to read alone: openssl pkey -in {path} -out NEW"
            ) from None
        except ssl.SSLError as error:
            files = " and tls.key ".join(filter(None, (options.certificate, options.key)))
            raise ValueError(f"tls.certificate {files}: {error}") from None
    return context


class _Encrypted(Exception):
    """A private key has a passphrase."""


def _no_passphrase() -> str:
    # Without this function OpenSSL asks on the terminal, and the thread waits for somebody to type.
    raise _Encrypted


def read_files(options: TlsOptions) -> None:
    """Read the files of the options as an engine does.

    ``OSError`` or ``ValueError`` if one cannot be used.
    """
    _context(ssl.Purpose.CLIENT_AUTH, options)


async def handshake(
    connected: socket.socket,
    context: ssl.SSLContext,
    waits: Waits,
    *,
    server_side: bool,
    server_name: str | None,
    seconds: float,
) -> ssl.SSLSocket:
    """Do the TLS handshake on a connected socket, within ``seconds``.

    If it fails, the socket is closed: ``ConnectionLost``.
    """
    connected.setblocking(False)
    try:
        # Raises if the peer has reset the connection.  ``wrap_socket`` finds that out only after it has
        # detached our socket, so nobody could close the descriptor.
        connected.getpeername()
        wrapped = context.wrap_socket(
            connected,
            server_side=server_side,
            do_handshake_on_connect=False,
            server_hostname=None if server_side else server_name,
        )
    except OSError as error:
        connected.close()
        raise ConnectionLost(f"TLS handshake failed: {error}") from None
    try:
        with waits.limit(seconds):
            while True:
                try:
                    wrapped.do_handshake()
                    return wrapped
                except ssl.SSLWantReadError:
                    await waits.readable(wrapped.fileno())
                except ssl.SSLWantWriteError:
                    await waits.writable(wrapped.fileno())
    except TooSlow:
        wrapped.close()
        raise ConnectionLost(f"no TLS handshake within {in_seconds(seconds)}") from None
    # ``ssl.SSLError`` is an OSError.
    except OSError as error:
        wrapped.close()
        raise ConnectionLost(f"TLS handshake failed: {error}") from None
    # Cancelled, or a KeyboardInterrupt: nobody else has a reference to the socket.
    except BaseException:
        wrapped.close()
        raise
