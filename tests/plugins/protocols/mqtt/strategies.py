"""Packets that hypothesis makes up: every type, in both versions, with all that the version has."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as some

from plugins.protocols.mqtt.packet_types import PacketType
from plugins.protocols.mqtt.packets import (
    Acknowledgement,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Publish,
    PublishHead,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    Will,
)
from plugins.protocols.mqtt.properties import NO_PROPERTIES, TABLE, WILL, Properties, Property
from plugins.protocols.mqtt.reason_codes import REASONS_OF, return_code

texts = some.text(some.characters(codec="utf-8", exclude_characters="\0"), max_size=8)
binaries = some.binary(max_size=8)
ids = some.integers(1, 0xFFFF)
flags = some.booleans()
names = some.text(some.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=8)
levels = some.text(some.characters(codec="utf-8", exclude_characters="\0+#/"), max_size=4)
filters = (
    some.lists(levels | some.just("+"), min_size=1, max_size=4)
    .flatmap(lambda words: some.sampled_from(["/".join(words), "/".join([*words, "#"])]))
    .filter(lambda text: text and not text.startswith("$share"))
)
LARGEST = {"byte": 1, "two bytes": 0xFFFF, "four bytes": 0xFFFF_FFFF, "variable": 268_435_455}


def _value(row: Property) -> some.SearchStrategy[Any]:
    if row.field == "response_topic":
        return names
    if row.type == "pair":
        return some.tuples(texts, texts)
    if row.type in LARGEST:
        return some.integers(row.minimum, min(row.maximum, LARGEST[row.type]))
    return texts if row.type == "text" else binaries


def properties(kind: int, without: tuple[str, ...] = (), **fixed: Any) -> some.SearchStrategy[Properties]:
    """Properties that this packet may have."""
    values: dict[str, some.SearchStrategy[Any]] = {}
    for row in TABLE:
        if kind not in row.packets or row.field in without:
            continue
        value = _value(row)
        if row.field in ("user_properties", "subscription_identifiers"):
            values[row.field] = some.lists(value, max_size=3 if kind in row.repeats else 1).map(tuple)
        else:
            values[row.field] = some.none() | value
    values |= {name: some.just(value) for name, value in fixed.items()}
    return some.just(NO_PROPERTIES) | some.builds(Properties, **values)


def packets_to(side: str, version: int) -> some.SearchStrategy[Packet]:
    """Packets that this side may receive in the middle of a connection."""
    of = (
        (lambda kind, *more: properties(kind, *more)) if version == 5 else lambda *_: some.just(NO_PROPERTIES)
    )
    codes = lambda kind: some.sampled_from(sorted(REASONS_OF[kind]) if version == 5 else [0])  # noqa: E731
    publish = some.one_of([_publishes(side, version, qos) for qos in (0, 1, 2)])
    acknowledgements = some.sampled_from([4, 5, 6, 7]).flatmap(
        lambda kind: some.builds(
            Acknowledgement,
            some.just(PacketType(kind)),
            some.lists(ids, min_size=1, max_size=3),
            codes(PacketType(kind)),
            of(PacketType(kind)),
        )
    )
    disconnect = some.builds(
        Disconnect,
        codes(PacketType.DISCONNECT),
        of(PacketType.DISCONNECT, ("session_expiry_interval",) if side == "client" else ()),
    )
    auth = some.just(Auth()) | some.builds(
        Auth,
        codes(PacketType.AUTH),
        some.builds(
            Properties, authentication_method=texts, authentication_data=binaries, reason_string=texts
        ),
    )
    both = [publish, acknowledgements]
    if version == 5:
        both += [auth, disconnect]
    if side == "server":
        both += [_subscribes(version), some.builds(Pingreq), disconnect]
        both += [
            some.builds(
                Unsubscribe,
                ids,
                some.lists(filters | filters.map("$share/n/{}".format), min_size=1, max_size=3).map(tuple),
                of(PacketType.UNSUBSCRIBE),
            )
        ]
    else:
        granted = sorted(REASONS_OF[PacketType.SUBACK]) if version == 5 else [0, 1, 2, 0x80]
        some_codes = some.lists(some.sampled_from(granted), min_size=1, max_size=4).map(tuple)
        both += [some.builds(Suback, ids, some_codes, of(PacketType.SUBACK)), some.builds(Pingresp)]
        removed = some.lists(codes(PacketType.UNSUBACK), min_size=1, max_size=4).map(tuple)
        both += [
            some.builds(Unsuback, ids, removed if version == 5 else some.just(()), of(PacketType.UNSUBACK))
        ]
    return some.one_of(both)


def _publishes(side: str, version: int, qos: int) -> some.SearchStrategy[Publish]:
    without = ("topic_alias",) + (("subscription_identifiers",) if side == "server" else ())
    of = properties(PacketType.PUBLISH, without) if version == 5 else some.just(NO_PROPERTIES)

    def make(
        topic: str, props: Properties, payloads: list[bytes], number: int, retain: bool, dup: bool
    ) -> Publish:
        sizes = [len(payload) for payload in payloads]
        width = sizes[0] if len(set(sizes)) == 1 else 0
        numbers = [(number + at) % 0xFFFF + 1 for at in range(len(payloads))] if qos else []
        head = PublishHead(topic=topic, properties=props)
        return Publish(head, list(payloads), sum(sizes), width, qos, numbers, retain, dup and qos > 0)

    payloads = some.lists(binaries, min_size=1, max_size=4) | some.binary(max_size=5).map(
        lambda one: [one] * 30
    )
    return some.builds(make, names, of, payloads, ids, flags, flags)


def _subscribes(version: int) -> some.SearchStrategy[Subscribe]:
    shares = some.text("abc$. ", max_size=3)

    def make(text: str, qos: int, local: bool, published: bool, handling: int, share: str) -> Subscription:
        if version == 4:
            return Subscription(text, qos, share_name=share)
        return Subscription(text, qos, local and not share, published, handling, share)

    one = some.builds(make, filters, some.integers(0, 2), flags, flags, some.integers(0, 2), shares)
    several = some.lists(one, min_size=1, max_size=4).map(tuple)
    of = properties(PacketType.SUBSCRIBE) if version == 5 else some.just(NO_PROPERTIES)
    return some.builds(Subscribe, ids, several, of)


def connects(version: int) -> some.SearchStrategy[Connect]:
    """CONNECT packets."""
    will_properties = properties(WILL) if version == 5 else some.just(NO_PROPERTIES)
    wills = some.builds(Will, names, binaries, some.integers(0, 2), flags, will_properties)
    authentication = {} if version == 5 else {"user_name": texts}
    return some.builds(
        Connect,
        level=some.just(5) if version == 5 else some.sampled_from([3, 4]),
        client_id=texts.filter(bool),
        clean_start=flags,
        keep_alive=some.integers(0, 0xFFFF),
        will=some.none() | wills,
        user_name=authentication.get("user_name", some.none() | texts),
        password=some.none() | binaries,
        properties=properties(PacketType.CONNECT, authentication_method="m")
        if version == 5
        else some.just(NO_PROPERTIES),
    )


def connacks(version: int) -> some.SearchStrategy[Connack]:
    """CONNACK packets."""
    if version == 5:
        accepted = some.builds(Connack, session_present=flags, properties=properties(PacketType.CONNACK))
        codes = sorted(REASONS_OF[PacketType.CONNACK])
        refused = some.builds(
            Connack, reason_code=some.sampled_from(codes), properties=properties(PacketType.CONNACK)
        )
        return accepted | refused
    codes = [0x84, 0x85, 0x86, 0x87, 0x88]
    assert None not in {return_code(code) for code in codes}
    return some.builds(Connack, session_present=flags) | some.builds(
        Connack, reason_code=some.sampled_from(codes)
    )
