from __future__ import annotations

import contextlib
import datetime
import struct
from uuid import UUID

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kcli.client.producer.produce import (
    BY_TOPIC_ID,
    PartitionProduceData,
    PartitionProduceResponse,
    _read_any,
    read_response,
    request_body,
)
from kserver.errors import ErrorCode, ProtocolError
from kserver.wire import codec
from kserver.wire.api_key import ApiKey
from kserver.wire.codec import versions_of
from kserver.wire.versions import reply_to, request

VERSIONS = range(versions_of(ApiKey.PRODUCE)[0], versions_of(ApiKey.PRODUCE)[1] + 1)
IDS = {name: UUID(int=number + 1) for number, name in enumerate("abc")}

parts_of_topics = st.dictionaries(
    st.sampled_from("abc"),
    st.dictionaries(st.integers(0, 500), st.binary(max_size=300), min_size=1, max_size=4),
    min_size=1,
)


@given(
    st.sampled_from(VERSIONS),
    parts_of_topics,
    st.sampled_from([-1, 0, 1]),
    st.integers(0, 90_000),
    st.none() | st.text(min_size=1, max_size=200),
)
def test_the_bytes_are_those_of_kios_writer(version, topics, acks, timeout_ms, transactional_id):
    by_id = version >= BY_TOPIC_ID
    parts = [
        PartitionProduceData(IDS[name] if by_id else name, partition, batch[:9], batch[9:])
        for name, partitions in topics.items()
        for partition, batch in partitions.items()
    ]
    given = {"acks": acks, "timeout_ms": timeout_ms, "transactional_id": transactional_id}
    body = b"".join(request_body(version, parts, **given))
    new = request(ApiKey.PRODUCE, version)
    entity = new(
        transactional_id=transactional_id,
        acks=acks,
        timeout=datetime.timedelta(milliseconds=timeout_ms),
        topic_data=[
            new.topic_data(
                name=name,
                topic_id=IDS[name],
                partition_data=[
                    new.topic_data.partition_data(index=partition, records=batch)
                    for partition, batch in partitions.items()
                ],
            )
            for name, partitions in topics.items()
        ],
    )
    whole = codec.write_request(entity, 1, "k")
    assert whole[4:].endswith(body)
    head = 2 + 2 + 4 + 2 + 1 + codec.is_flexible(ApiKey.PRODUCE, version)
    assert len(whole) - 4 == head + len(body)


def test_the_batches_go_out_uncopied():
    batch = b"x" * 1000
    assert any(
        piece is batch
        for piece in request_body(
            9, [PartitionProduceData("a", 0, b"header", batch)], acks=1, timeout_ms=1
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_answers_are_read_in_every_version(version):
    new = reply_to(codec.request_type(ApiKey.PRODUCE, version)(acks=1, timeout=ZERO, topic_data=()))
    answer = new(
        responses=[
            new.responses(
                name="a",
                topic_id=IDS["a"],
                partition_responses=[
                    new.responses.partition_responses(
                        index=0, error_code=ErrorCode.none, base_offset=42
                    ),
                    new.responses.partition_responses(
                        index=1,
                        error_code=ErrorCode.invalid_record,
                        base_offset=-1,
                        error_message="no",
                        record_errors=[
                            new.responses.partition_responses.record_errors(
                                batch_index=3, batch_index_error_message="why"
                            )
                        ],
                    ),
                    new.responses.partition_responses(
                        index=2,
                        error_code=ErrorCode.none,
                        base_offset=7,
                        log_append_time=datetime.datetime.fromtimestamp(1700000000, datetime.UTC),
                    ),
                ],
            )
        ],
        throttle_time=datetime.timedelta(milliseconds=250),
    )
    frame = memoryview(codec.write_response(ApiKey.PRODUCE, version, 5, answer))[4:]
    produced, throttle_ms = read_response(version, frame)
    topic = IDS["a"] if version >= BY_TOPIC_ID else "a"
    assert throttle_ms == 250
    assert produced[topic, 0] == PartitionProduceResponse(ErrorCode.none, "", 42, -1, ())
    assert produced[topic, 2].append_time == 1700000000000
    refused = produced[topic, 1]
    assert refused.error is ErrorCode.invalid_record
    if version >= 8:
        assert (refused.message, refused.bad_records) == ("no", ((3, "why"),))


ZERO = datetime.timedelta(0)

NINE = datetime.datetime.fromtimestamp(9, datetime.UTC)
NAMES = ["a", "b", "c" * 200]
partition_answers = st.fixed_dictionaries(
    {
        "index": st.integers(0, 500),
        "error_code": st.sampled_from([ErrorCode.none, ErrorCode.none, ErrorCode.invalid_record]),
        "base_offset": st.integers(-1, 1 << 62),
        "log_append_time": st.sampled_from([None, NINE]),
        "error_message": st.sampled_from([None, None, None, "", "why"]),
        "leader": st.sampled_from([None, None, 5]),
    }
)


@example(version=3, topics={"a": [{"index": 0}]}, throttle_ms=1001)
@given(
    version=st.sampled_from(VERSIONS),
    topics=st.dictionaries(st.sampled_from(NAMES), st.lists(partition_answers, max_size=3)),
    throttle_ms=st.integers(0, 5000),
)
def test_the_short_way_and_kios_read_the_same(version, topics, throttle_ms):
    new = reply_to(codec.request_type(ApiKey.PRODUCE, version)(acks=1, timeout=ZERO, topic_data=()))

    def partition(leader=None, **fields):
        build = new.responses.partition_responses
        if leader is not None:
            fields["current_leader"] = build.current_leader(leader_id=leader, leader_epoch=1)
        return build(**fields)

    answer = new(
        responses=[
            new.responses(
                name=name,
                topic_id=UUID(int=len(name)),
                partition_responses=[partition(**p) for p in of],
            )
            for name, of in topics.items()
        ],
        throttle_time=datetime.timedelta(milliseconds=throttle_ms),
    )
    frame = memoryview(codec.write_response(ApiKey.PRODUCE, version, 5, answer))[4:]
    if any(topics.values()):
        assert read_response(version, frame) == _read_any(version, frame)


@given(st.sampled_from(VERSIONS), st.binary(max_size=80))
def test_noise_is_a_protocol_error_or_an_answer(version, noise):
    with contextlib.suppress(ProtocolError):
        read_response(version, memoryview(noise))


def test_an_answer_about_nothing_is_a_protocol_error():
    frame = memoryview(struct.pack(">iii", 5, 0, 0))
    with pytest.raises(ProtocolError):
        read_response(3, frame)
