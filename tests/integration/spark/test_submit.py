"""Test `k spark-submit`: it runs this environment's Spark, and returns its exit status."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.spark_jobs import run_all
from tests.support.tools import K

ROOT = Path(__file__).parents[3]

APPLICATION = """
import os, sys
import pyspark, pyspark_k
found = os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"]
print(found == (sys.executable,) * 2, pyspark_k.DefaultSource.name(), sys.argv[1:])
print(pyspark.__file__.startswith(os.environ["SPARK_HOME"] + os.sep))
sys.exit(7)
"""


def submit(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    names = {"PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "PYTHONPATH"}
    kept = {name: text for name, text in os.environ.items() if name not in names}
    return run_all([*K, "spark-submit", *words], env=kept | environment, cwd=ROOT)


def test_an_application_runs_with_this_environments_pyspark_and_its_status_is_handed_back(tmp_path):
    (tmp_path / "app.py").write_text(APPLICATION)
    words = ["--name", "n", str(tmp_path / "app.py"), "--master", "x"]
    done = submit(*words, SPARK_HOME="/nowhere")
    assert done.stdout.splitlines() == ["True k ['--master', 'x']", "True"], done.stderr
    assert done.returncode == 7
    printed = submit("--print-command", *words, PYSPARK_PYTHON="/far/python")
    assert printed.returncode == 0
    assert printed.stdout.startswith("env SPARK_HOME=/")
    assert " PYSPARK_PYTHON=/far/python " in printed.stdout
    assert printed.stdout.endswith(f" {shlex.join(words)}\n")
    set_here = "/bin/spark-submit --conf spark.sql.python.filterPushdown.enabled=true --conf "
    assert set_here in printed.stdout


def test_a_job_is_printed_as_it_would_be_run(tmp_path):
    (tmp_path / "spark.conf").write_text("spark.sql.python.filterPushdown.enabled false\n")
    words = ["--master", "spark://h:1", "--properties-file", str(tmp_path / "spark.conf")]
    job = ["land", "--topics", "t", "--path", "p", "--checkpoint", "c"]
    printed = submit("--print-command", "--ship", *words, *job, XDG_CACHE_HOME=str(tmp_path))
    found = shlex.split(printed.stdout)
    at = found.index(str(ROOT / "kcli" / "spark" / "jobs" / "run.py"))
    assert found[at + 1 :] == job
    assert f"spark.executorEnv.PYTHONPATH={ROOT}" in found
    assert not any("filterPushdown" in word for word in found)
    assert found[at - 2] == "--py-files"
    (shipped,) = (tmp_path / "k").glob("*.zip")
    assert found[at - 1] == str(shipped)
    # Its contents suffice, in addition to compiled packages.
    code = "import kcli.spark.sink, pyspark_k; print(kcli.spark.sink.__file__, pyspark_k.__file__)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(shipped), "PATH": os.environ["PATH"]},
        cwd=tmp_path,
        check=True,
    )
    assert done.stdout.split() == [f"{shipped}/kcli/spark/sink.py", f"{shipped}/pyspark_k.py"]


@pytest.mark.parametrize(
    ("words", "status", "told"),
    [
        ([], 2, "name an application or a job to run"),
        (["--master", "yarn"], 2, "name an application or a job to run"),
        (["no.py"], 1, "file no.py does not exist"),
        (["lnad", "--topics", "t"], 1, "and no job of that name (did you mean land?)"),
        (["land"], 2, "name the directory for rows: --path"),
        (["land", "--path", "p", "--topic", "t"], 2, "did you mean --topics?"),
        (["--master", "yarn", "land", "--path", "p"], 1, "HADOOP_CONF_DIR is not set"),
        (
            ["--master", "spark://h:1", "--deploy-mode", "cluster", "setup.py"],
            1,
            "leave out --deploy-mode cluster",
        ),
    ],
)
def test_what_cannot_work_is_said_early(words, status, told):
    done = submit(*words)
    assert (done.returncode, done.stdout) == (status, "")
    assert told in done.stderr
    assert "Traceback" not in done.stderr


def test_spark_without_java_is_refused():
    done = submit("setup.py", JAVA_HOME="/nowhere")
    assert done.returncode == 1
    assert "Spark requires Java 17 or later, but /nowhere/bin/java does not exist" in done.stderr
