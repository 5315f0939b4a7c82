"""Connection: what both sides of an AMQP 0-9-1 conversation have in common (sans-I/O)."""

from __future__ import annotations

from kernel.contracts.message import Buffer, Run
from plugins.protocols.amqp091.events import Event
from plugins.protocols.amqp091.methods.method import Method
from plugins.protocols.amqp091.options import ClientOptions, ServerOptions


class Connection:
    """One conversation.  All calls come from one thread; none waits.

    Bytes in: ``receive_data``; bytes out: ``data_to_send`` after any other call.  A fault of the peer
    never raises: it is answered with channel.close or connection.close, and reported as an event.  A
    mistake of the owner raises ``LocalProtocolError``.
    """

    channel_max: int
    frame_max: int
    heartbeat: int
    """What was negotiated; 0 means no limit, or no heartbeat."""

    def receive_data(self, data: Buffer, now: float) -> list[Event]:
        """Take bytes from the peer; return what they mean, in order.  ``data`` may be kept if it is bytes."""
        raise NotImplementedError

    def receive_eof(self, now: float) -> list[Event]:
        """The peer hung up: a last ConnectionClosed, unless there was one already."""
        raise NotImplementedError

    def data_to_send(self) -> list[Buffer]:
        """Return and forget what is to be written now."""
        raise NotImplementedError

    def next_deadline(self) -> float | None:
        """When ``handle_timeout`` wants to be called; None: never."""
        raise NotImplementedError

    def handle_timeout(self, now: float) -> list[Event]:
        """Send a heartbeat or give the peer up, as is due."""
        raise NotImplementedError

    def closed(self) -> bool:
        """Whether the wire may be hung up once ``data_to_send`` has been written."""
        raise NotImplementedError

    def send_method(self, channel: int, method: Method) -> None:
        """Send any method that carries no content (queue.declare-ok, basic.ack, confirm.select ...)."""
        raise NotImplementedError

    def send_acknowledgement(self, channel: int, delivery_tag: int, *, multiple: bool = False) -> None:
        """Send basic.ack (a consumer's acknowledgement or a publisher's confirm) without building a method."""
        raise NotImplementedError

    def close_channel(
        self, channel: int, code: int, text: str, class_id: int = 0, method_id: int = 0
    ) -> None:
        """Close a channel; what still comes on it is dropped until the peer's close-ok."""
        raise NotImplementedError

    def close(self, code: int, text: str, class_id: int = 0, method_id: int = 0) -> None:
        """Close the connection; what still comes is dropped until the peer's close-ok (or a deadline)."""
        raise NotImplementedError


class ServerConnection(Connection):
    """The server's side.  Events in their usual order: LoginRequested, OpenRequested, ChannelOpened ..."""

    def __init__(self, options: ServerOptions, now: float) -> None:
        raise NotImplementedError

    def accept_login(self) -> None:
        """Answer LoginRequested or ChallengeAnswered: go on to connection.tune."""
        raise NotImplementedError

    def refuse_login(self, text: str) -> None:
        """Answer the same: connection.close with 403 if the client understands that, else only hang up."""
        raise NotImplementedError

    def challenge(self, challenge: bytes) -> None:
        """Answer the same with connection.secure."""
        raise NotImplementedError

    def accept_open(self) -> None:
        """Answer OpenRequested with connection.open-ok."""
        raise NotImplementedError

    def send_deliveries(
        self, channel: int, consumer_tag: str, first_delivery_tag: int, redelivered: bool, run: Run
    ) -> None:
        """Send a run with basic.deliver, under consecutive delivery tags."""
        raise NotImplementedError

    def send_get_ok(
        self, channel: int, delivery_tag: int, redelivered: bool, message_count: int, run: Run
    ) -> None:
        """Send the one message of a run with basic.get-ok."""
        raise NotImplementedError

    def send_return(self, channel: int, code: int, text: str, run: Run) -> None:
        """Send each message of a run back with basic.return."""
        raise NotImplementedError


class ClientConnection(Connection):
    """The client's side.  It logs in by itself; ConnectionOpened says that channels may be opened."""

    def __init__(self, options: ClientOptions, now: float) -> None:
        raise NotImplementedError

    def answer_challenge(self, response: bytes) -> None:
        """Answer ChallengeReceived."""
        raise NotImplementedError

    def open_channel(self, channel: int) -> None:
        """Send channel.open; ChannelOpened follows."""
        raise NotImplementedError

    def publish(self, channel: int, run: Run, *, mandatory: bool = False) -> None:
        """Send a run with basic.publish to the exchange and key of its envelope."""
        raise NotImplementedError
