"""A coordination store that is older than the logs costs no log."""

from __future__ import annotations

import re

from kserver.wire.batch import batches
from tests.support.brokers import append, create_topic, stored, until
from tests.support.process import BrokerProcess

STORE = "coordination.msgpack"


def test_a_log_whose_topic_the_store_has_forgotten_is_set_aside_when_its_name_is_taken(tmp_path):
    with BrokerProcess(tmp_path, {"log.segment.delete.delay.ms": 0}) as broker:
        broker.stop()
        store = broker.data / STORE
        before = store.read_bytes()
        broker.start()
        create_topic(broker.address, "t")
        append(broker.address, "t", [(1, None, b"precious", ())])
        broker.stop()
        store.write_bytes(before)

        broker.start()
        await_line(broker, "t-0 is on disk, but no topic of this cluster: it is left alone")
        create_topic(broker.address, "t")
        assert stored(broker, "t") == []
        (aside,) = (path for path in broker.data.iterdir() if path.name.endswith("-stray"))
        assert re.fullmatch(r"t-0\.[0-9a-f]{32}-stray", aside.name)
        await_line(broker, f"its log was set aside as {aside}")

        # It is there still after another start, which names it.
        append(broker.address, "t", [(1, None, b"new", ())])
        broker.restart()
        (kept,) = batches((aside / f"{0:020d}.log").read_bytes())
        assert [record.value for record in kept.records()] == [b"precious"]
        await_line(broker, f"{aside} was set aside, it is left alone")
        (fresh,) = stored(broker, "t")
        assert [record.value for record in fresh.records()] == [b"new"]


def await_line(broker, text):
    until(lambda: any(text in line for line in broker.output))
