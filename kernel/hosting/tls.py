"""TLS: makes contexts from options, and does the handshake."""

from __future__ import annotations

import socket
import ssl

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
            context.load_cert_chain(options.certificate, options.key)
        except ssl.SSLError as error:
            files = " and tls.key ".join(filter(None, (options.certificate, options.key)))
            raise ValueError(f"tls.certificate {files}: {error}") from None
    return context


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
        raise ConnectionLost(f"no TLS handshake within {seconds} s") from None
    # ``ssl.SSLError`` is an OSError.
    except OSError as error:
        wrapped.close()
        raise ConnectionLost(f"TLS handshake failed: {error}") from None
    # Cancelled, or a KeyboardInterrupt: nobody else has a reference to the socket.
    except BaseException:
        wrapped.close()
        raise
