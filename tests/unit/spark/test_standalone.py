"""The words of a standalone cluster's processes, and what is read from them and their master."""

from __future__ import annotations

import pytest

from kcli.spark.standalone import (
    MEMORY,
    Process,
    SparkClusterPlan,
    alive,
    environment,
    last_words,
    members,
)

PLAN = SparkClusterPlan("/d", "127.0.0.1", 7077, 8080, [5001, 5002], cores=2, memory="1g")


def process(pid: int, words: list[str]) -> Process:
    found = Process.of(pid, ["/usr/bin/java", "-cp", "x", *words])
    assert found is not None
    return found


MASTER = process(10, PLAN.master())
WORKERS = [process(11, PLAN.worker(1)), process(12, PLAN.worker(2))]


def told(*states: str) -> dict:
    workers = [
        {
            "host": "127.0.0.1",
            "port": 5001 + n,
            "state": state,
            "cores": 2,
            "coresused": n,
            "memory": 1024,
        }
        for n, state in enumerate(states)
    ]
    return {"status": "ALIVE", "workers": workers}


def test_what_is_started_is_known_again_by_its_words():
    assert (MASTER.role, MASTER.name, MASTER.address) == ("master", "master", "127.0.0.1:7077")
    assert MASTER.option("--webui-port") == "8080"
    assert [(w.role, w.name, w.address) for w in WORKERS] == [
        ("worker", "worker-1", "127.0.0.1:5001"),
        ("worker", "worker-2", "127.0.0.1:5002"),
    ]
    assert PLAN.worker(2)[-1] == PLAN.url == "spark://127.0.0.1:7077"


def test_executors_and_python_workers_belong_to_it_and_nothing_else_does():
    executor = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
    assert process(1, [executor, "--executor-id", "0"]).role == "executor"
    for module in ("pyspark.daemon", "another.daemon"):
        assert process(1, ["-m", module, "pyspark.worker"]).role == "python"
    assert Process.of(1, ["vim", "worker-1.log"]) is None
    assert Process.of(1, ["vim", "pyspark.py"]) is None
    assert Process.of(1, []) is None


def test_an_option_without_a_value_has_none():
    assert Process(1, "worker", ["java", "--host"]).option("--host") == ""


def test_members_are_processes_with_what_the_master_says_of_them():
    found = members([WORKERS[1], MASTER, WORKERS[0]], told("ALIVE", "ALIVE"))
    assert [(m.name, m.pid, m.state, m.cores, m.cores_used, m.memory_mb) for m in found] == [
        ("master", 10, "ALIVE", 0, 0, 0),
        ("worker-1", 11, "ALIVE", 2, 0, 1024),
        ("worker-2", 12, "ALIVE", 2, 1, 1024),
    ]


def test_a_worker_that_ended_is_told_without_a_process_and_last():
    found = members([MASTER, WORKERS[1]], told("DEAD", "ALIVE"))
    assert [(m.name, m.pid, m.state) for m in found] == [
        ("master", 10, "ALIVE"),
        ("worker-2", 12, "ALIVE"),
        ("worker", None, "DEAD"),
    ]


@pytest.mark.parametrize("said", [None, {}])
def test_what_the_master_does_not_speak_of_is_starting(said):
    assert [m.state for m in members([MASTER, *WORKERS], said)] == ["STARTING"] * 3
    assert [m.name for m in members(WORKERS, None)] == ["worker-1", "worker-2"]


def test_only_workers_that_are_alive_count():
    assert alive(told("ALIVE", "DEAD", "ALIVE")) == 2
    assert alive({}) == 0


def test_pages_are_on_the_address_of_all_else_and_what_was_chosen_stays():
    assert environment({}, "h") == {
        "SPARK_LOCAL_IP": "h",
        "SPARK_DAEMON_MEMORY": "512m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC",
    }
    assert environment({"SPARK_DAEMON_MEMORY": "2g"}, "h")["SPARK_DAEMON_MEMORY"] == "2g"


@pytest.mark.parametrize(
    ("texts", "are"),
    [
        (["512m", "1g", "2GB", "700", "10b"], True),
        (["0g", "00", "", "1.5g", "-1g", "g", "1x", "1bb"], False),
    ],
)
def test_memory_is_an_amount_above_nothing(texts, are):
    assert [MEMORY.fullmatch(text) is not None for text in texts] == [are] * len(texts)


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("", "its log is empty"),
        ("one\ntwo\n\n", "two"),
        (
            'INFO up\nException in thread "main" java.net.BindException: in use\n\tat a.b(C.java)\n'
            "Caused by: java.lang.Error: x\n\t... 3 more\n",
            'Exception in thread "main" java.net.BindException: in use',
        ),
    ],
)
def test_the_reason_of_an_end_is_its_last_error(log, words):
    assert last_words(log) == words
