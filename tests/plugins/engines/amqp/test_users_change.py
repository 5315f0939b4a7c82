"""Users of the options change: what that does to accounts, to imported users and to who is connected."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
import pytest

from plugins.engines.broker.errors import AccessRefused, NotAllowed
from plugins.engines.broker.host.definition_forms import read_definitions
from plugins.engines.broker.host.importing import Importer
from plugins.engines.broker.host.options import GUEST, TopicPatterns, User, VhostPermissions
from plugins.engines.broker.host.users import Login
from plugins.protocols.amqp091.events import ChannelClosed, ConnectionClosed
from plugins.protocols.amqp091.methods import queue
from tests.plugins.engines.amqp.still_host import StillClient, StillServer
from tests.plugins.engines.broker.client import run

EVE = User(password="p", configure="^eve")


@pytest.fixture
def server(still: Callable[..., StillServer]) -> StillServer:
    return still(users={"guest": GUEST, "eve": EVE})


def change(server: StillServer, users: Mapping[str, User]) -> None:
    options = msgspec.structs.replace(server.engine.options, users=dict(users))
    server.engine.take_options(options)
    server.host.process()


def login(server: StillServer, name: str, password: str) -> Login | None:
    return server.engine.users.log_in_by_password(name, password, loopback=True)


def eve(server: StillServer) -> StillClient:
    return server.connect(response=b"\0eve\0p")


def import_eve(server: StillServer) -> None:
    """As `kernel definitions import` does."""
    permission = {"user": "eve", "vhost": "/", "configure": "^imported", "write": "", "read": ""}
    document = {"permissions": [permission]}
    Importer(server.engine.broker, server.engine.users, 0.0).run(
        read_definitions(msgspec.json.encode(document))
    )


def test_a_new_password_and_new_patterns(server: StillServer) -> None:
    client = eve(server)
    change(server, {"guest": GUEST, "eve": User(password="new", configure="^adam")})
    assert login(server, "eve", "p") is None
    assert login(server, "eve", "new") is not None
    client.ask(queue.Declare(queue="adam"), queue.DeclareOk)
    client.send(queue.Declare(queue="eve"))
    assert client.wait_for(ChannelClosed).reply_code == 403


def test_publishers_notice_that_they_may_no_longer(server: StillServer) -> None:
    """What they may publish to is remembered."""
    client = server.connect()
    client.ask(queue.Declare(queue="q"), queue.DeclareOk)
    client.connection.publish(1, run(b"x", key="q"))
    client.flush()
    change(server, {"guest": msgspec.structs.replace(GUEST, write="^nothing$")})
    client.connection.publish(1, run(b"x", key="q"))
    client.flush()
    assert client.wait_for(ChannelClosed).reply_code == 403


@pytest.mark.parametrize("at", ["everywhere", "one virtual host"])
def test_publishers_notice_that_their_keys_are_limited(server: StillServer, at: str) -> None:
    client = server.connect()
    batch = run(b"x", exchange="amq.topic", key="b")
    client.connection.publish(1, batch)
    client.flush()
    topics = {"amq.topic": TopicPatterns(write="^a")}
    limited = (
        {"topics": topics} if at == "everywhere" else {"permissions": {"/": VhostPermissions(topics=topics)}}
    )
    change(server, {"guest": msgspec.structs.replace(GUEST, **limited)})
    client.connection.publish(1, run(b"x", exchange="amq.topic", key="a"))
    client.connection.publish(1, batch)
    client.flush()
    closed = client.wait_for(ChannelClosed)
    assert "access to topic 'b' in exchange 'amq.topic' in vhost '/' refused" in closed.reply_text


def test_who_may_not_publish_under_a_key_is_named(server: StillServer) -> None:
    topics = {"amq.topic": TopicPatterns(write="^a")}
    change(server, {"guest": GUEST, "eve": User(password="p", topics=topics)})
    for key, refused in (("a", []), ("b", ["users who may not publish to it: eve"])):
        (row,) = server.engine.operate("explain", {"exchange": "amq.topic", "key": key})["rows"]
        assert [note for note in row["notes"] if "may not" in note] == refused


def test_who_is_gone_is_disconnected_and_nobody_else(server: StillServer) -> None:
    client, other = eve(server), server.connect()
    change(server, {"guest": GUEST})
    closed = client.wait_for(ConnectionClosed)
    assert (closed.reply_code, closed.reply_text) == (320, "CONNECTION_FORCED - user 'eve' is deleted")
    assert other.hosted.is_open
    assert login(server, "eve", "p") is None
    change(server, {"guest": GUEST, "eve": EVE})
    assert eve(server).hosted.is_open


def test_other_tags_show_and_the_connection_stays(server: StillServer) -> None:
    client = eve(server)
    for tags in (("monitoring", "policymaker"), ()):
        change(server, {"guest": GUEST, "eve": msgspec.structs.replace(EVE, tags=tags)})
        (row,) = [row for row in server.engine.inspect("users") if row["name"] == "eve"]
        assert (row["tags"], row["connections"]) == (list(tags), 1)
        found = login(server, "eve", "p")
        assert found is not None
        assert found.account.tags == tags
        client.ask(queue.Declare(queue="eve"), queue.DeclareOk)
    assert client.hosted.is_open


def test_a_limit_counts_connections_that_were_there_before(server: StillServer) -> None:
    eve(server)
    change(server, {"eve": msgspec.structs.replace(EVE, max_connections=1)})
    found = login(server, "eve", "p")
    assert found is not None
    with pytest.raises(NotAllowed, match=r"user connection limit \(1\) is reached"):
        found.enter("/")


def test_what_was_imported_counts(server: StillServer) -> None:
    client = eve(server)
    import_eve(server)
    change(server, {"eve": msgspec.structs.replace(EVE, configure="^adam")})
    client.ask(queue.Declare(queue="imported"), queue.DeclareOk)
    change(server, {"guest": GUEST})
    client.ask(queue.Declare(queue="imported"), queue.DeclareOk)


def test_patterns_for_single_virtual_hosts(still: Callable[..., StillServer]) -> None:
    only_reads = VhostPermissions(configure="^$", write="^$")
    user = User(
        password="p", tags=("monitoring",), permissions={"/": VhostPermissions(), "other": only_reads}
    )
    server = still(vhosts=("/", "other", "third"), users={"eve": user})
    found = login(server, "eve", "p")
    assert found is not None
    found.require("write", "exchange", "x", "/")
    found.require("read", "queue", "q", "other")
    with pytest.raises(AccessRefused):
        found.require("write", "exchange", "x", "other")
    with pytest.raises(NotAllowed):
        found.enter("third")
    assert server.engine.inspect("users")[0]["tags"] == ["monitoring"]


def test_patterns_of_the_user_hold_in_the_other_virtual_hosts(still: Callable[..., StillServer]) -> None:
    user = User(password="p", vhosts=("other",), write="^a", permissions={"/": VhostPermissions(write="^b")})
    found = login(still(vhosts=("/", "other"), users={"eve": user}), "eve", "p")
    assert found is not None
    for vhost, mine, not_mine in (("other", "a", "b"), ("/", "b", "a")):
        found.require("write", "exchange", mine, vhost)
        with pytest.raises(AccessRefused):
            found.require("write", "exchange", not_mine, vhost)


def test_permissions_that_were_set_meanwhile_can_be_taken_back(still: Callable[..., StillServer]) -> None:
    server = still(vhosts=("/", "other"), users={"eve": User(password="p", vhosts=("/",))})
    import_eve(server)
    of_other = {"user": "eve", "vhost": "other", "configure": "", "write": "", "read": ""}
    server.engine.operate("import-definitions", {"permissions": [of_other]})
    names = [{"user": "eve", "vhost": vhost} for vhost in ("/", "other")]
    assert server.engine.operate("delete-definitions", {"permissions": names})["complaints"] == []
    [row] = server.engine.inspect("permissions")
    # What the topology file says counts again.
    assert (row["vhost"], row["configure"]) == ("/", ".*")
    done = server.engine.operate("delete-definitions", {"permissions": names})
    assert [complaint.partition(": ")[2] for complaint in done["complaints"]] == [
        "user 'eve' is in the topology file: change the permissions there, and send SIGHUP"
    ] * 2
