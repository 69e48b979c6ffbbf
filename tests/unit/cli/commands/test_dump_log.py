"""`k dump-log`: which file is read how, and what ends with which status."""

import json
import subprocess
from pathlib import Path

import pytest

from kcli.main import main
from kserver.wire.batch import encode_batch
from tests.support.side_by_side import K


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "00000000000000000005.log"
    path.write_bytes(encode_batch([(0, b"\0\0\0\7", b"v", ())], base_offset=5))
    return path.name


def dump(capsys, *words):
    status = main(["dump-log", *words])
    shown = capsys.readouterr()
    return status, shown.out.splitlines(), shown.err.splitlines()


def test_a_log_begins_with_its_first_offset(log, capsys):
    status, out, err = dump(capsys, "--files", log)
    assert (status, err) == (0, [])
    assert out[:2] == [f"Dumping {log}", "Log starting offset: 5"]
    assert len(out) == 3


@pytest.mark.parametrize(
    ("words", "end"),
    [
        (["--deep-iteration"], "headerKeys: []"),
        (["--print-data-log"], "key: \0\0\0\7 payload: v"),
        (["--key-decoder-class", "kafka.serializer.IntegerDecoder"], "key: 7 payload: v"),
        (["--value-decoder-class"], "payload: v"),
        (["--print-data-log", "--skip-record-metadata"], "| key: \0\0\0\7 payload: v"),
    ],
)
def test_records_are_shown_when_wanted(words, end, log, capsys):
    assert dump(capsys, "--files", log, *words)[1][3].endswith(end)


def test_a_missing_file_fails_but_the_others_are_dumped(log, capsys):
    status, out, err = dump(capsys, "--files", f"missing.txnindex,{log}")
    assert status == 1
    assert out[:2] == ["Dumping missing.txnindex", f"Dumping {log}"]
    assert err == ["k dump-log: missing.txnindex: No such file or directory"]


def test_an_unknown_file_is_passed_over(log, capsys):
    status, out, err = dump(capsys, "--files", "meta.properties")
    assert (status, out, err) == (
        0,
        ["Dumping meta.properties"],
        ["Ignoring unknown file meta.properties"],
    )


def test_what_was_read_before_a_broken_batch_is_shown(log, capsys, tmp_path):
    path = tmp_path / log
    path.write_bytes(path.read_bytes() + bytes(100))
    status, out, err = dump(capsys, "--files", log)
    assert status == 1
    assert len(out) == 3
    assert "Found record size 0" in err[0]


def test_an_empty_index_says_so(log, capsys, tmp_path):
    name = log.replace(".log", ".index")
    (tmp_path / name).write_bytes(b"")
    for words in ([], ["--index-sanity-check"], ["--verify-index-only"]):
        assert dump(capsys, "--files", name, *words)[1][1] == f"{name} is empty."


def test_an_insane_index_fails(log, capsys, tmp_path):
    name = log.replace(".log", ".index")
    (tmp_path / name).write_bytes(b"123")
    status, _, err = dump(capsys, "--files", name, "--index-sanity-check")
    assert status == 1
    assert "found 3 bytes" in err[0]


DATA = Path(__file__).parents[3] / "data" / "dump-log"


@pytest.mark.parametrize(
    ("directory", "decoder"),
    [
        ("offsets", "offsets"),
        ("transactions", "transaction-log"),
        ("metadata", "cluster-metadata"),
    ],
)
def test_apaches_own_topics_are_decoded_as_apache_decodes_them(directory, decoder, capsys):
    log = str(DATA / directory / "00000000000000000000.log")
    words = ("--files", log, f"--{decoder}-decoder", "--skip-record-metadata")
    status, out, _ = dump(capsys, *words)
    told = (DATA / directory / "apache-4.3.1.txt").read_text().splitlines()
    assert status == 0
    assert [line for line in out if line.startswith("| ")] == told
    status, out, _ = dump(capsys, "--files", log, f"--{decoder}-decoder", "-o", "jsonl")
    shown = [row["value"] for row in map(json.loads, out) if row.get("value")]
    assert shown == [line.partition("payload: ")[2] for line in told]


def test_two_decoders_are_refused(log, capsys):
    words = ("--files", log, "--offsets-decoder", "--transaction-log-decoder")
    status, out, err = dump(capsys, *words)
    assert (status, out) == (2, [])
    assert "can't be used with option" in err[0]


def test_what_tiered_storage_keeps_is_refused(log, capsys):
    status, out, err = dump(capsys, "--files", log, "--remote-log-metadata-decoder")
    assert (status, out) == (1, [])
    assert "k does not support the metadata of tiered storage" in err[0]


def test_checkpoints_are_shown(tmp_path, capsys):
    epochs, offsets = (
        tmp_path / "leader-epoch-checkpoint",
        tmp_path / "recovery-point-offset-checkpoint",
    )
    epochs.write_text("0\n2\n0 0\n3 17\n")
    offsets.write_text("0\n1\norders 2 9\n")
    status, out, _ = dump(capsys, "--files", f"{epochs},{offsets}")
    assert (status, out) == (
        0,
        [
            f"Dumping {epochs}",
            "epoch: 0 startOffset: 0",
            "epoch: 3 startOffset: 17",
            f"Dumping {offsets}",
            "topic: orders partition: 2 offset: 9",
        ],
    )
    template = ("-o", "template={epoch} {start_offset}")
    assert dump(capsys, "--files", str(epochs), *template)[1] == ["0 0", "3 17"]
    epochs.write_text("0\n2\n0 x\n")
    status, _, err = dump(capsys, "--files", str(epochs))
    assert (status, "leader-epoch-checkpoint" in err[0]) == (1, True)


def test_files_are_needed(capsys):
    status, _, err = dump(capsys)
    assert status == 2
    assert err[0] == 'k dump-log: Missing required argument "[files]"'


def test_rows_are_batches_or_the_records_in_them(log, capsys):
    status, out, err = dump(capsys, "--files", log, "-o", "jsonl")
    (batch,) = map(json.loads, out)
    assert (status, err, batch["schema"]) == (0, [], "k.dump-log.batches/1")
    assert (batch["file"], batch["base_offset"], batch["count"]) == (log, 5, 1)
    assert (batch["valid"], batch["producer_id"]) == (True, None)
    words = ["--key-decoder-class", "IntegerDecoder", "-o", "template={offset} {key} {value}"]
    assert dump(capsys, "--files", log, *words) == (0, ["5 7 v"], [])


def test_rows_are_of_one_kind(log, capsys):
    status, out, err = dump(capsys, "--files", f"{log},x.index", "-o", "json")
    assert (status, out) == (2, [])
    assert f"{log} and x.index are different types of files" in err[0]
    status, out, err = dump(capsys, "--files", "meta.properties", "-o", "json")
    assert (status, out) == (2, [])
    assert "meta.properties is not a file type that k dump-log supports" in err[0]


def test_a_check_ends_with_3_where_something_is_wrong(log, capsys, tmp_path):
    path = tmp_path / log
    assert dump(capsys, "--files", log, "--check")[0] == 0
    whole = path.read_bytes()
    path.write_bytes(whole[:-2] + b"\xff" + whole[-1:])
    assert dump(capsys, "--files", log)[0] == 0
    assert dump(capsys, "--files", log, "--check")[0] == 3
    status, out, _ = dump(capsys, "--files", log, "--check", "-o", "json")
    assert status == 3
    assert json.loads("\n".join(out))["errors"] == [
        {
            "subject": str(path),
            "code": "CORRUPT_BATCH",
            "message": "the CRC of the batch at position 0 is wrong",
        }
    ]
    path.write_bytes(whole + b"junk")
    assert dump(capsys, "--files", log, "--check")[0] == 3


def test_what_cannot_be_read_is_in_the_document_beside_the_rest(log, capsys):
    status, out, err = dump(capsys, "--files", f"{log},missing.log", "-o", "json")
    document = json.loads("\n".join(out))
    assert (status, len(document["items"]), len(err)) == (1, 1, 1)
    assert document["errors"] == [
        {"subject": "missing.log", "code": "FILE", "message": "No such file or directory"}
    ]


@pytest.mark.parametrize("name", ["abc.log", "abc.index", ".timeindex", "1-x.checkpoint"])
def test_a_name_that_is_no_offset_is_refused(name, log, capsys, tmp_path):
    (tmp_path / name).write_bytes((tmp_path / log).read_bytes())
    status, _, err = dump(capsys, "--files", name)
    assert status == 1
    assert err[0].startswith(f"k dump-log: {name}: ")


def test_bytes_that_are_no_number_are_refused(log, capsys):
    status, out, err = dump(capsys, "--files", log, "--key-decoder-class", "LongDecoder")
    assert (status, len(out)) == (1, 3)
    assert err == [f"k dump-log: {log}: 4 bytes do not match the size of the decoder's number"]


@pytest.mark.parametrize("output", [(), ("-o", "jsonl")])
def test_a_reader_that_has_seen_enough_is_no_failure(log, tmp_path, output):
    one = (tmp_path / log).read_bytes()
    (tmp_path / log).write_bytes(one * 20_000)
    words = [*K, "dump-log", "--files", log, *output]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as dumping:
        assert dumping.stdout.readline()
        dumping.stdout.close()
        assert dumping.stderr.read() == b""
        assert dumping.wait() == 0
