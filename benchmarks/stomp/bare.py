"""A client as small as can be: made bytes on a blocking socket.  It measures brokers, not clients."""

from __future__ import annotations

from benchmarks.streams import Stream
from plugins.protocols.stomp.frames import encode_frame
from plugins.protocols.stomp.versions import Version

VERSION = Version.V1_2
_END = b"\0"
_LOGIN = {"accept-version": "1.2", "host": "/", "login": "guest", "passcode": "guest"}
_RECEIPT = "done"


class BareClient(Stream):
    """A connection."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        self._ask("CONNECT", _LOGIN, "CONNECTED")

    def subscribe(
        self, destination: str, ack: str = "auto", prefetch: int = 0, *, empty: bool = True
    ) -> None:
        """Subscribe.

        ``empty``: there are no messages yet, and a receipt is waited for.  Messages might come with it.
        """
        headers = {"id": "0", "destination": destination, "ack": ack}
        if prefetch:
            headers["prefetch-count"] = str(prefetch)
        if empty:
            self._ask("SUBSCRIBE", {**headers, "receipt": _RECEIPT}, "RECEIPT")
        else:
            self._say("SUBSCRIBE", headers)

    def close(self) -> None:
        """Disconnect, when the broker has read everything."""
        self._ask("DISCONNECT", {"receipt": _RECEIPT}, "RECEIPT")
        self.socket.close()

    def _say(self, command: str, headers: dict[str, str]) -> None:
        self.socket.sendall(encode_frame(command, headers.items(), VERSION))

    def _ask(self, command: str, headers: dict[str, str], wanted: str) -> None:
        self._say(command, headers)
        answer = b""
        while not answer.rstrip(b"\n").endswith(_END):
            answer += self.read()
        if not answer.lstrip(b"\n").startswith(wanted.encode()):
            raise ConnectionError(f"{command} is answered with {answer.decode()!r} instead of {wanted}")


def send(destination: str, body: bytes, headers: dict[str, str]) -> bytes:
    """Return a SEND frame."""
    return encode_frame("SEND", {"destination": destination, **headers}.items(), VERSION, body)
