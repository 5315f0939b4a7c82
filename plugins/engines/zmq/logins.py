"""Who is let in: by a table of keys, by a folder of certificates, or by an engine that decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from kernel.contracts.engine import Host, Port
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.message import Batch, Envelope
from kernel.contracts.protocol import Login
from plugins.engines.zmq.certificates import ClientsFolder
from plugins.engines.zmq.options import EVERYBODY, ZmqOptions
from plugins.protocols.zmtp.zap import REFUSED

Decided: TypeAlias = Callable[[str, str | None], Any]
"""Called with the user, and None or the reason of a refusal as the peer is to know it."""


class Logins:
    """Decides on the logins of one socket.  ``refused`` counts those that were not accepted."""

    def __init__(self, setup: EngineSetup, report: Callable[..., Any]) -> None:
        options: ZmqOptions = setup.options
        self._options = options
        self._system = setup.system
        self._report = report
        self._by_key = {key: name for name, key in options.curve_clients.items()}
        folder = options.curve_clients_folder
        self._folder = ClientsFolder(Path(folder)) if folder else None
        self.refused = 0

    def ask(self, login: Login, host: Host, decided: Decided) -> None:
        """Decide at once, or when the engine that decides has answered; until then the peer waits."""
        facts = {**login.facts, "domain": self._options.zap_domain}
        login = msgspec.structs.replace(login, facts=facts)
        user = None
        if login.mechanism == "CURVE":
            try:
                user = self._listed(login.user)
            except KernelError as error:
                self._refuse(login, str(error), decided)
                return
        if user is not None:
            decided(user, None)
        elif not self._options.authenticator:
            self._refuse(login, "curve_clients and curve_clients_folder have no such key", decided)
        elif self._system is None:
            self._refuse(login, "this socket has no kernel that could decide on logins", decided)
        else:

            def done(answer: Any, failure: KernelError | None) -> None:
                if failure is not None:
                    self._refuse(login, str(failure), decided)
                else:
                    told = answer.get("user") if isinstance(answer, dict) else None
                    decided(login.user if told is None else str(told), None)

            asked = msgspec.structs.asdict(login)
            self._system.operate(self._options.authenticator, "authenticate", asked, host, done)

    def _listed(self, key: str) -> str | None:
        """Return the name of the client with this key; None: it is not listed."""
        name = self._by_key.get(key)
        if name is None and self._folder is not None:
            name = self._folder.name_of(key)
        return self._by_key.get(EVERYBODY) if name is None else name

    def _refuse(self, login: Login, why: str, decided: Decided) -> None:
        self.refused += 1
        self._report("refused", login.peer, f"login of {login.user!r}: {why}")
        # The peer is not told why.  The operator is, in the report.
        decided("", REFUSED)


def stamped(port: Port, options: ZmqOptions, user: str) -> Port:
    """Return a port that writes into envelopes of the peer what the options say, and who it is."""
    if not (user or options.exchange or options.key):
        return port
    return Stamp(port, user, options.exchange, options.key)


class Stamp:
    """Wraps a port: the property ``user_id`` of what the peer sends is its user; exchange and key are set."""

    def __init__(self, port: Port, user: str, exchange: str, key: str) -> None:
        self._port = port
        self._user = user
        self._exchange = exchange
        self._key = key
        self._last: Envelope | None = None
        self._stamped: Envelope | None = None

    def send(self, batches: Sequence[Batch]) -> bool:
        """Route batches, each under an envelope with the stamp."""
        return self._port.send([self._stamp(batch) for batch in batches])

    def _stamp(self, batch: Batch) -> Batch:
        # Batches of one flow share their envelope, and so they share the stamped one.
        envelope = batch.envelope
        if envelope is not self._last:
            self._last = envelope
            changes: dict[str, Any] = {"exchange": self._exchange, "key": envelope.key or self._key}
            if self._user:
                changes["properties"] = {**envelope.properties, "user_id": self._user}
            self._stamped = msgspec.structs.replace(envelope, **changes)
        assert self._stamped is not None
        return batch.under(self._stamped)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._port, name)
