"""What a connection tells its owner.  One call of ``receive_data`` gives a list of these, in order.

Everything that carries messages carries a whole :class:`~kernel.contracts.message.Batch`: consecutive
messages under byte-equal method and header frames are one event, share one envelope, and are counted
once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kernel.contracts.message import Batch
from plugins.protocols.amqp091.methods.method import Method


class Event(msgspec.Struct, frozen=True, gc=False):
    """The base of all events."""


class LoginRequested(Event, frozen=True, gc=False):
    """Server: connection.start-ok came.  Answer with accept_login, refuse_login or challenge."""

    mechanism: str
    response: bytes
    client_properties: Mapping[str, Any]
    locale: str = "en_US"


class ChallengeAnswered(Event, frozen=True, gc=False):
    """Server: connection.secure-ok came.  Answer as for LoginRequested."""

    response: bytes


class ChallengeReceived(Event, frozen=True, gc=False):
    """Client: connection.secure came.  Answer with answer_challenge."""

    challenge: bytes


class OpenRequested(Event, frozen=True, gc=False):
    """Server: connection.open came.  Answer with accept_open or close (530 for an unknown virtual host)."""

    virtual_host: str


class ConnectionOpened(Event, frozen=True, gc=False):
    """Client: connection.open-ok came; channels may be opened."""

    server_properties: Mapping[str, Any]
    channel_max: int
    frame_max: int
    heartbeat: int


class ChannelOpened(Event, frozen=True, gc=False):
    """Server: channel.open came and open-ok is on its way.  Client: channel.open-ok came."""

    channel: int


class ChannelClosed(Event, frozen=True, gc=False):
    """A channel has ended; its number is free again (or will be with the peer's close-ok).

    ``by_peer``: the peer sent channel.close (close-ok is on its way).  Otherwise either the connection
    closed it for a fault of the peer, or the peer's close-ok has answered ``close_channel``; an owner
    that forgot the channel when it called ``close_channel`` ignores that.
    """

    channel: int
    reply_code: int = 200
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0
    by_peer: bool = True


class ConnectionClosed(Event, frozen=True, gc=False):
    """The conversation is over for the owner: always the last event, and there is exactly one.

    ``by_peer``: the peer sent connection.close, or hung up (then ``reply_code`` is 0).  Otherwise this
    side ended it: ``close`` was answered, or the peer broke the protocol, fell silent or did not log in.
    There may still be bytes to send, and the wire is to be kept until ``closed()``.
    """

    reply_code: int = 200
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0
    by_peer: bool = True


class MethodReceived(Event, frozen=True, gc=False):
    """Any other method, on a channel (or connection) that is in a state to take it."""

    channel: int
    method: Method


class Published(Event, frozen=True, gc=False):
    """Server: messages came with basic.publish."""

    channel: int
    mandatory: bool
    immediate: bool
    batch: Batch


class Delivered(Event, frozen=True, gc=False):
    """Client: messages came with basic.deliver, under consecutive delivery tags."""

    channel: int
    consumer_tag: str
    first_delivery_tag: int
    redelivered: bool
    batch: Batch


class Got(Event, frozen=True, gc=False):
    """Client: basic.get-ok and its message."""

    channel: int
    delivery_tag: int
    redelivered: bool
    message_count: int
    batch: Batch


class Returned(Event, frozen=True, gc=False):
    """Client: basic.return and its message."""

    channel: int
    reply_code: int
    reply_text: str
    batch: Batch


class Acknowledged(Event, frozen=True, gc=False):
    """basic.ack, or a batch of them.

    With ``multiple``: all tags up to ``last_delivery_tag`` (0: all there are).  Without: each tag from
    ``first_delivery_tag`` to ``last_delivery_tag``, one by one.
    """

    channel: int
    first_delivery_tag: int
    last_delivery_tag: int
    multiple: bool


class Rejected(Event, frozen=True, gc=False):
    """basic.nack or basic.reject, or a batch of them; the tags as in Acknowledged."""

    channel: int
    first_delivery_tag: int
    last_delivery_tag: int
    multiple: bool
    requeue: bool
    method_id: int
    """Which of the two it was: what a refusal names as its cause."""
