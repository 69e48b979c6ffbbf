from __future__ import annotations

import pytest

from kcli.client.producer.accumulator import RECORD_OVERHEAD
from kserver.wire.batch import HEADER_SIZE, RecordBatch
from tests.bench.load import RECORDS, shaped_batch
from tests.bench.shapes import MESSAGE_BYTES, SHAPES


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_shapes_messages_are_the_same_each_time_and_what_it_says(shape):
    messages = shape.messages()
    assert messages == shape.messages()
    assert {len(m.value) for m in messages} == {MESSAGE_BYTES}
    assert len({m.value for m in messages}) == len(messages)
    assert {m.key is not None for m in messages} == {shape.keyed}
    assert {len(m.headers) for m in messages} == {shape.headers}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_what_consumers_read_has_the_same_shape(shape):
    batch = RecordBatch(shaped_batch(shape))
    assert batch.compression.name == shape.compression
    read = [(r.value, r.key, list(r.headers)) for r in batch.records()]
    assert read == shape.messages()[: RECORDS["16k"]]


@pytest.mark.parametrize("name", ["paper-1", "paper-50"])
def test_a_batch_has_room_for_as_many_as_the_paper_sends_at_once(name):
    room = SHAPES[name].batch_bytes - HEADER_SIZE
    assert room // (RECORD_OVERHEAD + MESSAGE_BYTES) == SHAPES[name].at_once
