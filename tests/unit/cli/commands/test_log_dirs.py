"""`k log-dirs`: which brokers and replicas are shown, and in which form."""

from kcli.client.admin.descriptions import LogDirDescription, ReplicaInLogDirectory
from kcli.commands import log_dirs
from kcli.main import main
from kserver.errors import ErrorCode, KafkaError
from kserver.model import TopicPartition


def replica(topic, partition, *, future=False):
    return ReplicaInLogDirectory(TopicPartition(topic, partition), 10, 0, future)


def test_directories_and_replicas_are_in_order_and_only_those_that_are_asked_for():
    found = [
        LogDirDescription("/b", None, [replica("t", 10), replica("t", 2), replica("u", 0)]),
        LogDirDescription("/a", None, []),
    ]
    kept = log_dirs._matching(found, {"t"})
    assert [(one.path, [str(r.partition) for r in one.replicas]) for one in kept] == [
        ("/a", []),
        ("/b", ["t-2", "t-10"]),
    ]
    assert len(log_dirs._matching(found, set())[1].replicas) == 3


def test_the_document_is_kafkas():
    error = KafkaError(ErrorCode.kafka_storage_error)
    found = {
        0: [
            LogDirDescription("/a", error, []),
            LogDirDescription("/b", None, [replica("t", 0, future=True)]),
        ]
    }
    assert log_dirs._as_kafka(found) == {
        "brokers": [
            {
                "broker": 0,
                "logDirs": [
                    {
                        "partitions": [],
                        "error": "org.apache.kafka.common.errors.KafkaStorageException",
                        "logDir": "/a",
                    },
                    {
                        "partitions": [
                            {"partition": "t-0", "size": 10, "offsetLag": 0, "isFuture": True}
                        ],
                        "error": None,
                        "logDir": "/b",
                    },
                ],
            }
        ],
        "version": 1,
    }


def test_the_action_is_needed(capsys):
    assert main(["log-dirs"]) == 2
    assert 'Missing required argument "[describe]"' in capsys.readouterr().err
