"""Test brokers that authenticate to ZooKeeper, with Kafka's SASL config and with ZooKeeper's digest
scheme."""

from __future__ import annotations

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from tests.support.process import BrokerProcess
from tests.support.zookeeper_server import OwnZooKeeperServer, SaslZooKeeperServer, ZooKeeperServer

LOGIN_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def by_sasl(password):
    return {
        "zookeeper.sasl.jaas.config": f'{LOGIN_MODULE} required username="k" password="{password}";'
    }


def by_digest(password):
    return {"zookeeper.auth": f"digest k:{password}"}


HIDDEN = ("digest", "k:x")
"""Form in which a server shows a digest to clients that may not change the ACL."""
LOGINS = {
    "own-digest": (OwnZooKeeperServer, by_digest, HIDDEN),
    "apache-digest": (ZooKeeperServer, by_digest, HIDDEN),
    "apache-sasl": (SaslZooKeeperServer, by_sasl, ("sasl", "k")),
}


@pytest.fixture(scope="module", params=LOGINS.values(), ids=LOGINS)
def secured(request, tmp_path_factory):
    """A client without a login, a function that makes brokers, and the identity of the broker that
    has logged in."""
    server, settings, identity = request.param
    with server(tmp_path_factory.mktemp("zookeeper")) as zookeeper:

        def broker(directory, password="secret", **more):
            connect = {
                "zookeeper.connect": f"{zookeeper.address}/kafka",
                "zookeeper.set.acl": "true",
                "zookeeper.connection.timeout.ms": 3000,
            }
            return BrokerProcess(directory, connect | settings(password) | more)

        directory = tmp_path_factory.mktemp("broker")
        with broker(directory), stranger(zookeeper) as client:
            yield client, broker, identity


class stranger:
    """A client without a login."""

    def __init__(self, zookeeper):
        self.client = KazooClient(f"{zookeeper.address}/kafka")

    def __enter__(self):
        self.client.start()
        return self.client

    def __exit__(self, *_):
        self.client.stop()
        self.client.close()


def rights(client, path):
    acls, _ = client.get_acls(path)
    return {(acl.id.scheme, acl.id.id): acl.perms for acl in acls}


ALL, READ = 31, 1


@pytest.mark.parametrize("path", ["/", "/brokers/ids/1001", "/brokers/topics", "/controller_epoch"])
def test_others_read_what_brokers_alone_write(secured, path):
    client, _, identity = secured
    assert rights(client, path) == {identity: ALL, ("world", "anyone"): READ}
    client.get(path)
    with pytest.raises(NoAuthError):
        client.set(path, b"")


@pytest.mark.parametrize("path", ["/config/users", "/config/brokers"])
def test_what_may_hold_passwords_is_for_brokers_alone(secured, path):
    client, _, _ = secured
    with pytest.raises(NoAuthError):
        client.get_children(path)


def test_groups_of_the_old_consumer_are_for_everybody(secured):
    client, _, _ = secured
    client.create("/consumers/g")
    client.delete("/consumers/g")


def test_another_broker_with_the_login_joins(secured, tmp_path):
    client, broker, _ = secured
    with broker(tmp_path) as second:
        second_id = max(client.get_children("/brokers/ids"), key=int)
        assert int(second_id) > 1001
        assert second.stop() == 0


def test_one_with_another_password_is_told_what_is_wrong(secured, tmp_path):
    _, broker, (scheme, _) = secured
    with pytest.raises(RuntimeError) as failed:
        broker(tmp_path, "wrong").start()
    key = "zookeeper.sasl.jaas.config" if scheme == "sasl" else "zookeeper.auth"
    assert "Traceback" not in str(failed.value)
    assert f"correct {key}" in str(failed.value)


def test_acls_without_a_login_are_refused(tmp_path):
    settings = {"zookeeper.connect": "127.0.0.1:1", "zookeeper.set.acl": "true"}
    with pytest.raises(RuntimeError, match="no login is set"):
        BrokerProcess(tmp_path, settings).start()
