"""Which PySpark a Python takes that Spark starts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kcli.spark.quick_start import DIRECTORY

pyspark = pytest.importorskip("pyspark", reason="the extra spark")
HOME = Path(pyspark.__file__).parent
ZIPS = [str(HOME / "python/lib/pyspark.zip"), *map(str, HOME.glob("python/lib/py4j-*-src.zip"))]
WHERE = "import pyspark; print(pyspark.__file__)"


def said(*paths: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", WHERE],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": ":".join(paths)},
    )
    return done.stdout.splitlines()


def test_the_installed_one_goes_before_its_own_zip():
    assert said(*ZIPS) == [f"{ZIPS[0]}/pyspark/__init__.py"]
    assert said(*ZIPS, DIRECTORY) == [pyspark.__file__]


def test_a_zip_of_another_installation_stays_first(tmp_path):
    lib = tmp_path / "pyspark/python/lib"
    lib.mkdir(parents=True)
    os.symlink(ZIPS[0], lib / "pyspark.zip")
    assert said(str(lib / "pyspark.zip"), *ZIPS[1:], DIRECTORY) == [
        f"{lib}/pyspark.zip/pyspark/__init__.py"
    ]


def test_what_would_have_been_run_first_is_run(tmp_path):
    (tmp_path / "sitecustomize.py").write_text("print('here')")
    assert said(DIRECTORY, str(tmp_path)) == ["here", pyspark.__file__]
