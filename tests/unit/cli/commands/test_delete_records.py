"""`k delete-records`: what its file may hold."""

import json

import pytest

from kcli.command.options import Refused
from kcli.commands import delete_records
from kcli.main import main
from kserver.model import TopicPartition


def entry(**fields):
    return {"topic": "foo", "partition": 1, "offset": 3} | fields


def file_of(*entries, **fields):
    return json.dumps({"partitions": list(entries)} | fields)


def test_a_file_names_the_first_offset_to_keep_of_each_partition():
    text = file_of(entry(), entry(partition=0, offset=-1), version=1)
    found = delete_records._offsets(json.loads(text), "offsets.json")
    assert list(found.items()) == [(TopicPartition("foo", 1), 3), (TopicPartition("foo", 0), -1)]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[]", "Missing partitions field"),
        ("{}", "Missing partitions field"),
        (file_of(version=2), "Not supported version field value 2"),
        (file_of(version="1"), 'offsets.json: "version" must be the integer 1, but is "1"'),
        ('{"partitions": 3}', "offsets.json: The partitions field is not a list"),
        (
            file_of(entry(), entry(offset=5)),
            "Offset json file contains duplicate topic partitions: foo-1",
        ),
        (file_of(entry(), 7), "offsets.json: Entry 1 of the partitions field is invalid: 7"),
        (file_of(entry(offset="1")), "offsets.json: Entry 0 of the partitions field"),
        (file_of(entry(offset=True)), "offsets.json: Entry 0 of the partitions field"),
        (file_of(entry(partition=-1)), "offsets.json: Entry 0 of the partitions field"),
        (file_of(entry(offset=1 << 63)), "offsets.json: Entry 0 of the partitions field"),
        (
            file_of({"topic": "foo", "partition": 1}),
            "offsets.json: Entry 0 of the partitions field",
        ),
    ],
)
def test_a_wrong_file_is_refused_with_what_is_wrong(text, why):
    with pytest.raises(Refused) as caught:
        delete_records._offsets(json.loads(text), "offsets.json")
    assert str(caught.value).startswith(why)


def test_a_file_that_cannot_be_read_is_told(tmp_path, capsys):
    path = str(tmp_path / "missing.json")
    assert main(["delete-records", "--offset-json-file", path]) == 1
    assert capsys.readouterr() == (
        "",
        f"k delete-records: Unable to read file {path}: No such file or directory\n",
    )
    (tmp_path / "binary").write_bytes(b"\xff")
    assert main(["delete-records", "--offset-json-file", str(tmp_path / "binary")]) == 1
    assert "The input string is not a valid JSON" in capsys.readouterr().err


@pytest.mark.parametrize("text", [None, "not json", "{}"])
def test_what_is_wrong_with_the_file_stands_in_the_document_too(tmp_path, capsys, text):
    path = tmp_path / "offsets.json"
    if text is not None:
        path.write_text(text)
    assert main(["delete-records", "--offset-json-file", str(path), "-o", "json"]) == 1
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["items"] == []
    (told,) = document["errors"]
    assert err == f"k delete-records: {told['message']}\n"


def test_the_file_is_needed_and_rows_are_not_foretold(capsys):
    assert main(["delete-records"]) == 2
    assert 'Missing required argument "[offset-json-file]"' in capsys.readouterr().err
    assert main(["delete-records", "--offset-json-file", "f", "--dry-run", "-o", "json"]) == 2
