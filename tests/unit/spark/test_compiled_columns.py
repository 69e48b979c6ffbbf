"""`_columns.c` at its edges; what it makes of batches is in test_batch_decoder.py and
tests/contract/test_record_decoders.py."""

from __future__ import annotations

import pytest

pytest.importorskip("pyarrow", reason="the extra spark")
pytest.importorskip("numpy", reason="the extra spark")

from kcli.spark.columns import ColumnBatch, decode
from kserver.errors import ProtocolError
from kserver.wire.batch import encode_batch
from tests.support.extensions import build


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    return build("kcli.spark._columns", tmp_path_factory.mktemp("built")).decode


def test_none_at_all_are_columns_of_nothing(compiled):
    for decoder in (compiled, decode):
        for none in ([], [ColumnBatch(b"", 0, 7, 0, 0, False)]):
            starts, offsets, times, keys, _, (lists, names, _) = decoder(none, True, True, True)
            assert not any(memoryview(each).nbytes for each in (starts, offsets, times))
            assert [bytes(each[1]) for each in (keys, lists, names)] == [bytes(4)] * 3


def test_a_buffer_of_no_batch_is_given_back(compiled):
    """After a refusal too: a bytearray that is looked at cannot grow."""
    bodies = [bytearray(b"\0" * 20), bytearray(encode_batch([(0, None, b"v", ())])[61:])]
    batches = [ColumnBatch(memoryview(body), 1, 0, 0, 0, False) for body in bodies]
    with pytest.raises(ProtocolError):
        compiled(batches, True, True, True)
    compiled(batches[1:], True, True, True)
    for batch in batches:
        batch.body.release()
    for body in bodies:
        body.append(0)


@pytest.mark.parametrize("wrong", [None, (b"",), ("text", 0, 0, 0, 0, False), [b"", 0, 0, 0, 0, 0]])
def test_what_is_no_batch_is_a_type_error_or_the_like_not_a_crash(compiled, wrong):
    with pytest.raises((TypeError, SystemError)):
        compiled([wrong], True, True, True)
