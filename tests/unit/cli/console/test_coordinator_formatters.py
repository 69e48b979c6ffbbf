"""What coordinators keep, as Apache's formatters of 4.3.1 print it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kcli.console.formatter import Unprintable
from kcli.console.formatters import formatter
from kserver.group import records as of_groups
from kserver.txn import records as of_transactions

OFFSET = (
    of_groups.RECORDS.encode_key(1, {"group": "g", "topic": "t", "partition": 0}),
    of_groups.RECORDS.encode_value(
        1, 3, {"offset": 5, "leaderEpoch": 1, "metadata": "", "commitTimestamp": 1700000000000}
    ),
)
GROUP = of_groups.RECORDS.encode_key(2, {"group": "ü"})
TRANSACTION = of_transactions.RECORDS.encode_key(0, {"transactionalId": "x"})
PACKAGE = "org.apache.kafka.tools.consumer."


def shown(name: str, *records: tuple[bytes | None, bytes | None]) -> str:
    rows = [SimpleNamespace(offset=n, key=k, value=v) for n, (k, v) in enumerate(records)]
    return formatter(f"{PACKAGE}{name}", {}).lines(SimpleNamespace(records=rows)).decode()


def test_offsets_are_shown_and_what_is_no_offset_is_not():
    records = [OFFSET, (GROUP, None), (None, b"v"), (b"\0\x63", b""), (OFFSET[0], None)]
    key = '{"key":{"type":1,"data":{"group":"g","topic":"t","partition":0}},"value":'
    assert shown("OffsetsMessageFormatter", *records) == (
        f'{key}{{"version":3,"data":{{"offset":5,"leaderEpoch":1,"metadata":"",'
        f'"commitTimestamp":1700000000000}}}}}}{key}null}}'
    )


def test_groups_and_transactions_are_shown_by_theirs():
    assert shown("GroupMetadataMessageFormatter", OFFSET, (GROUP, None)) == (
        '{"key":{"type":2,"data":{"group":"ü"}},"value":null}'
    )
    assert shown("TransactionLogMessageFormatter", (TRANSACTION, None)) == (
        '{"key":{"type":0,"data":{"transactionalId":"x"}},"value":null}'
    )


def test_what_no_coordinator_has_written_cannot_be_shown():
    with pytest.raises(Unprintable, match="offset 0"):
        shown("OffsetsMessageFormatter", (OFFSET[0], b"\0\x09"))
