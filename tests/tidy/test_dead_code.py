"""Each function, method, class and property of the packages has a user, by its name, in them or in
the examples.  Tests are no users: code that only they call is dead."""

from __future__ import annotations

from pathlib import Path

import vulture

ROOT = Path(__file__).parents[2]
READ = ("kserver", "kcli", "examples", "setup.py", "pyspark_k.py")
KINDS = {"function", "method", "class", "property", "import"}
CALLED_BY_LIBRARIES = [
    # Python, click, logging, socketserver
    *("__*__", "_missing_", "convert", "format_*", "formatStack", "handle_error"),
    # asyncio's protocols
    *("connection_made", "connection_lost", "data_received", "get_buffer", "buffer_updated"),
    *("eof_received", "pause_writing", "resume_writing"),
    # Spark
    *("prepareForTriggerAvailableNow", "pushFilters", "streamReader", "streamWriter"),
    *("initialOffset", "latestOffset", "reportLatestOffset", "getDefaultReadLimit"),
    # pytest, and fixtures
    *("pytest_*", "kafka_broker_factory", "kafka_cluster", "kafka_cluster_factory"),
]
FOUND_BY_NAME = (
    *("kcli/commands/", "kcli/console/coordinator_formatters.py", "kcli/segments/decoders.py"),
    *("kcli/spark/jobs/etl.py", "kcli/spark/jobs/land.py"),
)
"""Commands, jobs, formatters and decoders, whose names are looked up when a user gives them."""
FOR_USERS = {
    # kcli.client
    *("delete_topics_by_id", "enforce_rebalance", "remove_members"),
    # kcli.spark, in a pipeline's expressions
    *("from_msgpack", "to_msgpack"),
    # the fixture kafka_cluster
    *("coordinator_of", "transaction_coordinator_of"),
}
"""What only the users of the libraries call."""


def is_code(item):
    return item.typ in KINDS and item.name not in FOR_USERS


def test_nothing_is_dead():
    reader = vulture.Vulture(ignore_names=CALLED_BY_LIBRARIES)
    reader.scavenge([str(ROOT / name) for name in READ])
    found = []
    for item in reader.get_unused_code():
        path = Path(item.filename).relative_to(ROOT).as_posix()
        if path.startswith(("kserver/", "kcli/")) and not path.startswith(FOUND_BY_NAME):
            found += [f"{path}:{item.first_lineno} {item.name}"] if is_code(item) else []
    assert found == []
