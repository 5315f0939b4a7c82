"""Options of an MQTT client engine."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from kernel.hosting.address import WIRE_TRANSPORTS, parse_address
from kernel.hosting.backoff import BackoffOptions
from kernel.hosting.tls_options import TlsOptions
from kernel.hosting.web_options import WebOptions
from plugins.protocols.mqtt.topics import filter_fault, name_fault, split_share

Seconds = Annotated[float, msgspec.Meta(gt=0)]
Qos = Literal[0, 1, 2]


class SubscriptionOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Messages to get from the broker."""

    filter: str
    """A topic filter: ``plant/+/temperature``, ``plant/#``, or ``$share/GROUP/plant/#``."""
    qos: Qos = 1
    """The highest QoS with which the broker sends them."""
    no_local: bool = False
    """Not what this engine has published itself.  Only in version 5."""
    retain_handling: Literal["always", "new", "never"] = "always"
    """When the broker sends retained messages: at each subscribe, only if the session did not have the
    subscription yet, or never.  Only in version 5; version 4 has ``always``."""
    retain_as_published: bool = False
    """Whether messages keep the flag *retain* with which they were published.  Only in version 5."""

    def __post_init__(self) -> None:
        share, topic_filter = split_share(self.filter)
        fault = filter_fault(topic_filter)
        if fault is not None:
            raise ValueError(f"filter: the topic filter {fault}")
        if share and self.no_local:
            raise ValueError(
                f"filter: {self.filter!r} is shared, and a shared subscription has no no_local: remove one"
            )


class MqttClientOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An MQTT client: it publishes messages from routes, and sends what it has subscribed to on routes."""

    address: str = "mqtt+tcp://127.0.0.1:1883"
    """The broker: ``mqtt+tcp://host:port``, ``mqtt+tls://host:port``, ``mqtt+unix:///path``,
    ``mqtt+ws://host:port/path``, ``mqtt+wss://host:port/path`` or ``host:port``."""
    version: Literal[4, 5] = 5
    """5: MQTT 5.0; 4: MQTT 3.1.1."""
    client_id: str = ""
    """Under which the broker keeps the session; no two clients of a broker may have the same.  ``""``: the
    name of the engine, ``@`` and the name of this machine."""
    user: str = ""
    """The user name; ``""``: the client does not log in."""
    password: str = ""
    """The password.  ``${NAME}`` takes it from the environment, so that it is not in the file."""
    keep_alive: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 60
    """Seconds.  If nothing was sent or received for three quarters of it, the broker is asked whether it is
    there.  0: never.  A broker of version 5 may set another value."""
    session_seconds: Annotated[int, msgspec.Meta(ge=0, le=0xFFFF_FFFF)] = 86_400
    """How long the broker keeps the session after the connection is lost: subscriptions, and messages of QoS
    1 and 2.  0: the session ends with the connection; 4,294,967,295: for ever.  In version 4 only 0 and other
    values differ."""
    subscriptions: tuple[SubscriptionOptions, ...] = ()
    """What to get from the broker."""
    receive_maximum: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 1000
    """Messages of QoS 1 and 2 that the broker may send before the first of them is confirmed by the routes.
    Version 5 only; in version 4 the broker has a limit of its own.  It is also how many messages are kept
    here while the routes are full, before the socket is not read any more."""
    receive_prefix: str = ""
    """What is put before the topic of each message that comes from the broker."""
    exchange: str = ""
    """The exchange of the messages that come from the broker."""
    topic: str | None = None
    """The topic of all messages that are published.  None: each message's key, with ``/`` for each dot."""
    publish_prefix: str = ""
    """What is put before the topic of each message that is published."""
    qos: Qos | None = None
    """The QoS of all messages that are published.  None: 1 for persistent messages, 0 for others."""
    retain: Literal["property", "always", "never"] = "property"
    """Which messages are published as retained ones.  ``property``: those that an MQTT client has published
    as such (property ``mqtt_retain``)."""
    in_flight: Annotated[int, msgspec.Meta(ge=1, le=65535)] = 10_000
    """Messages of QoS 1 and 2 that are published and not yet acknowledged, at most.  The broker's receive
    maximum may be less."""
    confirm_timeout: Seconds = 30.0
    """Seconds without any acknowledgement while messages are in flight, after which the connection is closed;
    all these messages are then sent again on the next one."""
    max_packet_bytes: Annotated[int, msgspec.Meta(ge=1024, le=268_435_460)] = 268_435_460
    """Bytes of the largest packet that is accepted.  A broker of version 5 is told."""
    broker_max_packet_bytes: Annotated[int, msgspec.Meta(ge=0, le=268_435_460)] = 0
    """Bytes of the largest packet that the broker takes; larger messages are refused.  0: what it says.

    One of version 4 cannot say it, and ends the connection each time that a larger one comes."""
    topic_alias_maximum: Annotated[int, msgspec.Meta(ge=0, le=65535)] = 64
    """Topic aliases that a broker of version 5 may use."""
    connect_timeout: Seconds = 10.0
    """Seconds for each of: an attempt to connect, the TLS handshake, the login."""
    reconnect: BackoffOptions = BackoffOptions()
    """The waits between attempts: to connect, and to subscribe again to what the broker has refused."""
    tls: TlsOptions = TlsOptions()
    """For ``tls`` and ``wss`` addresses."""
    web: WebOptions = WebOptions()
    """For ``ws`` and ``wss`` addresses."""

    def dials_to(self) -> Iterator[tuple[str, str]]:
        """``Dials``: the broker's address."""
        yield "address", str(parse_address(self.address, WIRE_TRANSPORTS, "mqtt"))

    def __post_init__(self) -> None:
        try:
            parse_address(self.address, WIRE_TRANSPORTS, "mqtt")
        except ValueError as error:
            raise ValueError(f"address: {error}") from None
        if self.password and not self.user and self.version == 4:
            raise ValueError("password: MQTT 3.1.1 has no password without a user name: set user")
        for name in ("topic", "publish_prefix", "receive_prefix"):
            text = getattr(self, name)
            fault = name_fault(text) if text else None
            if fault is not None:
                raise ValueError(f"{name}: {fault}")
        twice = [
            name for name, count in Counter(each.filter for each in self.subscriptions).items() if count > 1
        ]
        if twice:
            raise ValueError(
                f"subscriptions: {twice[0]!r} is there twice; a broker keeps only one: remove the other"
            )
