"""`k metadata-quorum`: the reason, whatever is asked."""

import pytest

from kcli.main import main


@pytest.mark.parametrize(
    "words",
    [
        "describe --status",
        "describe --replication --human-readable",
        "add-controller --dry-run",
        "remove-controller --controller-id 1 --controller-directory-id x",
        "",
    ],
)
def test_there_is_no_quorum(words, capsys):
    server = ["--bootstrap-server", "127.0.0.1:9092"]
    assert main(["metadata-quorum", *server, *words.split()]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("k metadata-quorum: The node does not support DESCRIBE_QUORUM: ")
    assert "ZooKeeper" in told.err
