"""C2: what only brokers may ask is refused to everybody while there is no broker beside this one.

CVE-2018-1288: a client's Fetch with a replica id disturbed replication.
"""

import struct

import pytest

from kserver.api import fetch, list_offsets, offset_for_leader_epoch
from kserver.api.table import SERVED
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import Topic, fetch_fields, topic_id
from tests.support.brokers import append
from tests.support.wire_client import WireClient

BROKERS_ONLY = {
    4: "LeaderAndIsr",
    5: "StopReplica",
    6: "UpdateMetadata",
    7: "ControlledShutdown",
    52: "Vote",
    53: "BeginQuorumEpoch",
    54: "EndQuorumEpoch",
    56: "AlterPartition",
    58: "Envelope",
    59: "FetchSnapshot",
    62: "BrokerRegistration",
    63: "BrokerHeartbeat",
    64: "UnregisterBroker",
    67: "AllocateProducerIds",
    70: "ControllerRegistration",
    73: "AssignReplicasToDirs",
    82: "UpdateRaftVoter",
}
PRIVATE = (1000, 10_000, 20_000, 32_767, -1, -32_768)
"""Keys that no client's protocol has."""
# WriteTxnMarkers (27) is an administrator's too: it is how kafka-transactions.sh ends a transaction
# that hangs.
REPLICA_IDS = (0, 1, 7, 2**31 - 1)


@pytest.mark.parametrize("key", BROKERS_ONLY, ids=BROKERS_ONLY.get)
@pytest.mark.parametrize("version", [0, 3, 99])
def test_an_api_of_brokers_closes_the_connection(broker, key, version):
    refused(broker, key, version)


@pytest.mark.parametrize("key", PRIVATE)
def test_an_api_that_is_private_closes_the_connection(broker, key):
    refused(broker, key, 0)


def refused(broker, key, version):
    with WireClient(broker.address) as client:
        header = struct.pack(">hhih", key, version, 1, -1) + bytes(64)
        client.send_bytes(struct.pack(">i", len(header)) + header)
        assert client.is_closed()


def test_none_of_them_is_offered(broker):
    with WireClient(broker.address) as client:
        offered = {one.api_key for one in client.call(ApiKey.API_VERSIONS, 0).api_keys}
    assert offered == set(SERVED)
    assert not offered & BROKERS_ONLY.keys()


@pytest.fixture
def written(broker, topic):
    append(broker.address, topic, [(1, None, b"secret", ())])
    with WireClient(broker.address) as client:
        yield client, Topic(topic, topic_id(client, topic))


@pytest.mark.parametrize("version", fetch.VERSIONS)
@pytest.mark.parametrize("replica", REPLICA_IDS)
def test_a_fetch_in_a_brokers_name_gets_nothing(written, version, replica):
    client, topic = written
    named = (
        {"replica_id": replica}
        if version < 15
        else {"replica_state": {"replica_id": replica, "replica_epoch": -1}}
    )
    answer = client.call(ApiKey.FETCH, version, **fetch_fields(version, topic, {0: 0}) | named)
    (partition,) = answer.responses[0].partitions
    assert partition.error_code is ErrorCode.not_leader_or_follower
    assert not partition.records


@pytest.mark.parametrize("version", list_offsets.VERSIONS)
@pytest.mark.parametrize("replica", REPLICA_IDS)
def test_no_more_offsets_are_told_in_a_brokers_name_than_to_clients(written, version, replica):
    client, topic = written
    asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    topics = [{"name": topic.name, "partitions": [asked]}]
    answer = client.call(ApiKey.LIST_OFFSETS, version, replica_id=replica, topics=topics)
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.offset) == (ErrorCode.none, 1)


@pytest.mark.parametrize("version", [v for v in offset_for_leader_epoch.VERSIONS if v >= 3])
@pytest.mark.parametrize("replica", REPLICA_IDS)
def test_no_more_of_epochs_is_told_in_a_brokers_name_than_to_clients(written, version, replica):
    client, topic = written
    asked = {"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}
    topics = [{"topic": topic.name, "partitions": [asked]}]
    answer = client.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, replica_id=replica, topics=topics)
    (partition,) = answer.topics[0].partitions
    assert (partition.error_code, partition.end_offset) == (ErrorCode.none, 1)


@pytest.mark.parametrize("replica", [-1, -2])
def test_clients_have_the_replica_ids_below_zero(written, replica):
    client, topic = written
    asked = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}
    topics = [{"name": topic.name, "partitions": [asked]}]
    answer = client.call(ApiKey.LIST_OFFSETS, 7, replica_id=replica, topics=topics)
    assert answer.topics[0].partitions[0].offset == 1
    fields = fetch_fields(11, topic, {0: 0}) | {"replica_id": replica}
    assert client.call(ApiKey.FETCH, 11, **fields).responses[0].partitions[0].records
    client.call(ApiKey.METADATA, 1, topics=[])
