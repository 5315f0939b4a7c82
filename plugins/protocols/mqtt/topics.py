"""Topic names and topic filters (MQTT 5.0, 4.7 and 4.8.2), and their form as keys of the kernel.

Which filters match which topics is not decided here: ``kernel.contracts.spelling.MQTT`` parses filters for
the trie of ``kernel.contracts.word_trie``, and its ``hidden`` says that filters that begin with a wildcard do
not match topics that begin with ``$`` [MQTT-4.7.2-1].
"""

from __future__ import annotations

from collections.abc import Sequence

from kernel.contracts.spelling import MQTT

SHARE = "$share/"
"""What the filter of a shared subscription begins with."""
LONGEST_TOPIC = 65_535
"""Octets of UTF-8 (MQTT 5.0, 1.5.4)."""
STATUS = "$SYS"
_BRIDGES = f"{STATUS}/broker/connection/"
"""The first level of the topics under which brokers publish their status (MQTT 5.0, 4.7.2)."""

_swap = str.maketrans({"/": ".", ".": "/", "+": "*", "*": "+"})
_swap_octets = bytes.maketrans(b"/.+*", b"./*+")


def topic_to_key(topic: str) -> str:
    """Return the key of a topic, or the pattern of a topic filter: ``a/+/#`` becomes ``a.*.#``.

    The separators are exchanged, and so are the wildcards for one word; all other characters stay.  So no two
    topics have the same key: the dot in ``a.b/c`` becomes the slash in ``a/b.c``.
    """
    return topic.translate(_swap)


def key_to_topic(key: str) -> str:
    """Return the topic of a key, or the topic filter of a pattern: ``topic_to_key`` the other way round.

    Not every key is a valid topic: see ``name_fault``.
    """
    return key.translate(_swap)


def swap_all(names: Sequence[bytes]) -> list[bytes]:
    """Return the keys of topics, or the topics of keys, in UTF-8.  None of them may have a zero octet."""
    # All at once: a call for each takes three times as long.  In UTF-8 no octet of ASCII is part of another
    # character.
    return b"\0".join(names).translate(_swap_octets).split(b"\0")


def are_plain(topics: Sequence[bytes]) -> bool:
    """Whether all of these are valid topic names in UTF-8, and none is of the broker's own.

    They are valid if ``name_fault`` and ``decode_text`` find nothing, and they fit a packet.
    """
    joined = b"\0".join((b"", *topics))
    # The zero in front of each topic shows where it begins.
    if b"+" in joined or b"#" in joined or b"\0$" in joined or joined.count(0) != len(topics):
        return False
    if not all(topics) or max(map(len, topics), default=0) > LONGEST_TOPIC:
        return False
    if joined.isascii():
        return True
    try:
        joined.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_hidden(topic: str) -> bool:
    """Whether filters that begin with a wildcard do not match this topic [MQTT-4.7.2-1].

    The same is true of its key: the exchange of characters leaves ``$`` where it is.
    """
    return topic.startswith(MQTT.hidden)


def is_bridge_state(topic: str) -> bool:
    """Whether this is ``$SYS/broker/connection/NAME/state``, where a bridge says whether it is connected.

    Bridges of mosquitto publish it, and have it as their will.  mosquitto lets every client do so.
    """
    return (
        topic.startswith(_BRIDGES)
        and topic.endswith("/state")
        and topic.count("/") == _BRIDGES.count("/") + 1
    )


def is_status(topic_filter: str) -> bool:
    """Whether a topic filter may match topics of the status."""
    return topic_filter.partition("/")[0] == STATUS


def name_fault(topic: str) -> str | None:
    """Return what is wrong with a topic name; None if it is valid."""
    if not topic:
        return "is empty"
    if "+" in topic or "#" in topic:
        return f"{topic[:80]!r} has a wildcard"
    if "\0" in topic:
        return f"{topic[:80]!r} has the character U+0000"
    return None


def filter_fault(topic_filter: str) -> str | None:
    """Return what is wrong with a topic filter that is not of a shared subscription; None if it is valid."""
    if not topic_filter:
        return "is empty"
    if "\0" in topic_filter:
        return f"{topic_filter[:80]!r} has the character U+0000"
    # Most filters have few wildcards or none.
    if "+" not in topic_filter and "#" not in topic_filter:
        return None
    try:
        MQTT.pattern(topic_filter)
    except ValueError:
        return f"{topic_filter[:80]!r} has a wildcard beside other characters, or a '#' that is not the last"
    return None


def split_share(topic_filter: str) -> tuple[str, str]:
    """Return the share name and the topic filter behind it; an empty name if it is no shared subscription.

    Raises ``ValueError`` with what is wrong, if it begins as a shared subscription and is none
    [MQTT-4.8.2-1, MQTT-4.8.2-2].
    """
    if not topic_filter.startswith(SHARE):
        return "", topic_filter
    # The first slash ends the share name; the filter behind it may have more of them (4.8.2).
    name, slash, rest = topic_filter[len(SHARE) :].partition("/")
    if not name:
        raise ValueError(f"{topic_filter[:80]!r} has no share name")
    if "+" in name or "#" in name:
        raise ValueError(f"{topic_filter[:80]!r} has a wildcard in its share name")
    if not slash or not rest:
        raise ValueError(f"{topic_filter[:80]!r} has no topic filter behind its share name")
    return name, rest


def join_share(share_name: str, topic_filter: str) -> str:
    """Return a topic filter as it is sent: ``$share/NAME/FILTER``, or as it is without a share name."""
    return f"{SHARE}{share_name}/{topic_filter}" if share_name else topic_filter
