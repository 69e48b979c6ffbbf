"""Test the Spark code in Python that the README shows."""

from __future__ import annotations

import re

from tests.integration.spark.conftest import ROOT
from tests.support.brokers import append, create_topic
from tests.support.frames import T0, of, values


def test_the_readme_reads_a_topic_and_writes_one(spark, broker):
    for topic in ("orders", "urgent"):
        create_topic(broker.address, topic)
    lines = (b"2 pens", b"urgent: 1 desk")
    append(broker.address, "orders", [(T0, b"k", line, ()) for line in lines], 0)
    (code,) = re.findall(r"```python\n(kafka = .*?)```", (ROOT / "README.md").read_text(), re.S)
    exec(code.replace("127.0.0.1:9092", broker.address), {"spark": spark})
    assert values(of(spark.read, broker, "urgent").load()) == ["urgent: 1 desk"]
