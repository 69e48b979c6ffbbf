"""What is handed to spark-submit, and what is refused before."""

from __future__ import annotations

import subprocess

import pytest

from kcli.spark import installation
from kcli.spark.submission import DEFAULTS, Submission, adjusted, environment, own_first


def test_the_application_is_the_first_word_that_no_option_takes():
    words = [
        "--master",
        "local[2]",
        "--verbose",
        "--conf",
        "a=b",
        "--name=x",
        "app.py",
        "--master",
        "spark://h:1",
    ]
    found = Submission.of(words)
    assert found.application == "app.py"
    assert found.options == {
        "--master": "local[2]",
        "--verbose": "",
        "--conf": "a=b",
        "--name": "x",
    }


def test_own_options_may_stand_among_those_of_spark():
    own = {"--ship", "--print-command"}
    words = ["--master", "--ship", "--verbose", "--ship", "--name=x", "land", "--print-command"]
    taken, rest = own_first(words, own)
    assert taken == ["--ship"]
    assert rest == ["--master", "--ship", "--verbose", "--name=x", "land", "--print-command"]


@pytest.mark.parametrize("words", [[], ["--master", "app.py"], ["--verbose"], ["--conf"]])
def test_there_may_be_no_application(words):
    assert Submission.of(words).application is None


@pytest.mark.parametrize(
    ("application", "path"),
    [
        ("app.py", "app.py"),
        ("/a/app.py", "/a/app.py"),
        ("file:/a/app.py", "/a/app.py"),
        ("file:///a/app.py", "/a/app.py"),
        ("local:/a/app.py", None),
        ("hdfs://h/app.py", None),
    ],
)
def test_an_application_of_this_machine_has_a_path(application, path):
    assert Submission.of([application]).local_file == path


def test_a_standalone_cluster_is_said_not_to_run_a_python_driver():
    cluster = ["--master", "spark://h:7077", "--deploy-mode", "cluster"]
    refusal = Submission.of([*cluster, "app.py"]).refusal({})
    assert refusal is not None
    assert "leave out --deploy-mode cluster" in refusal
    assert Submission.of([*cluster, "land"], ["land"]).refusal({}) == refusal
    assert Submission.of([*cluster, "app.jar"]).refusal({}) is None
    assert Submission.of([*cluster[:2], "app.py"]).refusal({}) is None
    yarn = Submission.of(["--master", "yarn", *cluster[2:], "app.py"])
    assert yarn.refusal({"HADOOP_CONF_DIR": "/etc/hadoop"}) is None


def test_spark_is_that_of_this_environment_and_python_too_unless_it_is_named():
    before = {"SPARK_HOME": "/opt/spark", "PYTHONPATH": "/mine:/k", "PYSPARK_PYTHON": "/far/python"}
    assert environment(before, spark_home="/s", python="/p", sources="/k") == {
        "SPARK_HOME": "/s",
        "PYSPARK_PYTHON": "/far/python",
        "PYSPARK_DRIVER_PYTHON": "/p",
        "PYTHONPATH": "/k:/mine",
    }
    assert "PYTHONPATH" not in environment({}, spark_home="/s", python="/p", sources=None)


IMAGE = "spark.kubernetes.container.image=i"
UPLOAD = "spark.kubernetes.file.upload.path=s3a://b/up"
K8S = ["--master", "k8s://https://h:6443"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--master", "yran", "land"], "--master yran is not a master URL of Spark"),
        (["--master", "yarn", "land"], "HADOOP_CONF_DIR is not set"),
        ([*K8S, "land"], "spark.kubernetes.container.image=IMAGE"),
        ([*K8S, "--conf", IMAGE, "land"], None),
        ([*K8S, "--conf", IMAGE, "--deploy-mode", "cluster", "land"], "file.upload.path"),
        ([*K8S, "--conf", IMAGE, "--deploy-mode", "cluster", "a.py"], "file.upload.path"),
        ([*K8S, "--conf", IMAGE, "--deploy-mode", "cluster", "local:///a.py"], None),
        ([*K8S, "--conf", IMAGE, "--conf", UPLOAD, "--deploy-mode=cluster", "land"], None),
        (["--conf", "spark.master=spark://h:1", "--deploy-mode", "cluster", "land"], "standalone"),
        (["--remote", "sc://h", "land"], "a job runs its own driver"),
        (["--remote", "sc://h", "a.py"], None),
        (["--master", "local-cluster[1,1,512]", "land"], None),
        (["land"], None),
    ],
)
def test_what_a_master_needs_is_said_beforehand(words, told):
    refusal = Submission.of(words, ["land"]).refusal({})
    assert (refusal is None) == (told is None), refusal
    assert told is None or told in refusal


def command(*words: str, **more) -> list[str]:
    return Submission.of(words, ["land"]).command(runner="/k/run.py", **more)


PUSHDOWN, SOCKET = (f"{key}={text}" for key, text in DEFAULTS.items())


def test_a_job_is_run_with_its_words_and_named():
    assert command("--master", "local[2]", "land", "--path", "p") == [
        *("--conf", PUSHDOWN, "--conf", SOCKET, "--name", "k land"),
        *("--master", "local[2]", "/k/run.py", "land", "--path", "p"),
    ]
    assert "k land" not in command("--name", "mine", "land")
    assert "k land" not in command("--conf", "spark.app.name=mine", "land")


def test_settings_that_are_given_stay():
    off = "spark.python.unix.domain.socket.enabled=false"
    assert command("--conf", off, "a.py") == ["--conf", PUSHDOWN, "--conf", off, "a.py"]
    of_file = Submission.of(["a.py"]).over(dict.fromkeys(DEFAULTS, "false"))
    assert of_file.command(runner="") == ["a.py"]
    assert Submission.of(["--conf", "a=1", "a.py"]).over({"a": "2"}).settings == {"a": "1"}


@pytest.mark.parametrize(
    ("words", "set_for"),
    [
        ([], []),
        (["--master", "local[2]"], []),
        (["--master", "local-cluster[1,1,512]"], ["spark.executorEnv"]),
        (["--master", "spark://h:1"], ["spark.executorEnv"]),
        (["--master", "yarn"], ["spark.executorEnv"]),
        (
            ["--master", "yarn", "--deploy-mode", "cluster"],
            ["spark.executorEnv", "spark.yarn.appMasterEnv"],
        ),
        (["--master", "k8s://h"], []),
    ],
)
def test_executors_find_the_package_where_it_lies_here_but_for_those_in_an_image(words, set_for):
    found = command(*words, "land", sources="/k")
    settings = {text.partition("=")[0] for text in found} - DEFAULTS.keys()
    assert {f"{name}.PYTHONPATH" for name in set_for} == {s for s in settings if "PYTHONPATH" in s}
    assert not any("PYTHONPATH" in word for word in command(*words, "land"))


def test_what_is_shipped_goes_with_what_the_user_ships():
    assert command("--py-files", "a.zip,b.py", "land", shipped="/k.zip")[-4:] == [
        *("--py-files", "/k.zip,a.zip,b.py"),
        *("/k/run.py", "land"),
    ]
    of_setting = command("--conf", "spark.submit.pyFiles=a.zip", "a.py", shipped="/k.zip")
    assert of_setting[-3:] == ["--py-files", "/k.zip,a.zip", "a.py"]


def test_a_pod_has_its_own_python():
    added = {"PYSPARK_PYTHON": "/here/python", "PYSPARK_DRIVER_PYTHON": "/here/python"}

    def of(*words: str, **before: str) -> list[str]:
        found = adjusted(added, before, Submission.of([*words, "a.py"]), "/log")
        return [found["PYSPARK_PYTHON"], found["PYSPARK_DRIVER_PYTHON"]]

    assert of("--master", "yarn") == ["/here/python"] * 2
    assert of(*K8S) == ["python3", "/here/python"]
    assert of(*K8S, "--deploy-mode", "cluster") == ["python3"] * 2
    assert of(*K8S, PYSPARK_PYTHON="/far/python") == ["/here/python"] * 2  # which said so


def test_sparks_log_is_silent_beside_a_job_unless_someone_has_set_it():
    def options(word: str, **before: str) -> str | None:
        added = adjusted({}, before, Submission.of([word], ["land"]), "/log")
        return added.get("SPARK_SUBMIT_OPTS")

    ours = '"-Dlog4j2.configurationFile=/log"'
    assert options("land") == ours
    assert options("land", SPARK_SUBMIT_OPTS="-Da=b") == f"-Da=b {ours}"
    assert options("land", SPARK_SUBMIT_OPTS="-Dlog4j2.configurationFile=/mine") is None
    assert options("land", SPARK_CONF_DIR="/mine") is None
    assert options("a.py") is None


def test_a_job_is_run_by_a_java_that_has_nothing_to_warn_of(tmp_path, monkeypatch):
    java = tmp_path / "bin/java"
    java.parent.mkdir()
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    added = installation.quiet_java()
    words = ["-cp", "a b:*", "--add-modules=jdk.incubator.vector", "-Dx='y'", "Main", ""]
    started = subprocess.run(
        [f"{added['JAVA_HOME']}/bin/java", *words], env=added, capture_output=True, text=True
    )
    assert started.stdout.splitlines() == [*words[:2], *words[3:]]
    monkeypatch.setenv("JAVA_HOME", added["JAVA_HOME"])
    assert installation.quiet_java() == {}
