"""The coordinators' records in __consumer_offsets and __transaction_state, printed as by Kafka's
formatters: a JSON object for each record of their kinds, without separators
(CoordinatorRecordMessageFormatter).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from kcli.console.formatter import Unprintable
from kserver.errors import ProtocolError
from kserver.group import records as of_groups
from kserver.txn import records as of_transactions
from kserver.wire.schema import KeyedRecords, UnknownKind

if TYPE_CHECKING:
    from kcli.client.consumer.consumer import FetchedBatch
    from kserver.wire.batch import Record

OFFSETS = frozenset({0, of_groups.OFFSET_COMMIT})
"""Two equal kinds of keys; brokers before 0.9 wrote the first."""


class CoordinatorFormatter:
    """Prints those of `records` whose keys are of these kinds."""

    def __init__(self, records: KeyedRecords, kinds: frozenset[int]) -> None:
        self._records = records
        self._kinds = kinds

    def lines(self, batch: FetchedBatch) -> bytes:
        return b"".join(self.line(batch, record) for record in batch.records)

    def line(self, batch: FetchedBatch, record: Record) -> bytes:
        """Return a record's line; nothing for one of another kind. Raises Unprintable if it is
        invalid.
        """
        if record.key is None:
            return b""
        try:
            shown = self._shown(record.key, record.value)
        except UnknownKind:
            return b""
        except ProtocolError as error:
            raise Unprintable(f"the record at offset {record.offset}: {error}") from error
        if shown is None:
            return b""
        return json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode()

    def _shown(self, key: bytes, value: bytes | None) -> dict[str, Any] | None:
        kind, fields = self._records.decode_key(key)
        if kind not in self._kinds:
            return None
        of_key, of_value = self._records.kinds[kind]
        value_json = None
        if value is not None:
            version, content = self._records.decode_value(kind, value)
            value_json = {"version": version, "data": of_value.as_json(version, content)}
        return {"key": {"type": kind, "data": of_key.as_json(0, fields)}, "value": value_json}


def of_offsets() -> CoordinatorFormatter:
    return CoordinatorFormatter(of_groups.RECORDS, OFFSETS)


def of_group_metadata() -> CoordinatorFormatter:
    return CoordinatorFormatter(of_groups.RECORDS, frozenset({of_groups.GROUP_METADATA}))


def of_transaction_log() -> CoordinatorFormatter:
    return CoordinatorFormatter(of_transactions.RECORDS, frozenset({of_transactions.TRANSACTION}))
