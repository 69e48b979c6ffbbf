"""What each of the Pythons imports that Spark starts, one for each thing that it asks."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytest.importorskip("pyspark", reason="the extra spark")

FIRST = "import sys; from pyspark_k import DefaultSource; source = DefaultSource({}); "
LOADED = "print(*sys.modules)"
READER = """
source.options.update({"kafka.bootstrap.servers": "h:1", "subscribe": "t"})
reader = source.reader(source.schema())
"""


def loaded(code: str) -> set[str]:
    """By a worker."""
    ran = subprocess.run(
        [sys.executable, "-c", FIRST + code + LOADED],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHON_WORKER_FACTORY_SECRET": "secret"},
    )
    return set(ran.stdout.split())


def test_to_find_the_source_and_its_columns_takes_neither_arrow_nor_a_client():
    found = loaded("source.schema(); ")
    assert "kcli.spark.source" in found
    assert not {"pyarrow", "numpy", "asyncio", "kcli.client", "hypothesis"} & found


def test_to_plan_a_read_takes_nothing_that_decodes():
    found = loaded(READER)
    assert "kcli.spark.batch" in found
    assert not {"pyarrow.compute", "kcli.spark.batch_decoder", "hypothesis"} & found


def test_what_is_kept_from_kio_is_there_for_others():
    assert "hypothesis.strategies" in loaded("import hypothesis.strategies; ")
