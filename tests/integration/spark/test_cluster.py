"""Test `k spark-cluster`: master and workers run once it is ready, and end when it stops."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
from pathlib import Path

import jsonschema
import pytest

from kcli.commands.spark_cluster import STATUS
from kcli.rows.shapes import schema
from kcli.spark import cluster
from tests.support import brokers
from tests.support.brokers import append, create_topic, until
from tests.support.frames import T0
from tests.support.spark_cases import MAX_OFFSETS, PARTITIONS, SMALL, SOURCE, land
from tests.support.spark_cluster import Cluster
from tests.support.spark_harness import Pipeline, await_that, check
from tests.support.tools import K, require

pytest.importorskip("pyspark", reason="the extra spark")


def run(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*K, "spark-cluster", *words],
        capture_output=True,
        text=True,
        env=os.environ | environment,
        timeout=180,
    )


def status(directory: Path) -> tuple[int, list[dict]]:
    done = run("status", "--dir", str(directory), "-o", "json")
    assert "Traceback" not in done.stderr
    document = json.loads(done.stdout)
    jsonschema.validate(document, schema(STATUS))
    return done.returncode, document["items"]


def test_it_is_there_when_start_returns_and_stop_leaves_nothing_also_of_what_was_harmed(tmp_path):
    require("java")
    where = ["--dir", str(tmp_path)]
    try:
        started = run("start", "--workers", "2", "--cores", "1", "--port", "0", *where)
        assert started.returncode == 0, started.stderr
        code, found = status(tmp_path)
        assert code == 0
        assert started.stdout == f"spark://{found[0]['address']}\n"
        assert [(m["name"], m["state"], m["cores"], m["memory_mb"]) for m in found] == [
            ("master", "ALIVE", 0, 0),
            ("worker-1", "ALIVE", 1, 1024),
            ("worker-2", "ALIVE", 1, 1024),
        ]
        listening = {line.split()[3] for line in listeners({m["pid"] for m in found})}
        assert listening
        assert all("127.0.0.1]:" in one or one.startswith("127.0.0.1:") for one in listening)

        again = run("start", *where)
        assert again.returncode == 1
        assert f"a cluster is already running in {tmp_path}" in again.stderr

        os.kill(found[1]["pid"], signal.SIGKILL)
        until(lambda: "DEAD" in {m["state"] for m in status(tmp_path)[1]})
        code, found = status(tmp_path)
        assert code == 1
        assert [(m["name"], m["pid"] is None) for m in found] == [
            ("master", False),
            ("worker-2", False),
            ("worker", True),
        ]
    finally:
        stopped = run("stop", *where)
    assert stopped.returncode == 0, stopped.stderr
    assert not list(cluster.processes(str(tmp_path)))
    assert run("stop", *where).returncode == 1
    assert status(tmp_path) == (1, [])


def listeners(pids: set[int]) -> list[str]:
    require("ss")
    lines = subprocess.run(["ss", "-Hltnp"], capture_output=True, text=True, check=True).stdout
    return [line for line in lines.splitlines() if any(f"pid={pid}," in line for pid in pids)]


@pytest.mark.parametrize(
    ("words", "environment", "code", "told"),
    [
        (["--port", "0"], {"JAVA_HOME": "/nowhere"}, 1, "/nowhere/bin/java does not exist"),
        (
            ["--port", "0", "--workers", "1"],
            {"SPARK_WORKER_OPTS": "-Dspark.rpc.askTimeout=x"},
            1,
            "worker-1.log",
        ),
        (["--port", "0", "--timeout", "0.2"], {}, 124, "the master does not respond"),
        (["--host", "192.0.2.77"], {}, 1, "cannot listen on 192.0.2.77:7077"),
        (["--workers", "0"], {}, 2, "--workers must be at least 1"),
        (["--memory", "much"], {}, 2, "is invalid: use a number with k, m or g"),
        (["--port", "65536"], {}, 2, "--port must be from 0 to 65535"),
    ],
)
def test_nothing_is_left_of_a_start_that_fails(tmp_path, words, environment, code, told):
    require("java")
    done = run("start", *words, "--dir", str(tmp_path), **environment)
    assert (done.returncode, done.stdout) == (code, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr
    assert not list(cluster.processes(str(tmp_path)))


def test_a_port_that_is_taken_is_named(tmp_path):
    require("java")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        done = run("start", "--port", str(port), "--dir", str(tmp_path))
    assert done.returncode == 1
    assert f"cannot listen on 127.0.0.1:{port} (Address already in use)" in done.stderr
    assert "choose another --port" in done.stderr


def test_a_node_that_is_killed_in_the_midst_of_a_job_costs_no_record(tmp_path):
    require("java")
    batches = 5
    with (
        brokers.running(brokers.OURS, tmp_path / "broker") as broker,
        Cluster(tmp_path / "cluster") as standalone,
    ):
        create_topic(broker.address, SOURCE, PARTITIONS)
        ids = [b"%d" % n for n in range(batches * MAX_OFFSETS)]
        for partition in range(PARTITIONS):
            records = [(T0, None, value, ()) for value in ids[partition::PARTITIONS]]
            append(broker.address, SOURCE, records, partition)
        spark = ("--master", standalone.url, *SMALL)
        case = land(broker.address, tmp_path, spark, most_at_last=MAX_OFFSETS)
        pipeline = Pipeline(tmp_path / "driver", case.command, case.checkpoints, once=True)
        with pipeline:
            await_that(pipeline, lambda: pipeline.batches("commits") != [-1])
            await_that(pipeline, lambda: pipeline.batches("offsets") != pipeline.batches("commits"))
            standalone.kill_node(random.Random(0))
            assert pipeline.batches("commits") < [batches - 1]
            pipeline.wait(180)
        assert pipeline.starts == 1
        assert check(set(ids), case.found["what is listed"]()).exact


def test_words_of_start_do_not_go_with_stop():
    done = run("stop", "--workers", "2")
    assert done.returncode == 2
    assert "--workers is not allowed with stop" in done.stderr
    assert run().returncode == run("begin").returncode == 2
