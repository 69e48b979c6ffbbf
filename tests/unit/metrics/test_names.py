"""Names: Kafka's MBeans, and what exporters make of them."""

from __future__ import annotations

import re

import pytest

from kserver.metrics import catalog
from kserver.metrics.names import GAUGE, JMX, METER, NAMINGS, REPORTER, Metric

ALL = [metric for metrics in catalog.SECTIONS.values() for metric in metrics]

# What dashboards ask for: Strimzi's, those of the JMX exporter's rules, kafka_exporter's, and
# everybody's of the process.
WANTED = """
kafka_server_brokertopicmetrics_messagesin_total
kafka_server_brokertopicmetrics_bytesin_total
kafka_server_brokertopicmetrics_bytesout_total
kafka_server_brokertopicmetrics_totalproducerequests_total
kafka_server_brokertopicmetrics_totalfetchrequests_total
kafka_server_brokertopicmetrics_failedproducerequests_total
kafka_server_brokertopicmetrics_failedfetchrequests_total
kafka_server_replicamanager_leadercount
kafka_server_replicamanager_partitioncount
kafka_server_replicamanager_underreplicatedpartitions
kafka_controller_kafkacontroller_activecontrollercount
kafka_controller_kafkacontroller_offlinepartitionscount
kafka_controller_controllerstats_uncleanleaderelections_total
kafka_cluster_partition_underminisr
kafka_cluster_partition_atminisr
kafka_cluster_partition_replicascount
kafka_log_log_size
kafka_network_socketserver_networkprocessoravgidle_percent
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent
kafka_server_socket_server_metrics_connection_count
kafka_server_kafkaserver_linux_disk_read_bytes
kafka_server_kafkaserver_linux_disk_write_bytes
kafka_network_requestmetrics_requests_total
kafka_network_requestmetrics_totaltimems
kafka_log_logflushstats_logflushrateandtimems
kafka_log_logmanager_offlinelogdirectorycount
process_cpu_seconds_total
process_resident_memory_bytes
process_open_fds
process_start_time_seconds
kafka_brokers
kafka_topic_partitions
kafka_topic_partition_current_offset
kafka_topic_partition_oldest_offset
kafka_topic_partition_in_sync_replica
kafka_topic_partition_leader
kafka_topic_partition_leader_is_preferred
kafka_topic_partition_replicas
kafka_topic_partition_under_replicated_partition
"""

# Of Strimzi's metrics reporter, which keeps what the JMX exporter's rules cut.
REPORTED = """
kafka_server_brokertopicmetrics_messagesinpersec_total
kafka_network_socketserver_networkprocessoravgidlepercent
kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent
kafka_controller_controllerstats_uncleanleaderelectionspersec_total
kafka_network_requestmetrics_requestspersec_total
kafka_server_socket_server_metrics_connection_count
kafka_log_log_size
process_cpu_seconds_total
"""


@pytest.mark.parametrize(("naming", "wanted"), [(JMX, WANTED), (REPORTER, REPORTED)])
def test_every_name_that_dashboards_ask_for_is_declared(naming, wanted):
    assert set(wanted.split()) <= {metric.exposed(naming) for metric in ALL}


@pytest.mark.parametrize("naming", NAMINGS)
def test_no_two_metrics_share_a_name_and_each_is_one_to_prometheus(naming):
    names = [metric.exposed(naming) for metric in ALL]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z_]+", name) for name in names)
    assert all(re.fullmatch(r"[a-zA-Z_]+", label) for m in ALL for label in m.labels)
    assert [n for n in names if n.endswith("_total")] == [
        m.exposed(naming) for m in ALL if m.kind is METER
    ]


def test_an_mbean_is_named_as_kafka_names_it():
    assert catalog.MESSAGES_IN.mbean == (
        "kafka.server:type=BrokerTopicMetrics,name=MessagesInPerSec,topic=*"
    )
    assert catalog.CONNECTIONS.mbean == (
        "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=* connection-count"
    )
    assert Metric("", "", "process_open_fds", GAUGE, (), "").mbean == ""


def test_every_declared_metric_is_in_a_section():
    declared = [value for value in vars(catalog).values() if isinstance(value, Metric)]
    assert sorted(m.exposed() for m in declared) == sorted(m.exposed() for m in ALL)
