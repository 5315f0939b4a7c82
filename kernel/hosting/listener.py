"""Listener: accepts connections, and goes on when the process runs out of descriptors.

``listen_on`` binds an address before an engine exists.  So if the address is in use, the caller gets the
error, and not an engine in another thread.
"""

from __future__ import annotations

import errno
import os
import resource
import socket
import stat
from collections.abc import Callable
from typing import Any

from kernel.contracts.engine import EngineEvent, Host
from kernel.contracts.kinds import BoundSockets
from kernel.contracts.options import ListeningPlace
from kernel.hosting.address import Address, parse_address
from kernel.hosting.connecting import forgo_pacing, is_paced, set_options

ACCEPTS_A_TURN = 64
PAUSE = 0.1
"""Seconds without accepting after the system had no descriptor left."""

RESERVE = 32
"""Descriptors that are kept for the rest of the process (logs, segments, /proc).  A quarter of the limit if
it is small."""

# No descriptor in this process or in the system, or no memory for one: it goes over when others close.
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}

# The system has no such address, or no such family.  ``localhost`` mostly has an IPv6 address in containers
# that have no IPv6, and "every interface" has one where the system was started without it.
_NOT_HERE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT}

OnAccept = Callable[[socket.socket, str], None]


BACKLOG = 1024


class _ListeningSocket(socket.socket):
    """A socket that listens, and accepts in half the time.

    ``socket.socket.accept`` looks up family and type in enumerations for each connection, and
    asks about time-outs.
    """

    __slots__ = ("_family", "_type")

    def __init__(self, family: int, kind: int) -> None:
        super().__init__(family, kind)
        self._family = super().family
        self._type = super().type

    def accept(self) -> tuple[socket.socket, Any]:
        """Return a connection and the address of its peer."""
        descriptor, peer = self._accept()  # type: ignore[attr-defined]  # typeshed does not know it
        return socket.socket(self._family, self._type, self.proto, descriptor), peer


class Bound:
    """Sockets that listen on one address (``BoundSockets``).

    Connections wait until a ``Listener`` accepts them.
    """

    def __init__(self, address: Address, backlog: int = BACKLOG) -> None:
        self._path = address.place if address.transport == "unix" else None
        self.sockets: list[socket.socket] = _listen(address, backlog)
        # Absolute: the working directory may be another one when the file is removed.
        self._file = None if self._path is None else os.path.abspath(self._path)
        self._identity = _identity(self._file)

    @property
    def address(self) -> str:
        """The address of the sockets, with the port that the system chose."""
        if self._path is not None:
            return self._path
        host, port = self.sockets[0].getsockname()[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def close(self) -> None:
        """Stop listening, and remove the file of a Unix socket; does nothing the second time.  Any thread."""
        for sock in self.sockets:
            sock.close()
        self.sockets = []
        if self._file is not None and self._identity is not None and _identity(self._file) == self._identity:
            try:
                os.unlink(self._file)
            except FileNotFoundError:
                pass


def listen_on(address: str | Address, backlog: int = BACKLOG) -> Bound:
    """Bind an address and listen; ``OSError`` if that fails.  For ``Kernel.add_engine`` or a ``Listener``."""
    return Bound(parse_address(address) if isinstance(address, str) else address, backlog)


class Listener:
    """Accepts connections on the sockets of one address.  Called by the poller; it has no task.

    The sockets that ``on_accept`` gets do not block, and have the options of every connection.

    With ``bound`` it accepts on these sockets, and does not close them.  So an engine that is restarted
    listens on the same port, and connections wait in the meantime.
    """

    def __init__(
        self,
        host: Host,
        engine: str,
        address: Address,
        on_accept: OnAccept,
        backlog: int = BACKLOG,
        bound: BoundSockets | None = None,
    ) -> None:
        self._host = host
        self._engine = engine
        self._on_accept = on_accept
        self._own = Bound(address, backlog) if bound is None else None
        self._bound: BoundSockets = bound or self._own  # type: ignore[assignment]  # one of them is there
        self._sockets = list(self._bound.sockets)
        self._expected = 1
        """How many connections to accept at once: so many came the last time."""
        self._spare: int | None = os.open(os.devnull, os.O_RDONLY)
        self.refused: int = 0
        """How often connections were refused because there was no descriptor."""
        for sock in self._sockets:
            # Linux gives them to each socket that is accepted, which saves two system calls a connection.
            set_options(sock)
            self._watch(sock)
        self._paced = any(map(is_paced, self._sockets))

    @property
    def address(self) -> str:
        """The address of the sockets, with the port that the system chose."""
        return self._bound.address

    def close(self) -> None:
        """Stop accepting.  Sockets that the listener has bound itself are closed."""
        for sock in self._sockets:
            if sock.fileno() >= 0:
                self._host.poller.watch(sock.fileno(), readable=None, writable=None)
            self._host.set_timer(None, _nothing, sock)
        self._sockets = []
        if self._own is not None:
            self._own.close()
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None

    def _watch(self, sock: socket.socket) -> None:
        if sock.fileno() >= 0:
            self._host.poller.watch(sock.fileno(), readable=lambda: self._accept(sock), writable=None)

    def _accept(self, sock: socket.socket) -> None:
        last = _last_for_connections()
        # No more than are expected: to find that nobody waits costs half of what it costs to accept somebody.
        # Who is left makes the poller call again.
        expected, self._expected = self._expected, 1
        for accepted in range(expected):
            try:
                connection, peer = sock.accept()
            # ConnectionAbortedError: the peer reset the connection while it waited in the backlog.
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                self._expected = max(accepted, 1)
                return
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._turn_away(sock, error)
                return
            # The process itself needs descriptors, for segments and logs.  It must not fail because clients
            # have taken all.
            if connection.fileno() >= last:
                connection.close()
                self._pause(sock, "the last file descriptors are kept for the process itself", errno.EMFILE)
                return
            connection.setblocking(False)
            if self._paced:
                forgo_pacing(connection)
            self._on_accept(connection, peer_name(peer, connection))
        # A limit, so that a flood of connections does not stop the connections that exist.
        self._expected = min(2 * expected, ACCEPTS_A_TURN)

    def _turn_away(self, sock: socket.socket, why: OSError) -> None:
        """Close the connection of one waiting peer, so that it does not wait in vain; then pause.

        Accepting it needs a descriptor: the spare one is given up for that and taken again.
        """
        if self._spare is not None:
            os.close(self._spare)
            self._spare = None
            try:
                # A peer that is not accepted would wait in the backlog, and the listening socket would stay
                # readable: the poller would call again without a pause.
                sock.accept()[0].close()
            # Another thread has taken the descriptor, or the peer has gone.
            except OSError:
                pass
        try:
            self._spare = os.open(os.devnull, os.O_RDONLY)
        except OSError:
            pass
        self._pause(sock, why.strerror or str(why), why.errno or errno.EMFILE)

    def _pause(self, sock: socket.socket, why: str, number: int) -> None:
        """Accept no connections for ``PAUSE`` seconds, in which others may close and free descriptors."""
        self.refused += 1
        self._host.poller.watch(sock.fileno(), readable=None, writable=None)
        self._host.set_timer(self._host.now() + PAUSE, lambda: self._watch(sock), sock)
        detail = f"{why}: raise the limit (ulimit -n) or lower max_connections"
        code = errno.errorcode[number]
        self._host.report(EngineEvent(engine=self._engine, what="refused", detail=detail, code=code))


def _last_for_connections() -> int:
    """Return the lowest descriptor number at which connections are refused.

    The system always uses the lowest free number, so a high number means that nearly all are in use.  This is
    computed in each turn, since a program may change its limit.
    """
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    # A quarter of a small limit: of 64 descriptors, 32 would be half.
    return limit - min(RESERVE, limit // 4) if limit != resource.RLIM_INFINITY else 1 << 62


def _listen(address: Address, backlog: int) -> list[socket.socket]:
    if address.transport == "unix":
        return [listen_unix(address.place, backlog)]
    sockets: list[socket.socket] = []
    port = address.port

    def listen(family: socket.AddressFamily, place: Any) -> None:
        sock = _ListeningSocket(family, socket.SOCK_STREAM)
        try:
            _share_only_with_the_past(sock)
            # The system chooses a port for the first family, and the others get the same one.
            if port == 0 and sockets:
                place = (place[0], sockets[0].getsockname()[1], *place[2:])
            sock.bind(place)
            sock.listen(backlog)
        except OSError:
            sock.close()
            raise
        sock.setblocking(False)
        sockets.append(sock)

    try:
        _at_each_place(address.host, port, socket.SOCK_STREAM, listen)
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise _cannot_listen(address, error) from None
    return sockets


def _cannot_listen(place: object, error: OSError) -> OSError:
    """Return the error with the place in its text; of the same class, whose numbers may be its own."""
    text = f"cannot listen on {place}: {error.strerror or error}"
    if error.errno == errno.EADDRINUSE:
        text += "; another program listens there: change the address, or stop that program"
    # A path that is too long for a Unix socket has no number.
    return type(error)(text) if error.errno is None else type(error)(error.errno, text)


def _at_each_place(
    host: str, port: int, kind: socket.SocketKind, bind: Callable[[socket.AddressFamily, Any], None]
) -> None:
    """Call ``bind`` with each address of a host that this system has; an empty host is every interface.

    Raises what ``bind`` raises, and if none of the addresses is there, the error of the first.
    """
    # For a text Python loads the tables of internationalised names: 3 ms and 0.3 MB of a broker's start.
    name = host.encode() if host.isascii() else host
    bound, missing = False, None
    for family, _, _, _, place in socket.getaddrinfo(name or None, port, type=kind, flags=socket.AI_PASSIVE):
        try:
            bind(family, place)
            bound = True
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            missing = missing or error
    if missing is not None and not bound:
        raise missing


def _share_only_with_the_past(sock: socket.socket) -> None:
    """Set the options of a TCP socket that is to be bound."""
    # A successor may bind while connections of a process that has ended are in TIME_WAIT.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # Otherwise the IPv6 socket of "every interface" would take IPv4 as well, and the two would be in each
    # other's way (EADDRINUSE).
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)


def why_unavailable(place: ListeningPlace) -> str:
    """Say why nobody can listen at a place now; empty if somebody can, or if that cannot be known.

    Nobody connects meanwhile: the socket is bound, and does not listen.
    """
    try:
        if place.network == "unix":
            _try_unix(place.name)
        elif place.network in _KINDS:
            _try_to_bind(place)
    except OSError as error:
        return error.strerror or str(error)
    return ""


_KINDS = {"tcp": socket.SOCK_STREAM, "udp": socket.SOCK_DGRAM}


def _try_to_bind(place: ListeningPlace) -> None:
    kind = _KINDS[place.network]

    def bind(family: socket.AddressFamily, where: Any) -> None:
        with socket.socket(family, kind) as sock:
            # For UDP the option would allow two sockets at one port, which is what is looked for.
            if kind == socket.SOCK_STREAM:
                _share_only_with_the_past(sock)
            elif family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(where)

    _at_each_place(place.name, place.port, kind, bind)


def _try_unix(path: str) -> None:
    if not os.path.lexists(path):
        folder = os.path.dirname(path) or "."
        if not os.path.isdir(folder):
            raise FileNotFoundError(errno.ENOENT, f"there is no folder {folder}")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, f"the folder {folder} may not be written")
    elif not stat.S_ISSOCK(os.stat(path).st_mode):
        raise FileExistsError(errno.EEXIST, "a file of this name exists, and is no socket")
    elif _somebody_listens(path):
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


def _somebody_listens(path: str) -> bool:
    """Return whether a process listens on a Unix socket; false for the file of one that has died."""
    with socket.socket(socket.AF_UNIX) as probe:
        # ``connect`` to a socket whose backlog is full would wait until its process accepts.
        probe.setblocking(False)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            return False
        # Somebody listens, with a full backlog.
        except BlockingIOError:
            pass
    return True


def listen_unix(path: str, backlog: int) -> socket.socket:
    """Bind a Unix socket.

    The file of a dead process is replaced; if a process listens there, ``OSError``.
    """
    sock = _ListeningSocket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Only a socket is replaced: a mistyped path must not delete a file.
        if (
            os.path.exists(path)
            and stat.S_ISSOCK(os.stat(path).st_mode)
            # If somebody does, ``bind`` below fails, as it should.
            and not _somebody_listens(path)
        ):
            os.unlink(path)
        sock.bind(path)
        sock.listen(backlog)
    except OSError as error:
        sock.close()
        raise _cannot_listen(path, error) from None
    sock.setblocking(False)
    return sock


def _identity(path: str | None) -> tuple[int, int] | None:
    """Return device and inode of a file, to tell it from a later one with the same name."""
    if path is None:
        return None
    try:
        # A successor may have replaced the file by its own, which must not be removed here.
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def peer_name(peer: object, connection: socket.socket) -> str:
    """Return the name of a peer that was accepted: its address, or for a Unix socket our descriptor."""
    if isinstance(peer, tuple):
        return f"[{peer[0]}]:{peer[1]}" if ":" in peer[0] else f"{peer[0]}:{peer[1]}"
    return f"unix#{connection.fileno()}"


def _nothing() -> None:
    """Never called."""
