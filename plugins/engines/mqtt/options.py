"""Options of the MQTT front end."""

from __future__ import annotations

from typing import Annotated

import msgspec

from plugins.engines.broker.contract import ListenerOptions


class MqttListenerOptions(ListenerOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MQTT listener of a broker: versions 3.1.1 and 5.0, on the same port."""

    vhost: str = "/"
    """The virtual host of its clients.  A user name ``VHOST:USER`` chooses another one, as in RabbitMQ."""
    exchange: str = "amq.topic"
    """The topic exchange to which clients publish, and to which their subscriptions are bound."""
    max_packet_bytes: Annotated[int, msgspec.Meta(ge=1024, le=268_435_460)] = 16_777_216
    """Bytes of the largest packet that is read.  Clients of version 5 are told."""
    receive_maximum: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 65_535
    """Messages of QoS 1 and 2 that a client may publish before the first of them is acknowledged."""
    max_inflight: Annotated[int, msgspec.Meta(ge=1, le=16_384)] = 1024
    """Messages of QoS 1 and 2 that are sent to a client before it acknowledges the first of them."""
    topic_alias_maximum: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 64
    """Topic aliases that a client of version 5 may use, and that are used for it."""
    max_session_seconds: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)] = 604_800
    """How long a session is kept at most after its connection is lost.  Clients of version 3.1.1 with
    ``clean session`` 0 get this; 4,294,967,295: for ever."""
    max_keep_alive_seconds: Annotated[int, msgspec.Meta(ge=0, le=65_535)] = 0
    """The longest keep-alive that a client may ask for, which clients of version 5 are told; 0: any."""
    max_subscriptions: Annotated[int, msgspec.Meta(ge=1)] = 10_000
    """Subscriptions of one session."""
    max_unwritten_bytes: Annotated[int, msgspec.Meta(ge=65_536)] = 8_388_608
    """Bytes that may wait for the socket of a subscriber of QoS 0.  It loses what comes beyond, which is
    counted."""
    retain: bool = True
    """Whether retained messages are kept."""
    max_retained: Annotated[int, msgspec.Meta(ge=0)] = 1_000_000
    """Topics of a virtual host that may have a retained message."""
    status_seconds: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    """Seconds between two messages of each topic under ``$SYS``; 0: none."""
    redirect: str = ""
    """Another server, ``host:port``: clients are sent there and not served (MQTT 5.0, 4.11)."""
