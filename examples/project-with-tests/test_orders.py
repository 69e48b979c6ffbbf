"""The project's tests.  The fixtures `kafka_broker` and `kafka_cluster` come with k: no import or
set-up is required.

pip install k-kafka pytest && pytest
"""

from itertools import islice

import pytest
from orders import Order, announce, announce_all, announced, to_pack

from kcli.client import KafkaError

TEA, COFFEE = Order("ann", ["tea"]), Order("bob", ["coffee", "sugar"])


def test_an_order_is_announced(kafka_broker):
    announce(TEA, kafka_broker.address)
    assert announced(kafka_broker.address) == [TEA]


def test_each_test_has_a_broker_of_its_own(kafka_broker):
    announce(COFFEE, kafka_broker.address)
    assert announced(kafka_broker.address) == [COFFEE]


def test_orders_survive_a_restart_of_the_broker(kafka_broker):
    announce(TEA, kafka_broker.address)
    kafka_broker.restart()
    announce(COFFEE, kafka_broker.address)
    assert announced(kafka_broker.address) == [TEA, COFFEE]


@pytest.mark.kafka_broker(settings={"message.max.bytes": 1000})
def test_an_order_that_the_broker_rejects_is_an_error(kafka_broker):
    with pytest.raises(KafkaError, match="exceeds"):
        announce(Order("eve", ["everything"] * 1000), kafka_broker.address)


def test_no_order_is_lost_when_the_leader_is_killed(kafka_cluster):
    servers = kafka_cluster.bootstrap_servers
    announce(TEA, servers)
    leader = kafka_cluster.leader_of("orders")
    kafka_cluster.kill(leader)
    announce(COFFEE, servers)
    assert announced(servers) == [TEA, COFFEE]
    kafka_cluster.start(leader)
    kafka_cluster.wait_in_sync("orders")


def test_packers_continue_where_the_last_one_stopped_although_leaders_are_killed(kafka_cluster):
    """The producer is idempotent, as k's is by default; the packers are a group."""
    servers = kafka_cluster.bootstrap_servers
    orders = [Order(f"customer {number}", ["tea"]) for number in range(20)]
    for number, order in enumerate(orders):
        if number == 10:
            killed = kafka_cluster.leader_of("orders")
            kafka_cluster.kill(killed)
        announce(order, servers)
    kafka_cluster.start(killed)
    kafka_cluster.wait_in_sync("orders")
    packed = list(islice(to_pack(servers), 10))
    kafka_cluster.kill(kafka_cluster.leader_of("orders"))
    packed += islice(to_pack(servers), 11)
    assert packed == orders[:10] + orders[9:], "the first stopped before it had packed the tenth"


def test_a_producer_and_a_packer_continue_when_the_leader_is_killed(kafka_cluster):
    servers = kafka_cluster.bootstrap_servers
    orders = [Order(f"customer {number}", ["tea"]) for number in range(20)]

    def with_a_kill():
        yield from orders[:10]
        kafka_cluster.kill(kafka_cluster.leader_of("orders"))
        yield from orders[10:]

    announce_all(with_a_kill(), servers)
    (killed,) = {1, 2, 3} - {*kafka_cluster.running}
    kafka_cluster.start(killed)
    kafka_cluster.wait_in_sync("orders")
    packer = to_pack(servers)
    packed = list(islice(packer, 10))
    kafka_cluster.kill(kafka_cluster.leader_of("orders"))
    packed += islice(packer, 10)
    assert packed == orders, "each is packed once, in order"
