"""Payloads: the options --value and --schema of jobs, and invalid values, which fail the job or are
dead letters with --dlq.

Needs Spark only once a frame is passed in.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kcli.command.options import Refused, option, refuse
from kcli.spark.dead_letters import letter_headers_sql
from kcli.spark.jobs.land_paths import undecoded_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from kcli.command.command import Options

DECODED = "Values"
RAW = "raw"
WITH_SCHEMA = ("json", "msgpack")
FORMATS = (RAW, "string", *WITH_SCHEMA)
WITHOUT_DLQ = "; --dlq TOPIC sends such records to a topic"

schema = option(
    "--schema",
    "The fields of values in json or msgpack: 'id bigint, at timestamp' or Spark's JSON of a"
    " schema, or @FILE to read either from a file.",
    "SCHEMA",
    section=DECODED,
)


def value(help: str) -> Any:
    """Declare --value; `help` describes its values."""
    return option("--value", help, "|".join(FORMATS), type=click.Choice(FORMATS), section=DECODED)


def check(options: Options) -> None:
    format = options.value or RAW
    if format in WITH_SCHEMA and not options.schema:
        refuse(f"--value {format} requires --schema, such as 'id bigint, at timestamp'")
    if format not in WITH_SCHEMA and options.schema:
        refuse(f"--schema is for --value json and msgpack, not {format}")
    text_of("--schema", options.schema)


def text_of(option: str, text: str | None) -> str | None:
    """Return the text, or the contents of the file named after @."""
    if text is None or not text.startswith("@"):
        return text
    try:
        with open(text[1:], encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{option} {text}: {getattr(error, 'strerror', error)}") from error


def decoded(frame: DataFrame, options: Options) -> DataFrame:
    """Return the frame with the columns `data`, and `reason` for invalid values."""
    from kcli.spark import values

    return values.decoded(frame, options.value or RAW, text_of("--schema", options.schema))


def valid_rows(frame: DataFrame, *, fails: bool) -> DataFrame:
    """Return the decoded rows; if it `fails`, the query fails at the first invalid one."""
    failed = undecoded_sql(WITHOUT_DLQ) if fails else "false"
    return frame.where(f"CASE WHEN reason IS NULL THEN true ELSE {failed} END")


def dead_letters(frame: DataFrame) -> DataFrame:
    """Return the rows that could not be decoded, as dead letters."""
    headers = letter_headers_sql(
        reason="reason", topic="topic", partition="partition", offset="offset"
    )
    letters = frame.where("reason IS NOT NULL")
    return letters.selectExpr("key", "value", f"{headers} AS headers")
