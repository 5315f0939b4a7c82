"""Who is let in: by a table of keys, by a folder of certificates, or by somebody who decides.

The one who decides is an engine with the operation ``authenticate``, or a handler of ZAP: a socket of the
kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from kernel.contracts.engine import Host
from kernel.contracts.errors import KernelError
from kernel.contracts.kinds import EngineSetup
from kernel.contracts.protocol import Login
from plugins.engines.zmq.certificates import ClientsFolder
from plugins.engines.zmq.options import EVERYBODY, ZmqOptions
from plugins.engines.zmq.zap_question import ZapQuestion, key_of_place
from plugins.protocols.zmtp.options import identity_of
from plugins.protocols.zmtp.zap import ACCEPTED, FAILED, MEANINGS, REFUSED, ZapReply, request_of


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What has become of a login."""

    user: str = ""
    facts: Mapping[str, str] = {}
    """What else is known of who was let in."""
    refused: str | None = None
    """The status of ZAP, as the peer is to know it; None: let in."""


Decided: TypeAlias = Callable[[Decision], Any]


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
        self._asks_socket = "://" in options.authenticator
        self.refused = 0

    def ask(self, login: Login, address: str, host: Host, decided: Decided) -> ZapQuestion | None:
        """Decide at once, or when the one who decides has answered; until then the peer waits.

        ``address``: that of the peer, without a port.  A question that is returned is to be closed if the
        peer goes.
        """
        options = self._options
        own = {"domain": options.zap_domain, "identity": identity_of(options), "address": address}
        facts = {**login.facts, **own}
        login = msgspec.structs.replace(login, facts=facts)
        # A folder that cannot be read refuses everybody, also if there is an authenticator: who is let in
        # must not depend on a fault of a disk.
        try:
            user = self._listed(login)
        except KernelError as error:
            self._refuse(login, str(error), decided)
            return None
        if user is not None:
            decided(Decision(user=user))
        elif self._asks_socket:
            return self._ask_socket(login, host, decided)
        elif options.authenticator:
            self._ask_engine(login, host, decided)
        else:
            self._decide_alone(login, "curve_clients and curve_clients_folder have no such key", decided)
        return None

    def _listed(self, login: Login) -> str | None:
        """Return the name of the client with this key; None: it is not listed."""
        if login.mechanism != "CURVE":
            return None
        # ``user`` is the key in Z85 with its 40 characters, so nobody can be found as ``EVERYBODY``.
        name = self._by_key.get(login.user)
        return self._folder.name_of(login.user) if name is None and self._folder is not None else name

    def _decide_alone(self, login: Login, why: str, decided: Decided) -> None:
        """Decide when nobody can be asked."""
        everybody = self._by_key.get(EVERYBODY)
        if login.mechanism == "CURVE" and everybody is not None:
            decided(Decision(user=everybody))
        elif login.mechanism == "PLAIN" or self._options.authenticator_needed:
            # A password that nobody looks at protects nothing.
            self._refuse(login, why, decided)
        else:
            decided(Decision())

    def _ask_engine(self, login: Login, host: Host, decided: Decided) -> None:
        if self._system is None:
            self._refuse(login, "this socket has no kernel that could decide on logins", decided)
            return

        def done(answer: Any, failure: KernelError | None) -> None:
            if failure is not None:
                self._refuse(login, str(failure), decided)
            else:
                # An engine need not return anything: not to raise is enough to accept. Then the user is
                # called as the peer calls itself.
                told = answer.get("user") if isinstance(answer, dict) else None
                decided(Decision(user=login.user if told is None else str(told)))

        asked = msgspec.structs.asdict(login)
        self._system.operate(self._options.authenticator, "authenticate", asked, host, done)

    def _ask_socket(self, login: Login, host: Host, decided: Decided) -> ZapQuestion | None:
        place = self._options.authenticator
        # Looked up for each login: the handler may be bound and unbound while this socket runs.
        if key_of_place(place) not in host.rendezvous:
            self._decide_alone(login, f"nobody is bound at {place}, who would decide", decided)
            return None

        def answered(reply: ZapReply | str) -> None:
            if isinstance(reply, str):
                self._refuse(login, reply, decided, FAILED)
            elif reply.status == ACCEPTED:
                facts = {name: value.decode("utf-8", "replace") for name, value in reply.metadata.items()}
                decided(Decision(user=reply.user, facts=facts))
            else:
                # Only the first digit counts, as in libzmq.
                status = reply.status[0] + "00"
                status = status if status in MEANINGS else FAILED
                self._refuse(login, f"{reply.status}: {reply.text or MEANINGS[status]}", decided, status)

        request = request_of(msgspec.structs.asdict(login))
        return ZapQuestion(host, place, request, answered)

    def _refuse(self, login: Login, why: str, decided: Decided, status: str = REFUSED) -> None:
        self.refused += 1
        self._report("refused", login.peer, f"login of {login.user!r}: {why}", code=status)
        # The peer is not told why.  The operator is, in the report.
        decided(Decision(refused=status))
