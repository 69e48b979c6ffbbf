"""Words of etl, replay, redrive and audit: what makes no sense is refused before Spark starts."""

from __future__ import annotations

import shlex

import pytest
from click import UsageError

from kcli.command.options import Refused
from kcli.spark import jobs
from kcli.spark.jobs.replay import per_second
from kserver.errors import ConfigError

ETL = "etl --topics t --checkpoint /x --sql 'select * from Records'"
REPLAY = "replay --to t"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("etl --topics t --checkpoint /x --to console", "name a transformation: --sql QUERY or"),
        (f"{ETL} --py a:b --to console", "name a transformation: --sql QUERY or"),
        (ETL, "name the destination of rows: --to topic:NAME"),
        (f"{ETL} --to orc:/x", "--to must be topic:NAME, parquet:DIRECTORY, .* not 'orc:/x'"),
        (f"{ETL} --to console --watermark at", "--watermark must be COLUMN:TIME, such as at:10m"),
        (f"{ETL} --to console --value json", "--value json requires --schema"),
        (f"{ETL} --to console --schema 'a int'", "--schema is for --value json and msgpack"),
        (f"{ETL} --to json:/x --output-mode update", "files accept append"),
        (
            f"{ETL} --to topic:u --output-mode update",
            "--output-mode update is for the console: a topic accepts append or complete",
        ),
        (f"{ETL} --to console --exactly-once", "--exactly-once is for a topic"),
        ("etl --topics t --checkpoint /x --py f --to console", "--py must be MODULE:FUNCTION or"),
        (
            "etl --topics t --checkpoint /x --to console --sql 'select 1 AS records_of'",
            "--sql does not read the records; add FROM records",
        ),
        ("audit --topics t --path /x --path /a%20b --format delta", "--path /a%20b contains %20"),
        ("replay --from /a%20b --to t --format delta", "--from /a%20b contains %20"),
        ("etl --sql x --to console --checkpoint /x", "name topics to read: --topics or --pattern"),
        ("etl --topics t --sql x --to console", "--checkpoint DIRECTORY"),
        ("replay --from /x", "name the destination: --to"),
        (REPLAY, "name the source of records: --from"),
        (f"{REPLAY} --from topic:s --format json", "--format is for a directory, but --from names"),
        (f"{REPLAY} --from topic:s --topics a", "--topics is for a directory, but --from names"),
        (f"{REPLAY} --from /x -o json", "--output is only allowed with --dry-run"),
        (f"{REPLAY} --from /x --rate fast", "--rate must be a number of records above 0"),
        (f"{REPLAY} --from /x --rate 0/s", "--rate must be a number of records above 0"),
        (f"{REPLAY} --from /x --start 2h", "option --start must be -2h, .*, not '2h'"),
        (
            f'{REPLAY} --from /x --end \'{{"t":{{"0":-2}}}}\'',
            "--end has -2 for t-0, which is for topics only",
        ),
        ("redrive", "name the topic of the dead letters: --dlq"),
        ("redrive --dlq t --to t", "--to and --dlq are the same topic"),
        ("redrive --dlq t --max-attempts 0", "--max-attempts must be at least 1"),
        ("redrive --dlq t --fix mend", "--fix must be MODULE:FUNCTION or FILE.py:FUNCTION"),
        ("audit --topics t", "name the directory of the landed topics: --path"),
        ("audit --path /x", "name topics to read: --topics or --pattern"),
        ("audit --topics t --path /x --start soon", "option --start must be -2h, .*, not 'soon'"),
        ("audit --topics t --path /x --window week", "'week' is not one of 'hour', 'day'"),
    ],
)
def test_words_that_make_no_sense_are_refused(words, told):
    name, *rest = shlex.split(words)
    with pytest.raises(UsageError, match=told):
        jobs.read(name, rest)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (f"{ETL} --to console --value json --schema @no.ddl", "--schema @no.ddl: No such file"),
        (
            "etl --topics t --checkpoint /x --sql @no.sql --to console",
            "--sql @no.sql: No such file",
        ),
        (
            "etl --topics t --checkpoint /x --py no.py:f --to console",
            "--py: the file no.py does not exist",
        ),
        ("redrive --dlq t --fix no.py:f", "--fix: the file no.py does not exist"),
        ("audit --pattern '(' --path /x", "option subscribePattern: \\( is an invalid regex"),
    ],
)
def test_what_is_not_there_is_refused(words, told):
    name, *rest = shlex.split(words)
    with pytest.raises((Refused, ConfigError), match=told):
        jobs.read(name, rest)


def test_a_rate_is_of_a_second_a_minute_or_an_hour():
    rates = {"100": 100, "100/s": 100, "90/m": 1.5, "36/h": 0.01, "0.5/s": 0.5}
    assert {text: per_second(text) for text in rates} == rates
