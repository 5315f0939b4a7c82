"""Events: what a connection reports to its owner.  ``receive_data`` returns a list of them, in order.

Events with messages have a whole :class:`~kernel.contracts.message.Batch`.  Consecutive messages whose method
and header frames are equal become one event and share one envelope.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from kernel.contracts.message import Batch
from kernel.contracts.mixed_batch import KeyedBatch
from plugins.protocols.amqp091.methods.method import Method


# ``gc=False``: what an event holds was made before it and knows nothing of it, so no event can be part of a
# reference cycle.  The garbage collector then has nothing to do with the events of each chunk.
class Event(msgspec.Struct, frozen=True, gc=False):
    """The base class of all events."""


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
    """Server: channel.open came, and open-ok is queued.  Client: channel.open-ok came."""

    channel: int


class ChannelClosed(Event, frozen=True, gc=False):
    """A channel has ended.  Its number is free again, or will be after the peer's close-ok.

    ``by_peer``: the peer sent channel.close, and close-ok is queued.  Otherwise either the connection closed
    the channel because of a protocol error of the peer, or the peer's close-ok has answered
    ``close_channel``.  An owner that forgets a channel when it calls ``close_channel`` can ignore the second
    case.
    """

    channel: int
    reply_code: int = 200
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0
    by_peer: bool = True


class ConnectionClosed(Event, frozen=True, gc=False):
    """The conversation has ended.  There is exactly one such event, and it is the last one.

    ``by_peer``: the peer sent connection.close, or closed the wire (then ``reply_code`` is 0).  Otherwise
    this side ended it: ``close`` was answered, or the peer broke the protocol, was silent for too long or did
    not log in.  There may still be bytes to send: keep the wire until ``closed()`` is true.
    """

    reply_code: int = 200
    reply_text: str = ""
    class_id: int = 0
    method_id: int = 0
    by_peer: bool = True


class MethodReceived(Event, frozen=True, gc=False):
    """Any other method, on a channel or connection that is open.  ``channel`` 0: the connection."""

    channel: int
    method: Method


class Published(Event, frozen=True, gc=False):
    """Server: messages came with basic.publish."""

    channel: int
    mandatory: bool
    immediate: bool
    batch: Batch


class PublishedUnderKeys(Event, frozen=True, gc=False):
    """Server: messages came with basic.publish that differ in their routing keys.

    Only for an owner that has called ``accept_keyed``.  What ``batch.divided()`` returns would have come as
    ``Published`` otherwise.
    """

    channel: int
    mandatory: bool
    immediate: bool
    batch: KeyedBatch


class Delivered(Event, frozen=True, gc=False):
    """Client: messages came with basic.deliver, with consecutive delivery tags."""

    channel: int
    consumer_tag: str
    first_delivery_tag: int
    redelivered: bool
    batch: Batch


class Got(Event, frozen=True, gc=False):
    """Client: basic.get-ok came with its message."""

    channel: int
    delivery_tag: int
    redelivered: bool
    message_count: int
    batch: Batch


class Returned(Event, frozen=True, gc=False):
    """Client: basic.return came with its message."""

    channel: int
    reply_code: int
    reply_text: str
    batch: Batch


class Acknowledged(Event, frozen=True, gc=False):
    """basic.ack came, once or several times.

    With ``multiple``: all tags up to ``last_delivery_tag`` (0: all that are unacked).  Without: each tag from
    ``first_delivery_tag`` to ``last_delivery_tag``.
    """

    channel: int
    first_delivery_tag: int
    last_delivery_tag: int
    multiple: bool


class Rejected(Event, frozen=True, gc=False):
    """basic.nack or basic.reject came.  The tags are as in Acknowledged."""

    channel: int
    first_delivery_tag: int
    last_delivery_tag: int
    multiple: bool
    requeue: bool
    method_id: int
    """Which of the two methods it was: a close because of it has to name its id."""
