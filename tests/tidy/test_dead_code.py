"""Each function, method, class and property of the packages has a user, by its name, in them,
in the tests or in the examples."""

from __future__ import annotations

from pathlib import Path

import vulture

ROOT = Path(__file__).parents[2]
READ = ("kserver", "kcli", "tests", "examples", "setup.py", "pyspark_k.py")
KINDS = {"function", "method", "class", "property", "import"}
CALLED_BY_LIBRARIES = [
    # Python, click, logging, socketserver
    *("__*__", "_missing_", "convert", "format_*", "formatStack", "handle_error"),
    # Spark
    *("prepareForTriggerAvailableNow", "pushFilters", "streamWriter"),
    # pytest, and fixtures
    *("pytest_*", "kafka_broker_factory", "kafka_cluster", "kafka_cluster_factory"),
]
FOUND_BY_NAME = ("kcli/commands/", "kcli/console/coordinator_formatters.py")
"""Commands, and formatters, whose names are looked up when a user gives them."""


def test_nothing_is_dead():
    reader = vulture.Vulture(ignore_names=CALLED_BY_LIBRARIES)
    reader.scavenge([str(ROOT / name) for name in READ])
    found = []
    for item in reader.get_unused_code():
        path = Path(item.filename).relative_to(ROOT).as_posix()
        if path.startswith(("kserver/", "kcli/")) and not path.startswith(FOUND_BY_NAME):
            found += [f"{path}:{item.first_lineno} {item.name}"] if item.typ in KINDS else []
    assert found == []
