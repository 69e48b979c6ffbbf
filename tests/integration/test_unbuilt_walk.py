"""Test k installed without a C compiler: the broker logs what is missing."""

from __future__ import annotations

import sys

from kserver.errors import ErrorCode
from tests.contract.api.calls import Topic, batch, produce, topic_id
from tests.contract.api.test_produce import forged
from tests.support.brokers import create_topic
from tests.support.process import BrokerProcess
from tests.support.side_by_side import k
from tests.support.wire_client import WireClient

UNBUILT = """
import runpy, sys
sys.modules["kserver.wire._walk"] = None
runpy.run_module("kserver", run_name="__main__", alter_sys=True)
"""


class UnbuiltBroker(BrokerProcess):
    command = (sys.executable, "-c", UNBUILT)


def answered(broker, **config):
    """Return the error code for a batch of three records whose header says two."""
    name = create_topic(broker.address, f"t{len(config)}", **config)
    with WireClient(broker.address) as client:
        topic = Topic(name, topic_id(client, name))
        return produce(client, 9, topic, forged(batch(b"a", b"b", b"c"), count=2)).error_code


def test_headers_alone_are_judged_and_a_line_says_so(tmp_path):
    with UnbuiltBroker(tmp_path) as broker:
        (line,) = [line for line in broker.output if "log.validate.records" in line]
        assert "WARNING" in line
        assert "install a C compiler" in line
        assert answered(broker) is ErrorCode.none
        told = k(
            "configs", "--bootstrap-server", broker.address, "--describe", "--all", "--broker", "0"
        )
        assert b"log.validate.records=header " in told.out
        assert answered(broker, validate_records="full") is ErrorCode.invalid_record


def test_whoever_asks_for_the_walk_gets_it(tmp_path):
    with UnbuiltBroker(tmp_path, {"log.validate.records": "full"}) as broker:
        assert not any("log.validate.records" in line for line in broker.output)
        assert answered(broker) is ErrorCode.invalid_record
