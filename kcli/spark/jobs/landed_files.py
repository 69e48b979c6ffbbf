"""Landed files: Parquet or JSON, or a Delta table, as a frame of records.

Their columns are those of the data source, whatever the directories are made by.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kcli.command.options import Refused

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

FORMATS = ("parquet", "json", "delta")


def landed(
    spark: SparkSession,
    path: str,
    format: str,
    columns: Sequence[str],
    optional: Sequence[str] = (),
    *,
    texts: bool = False,
    gaps: bool = False,
) -> DataFrame:
    """Return these columns, and the optional ones that exist; values were landed as `texts`, or as
    bytes.

    Raises Refused if there are no files, or a column is missing or has another type. With `gaps`
    there may be no files yet, and files may have been removed: their rows are missing.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql.types import StringType, StructField, StructType

    from kcli.spark.source import COLUMNS, HEADERS

    types = {field.name: field for field in [*COLUMNS, HEADERS]}
    try:
        opened = _open(spark, path, format, gaps=gaps)
    except AnalysisException as error:
        is_empty = "UNABLE_TO_INFER_SCHEMA" in str(error)
        # Delta names the missing file itself.
        if format == "delta" or not (is_empty or "PATH_NOT_FOUND" in str(error)):
            raise
        if not (is_empty and gaps):
            raise Refused(f"--path {path} contains no files in the format {format}") from error
        opened = None
    if opened is None:
        return spark.createDataFrame([], StructType([types[name] for name in columns]))
    inferred = opened.schema
    file_columns = inferred.names
    if lacking := [name for name in columns if name not in file_columns]:
        raise Refused(
            f"--path {path} has no column {', '.join(lacking)}, only {', '.join(file_columns)};"
            " give a directory that the job land has written"
        )
    names = [*columns, *(name for name in optional if name in file_columns)]
    if texts:
        types["value"] = StructField("value", StringType())
    # JSON has texts for both.
    there = inferred["value"].dataType if "value" in names else None
    if there is not None and format != "json" and there != types["value"].dataType:
        raise Refused(
            f"--path {path} has values as {there.simpleString()}, not "
            f"{types['value'].dataType.simpleString()}; use the same --value, raw or string, for "
            "land and for this job"
        )
    schema = StructType([types[name] for name in names])
    again = _open(spark, path, format, schema, gaps=gaps)
    assert again is not None
    return again.select(*names)


def _open(
    spark: SparkSession,
    path: str,
    format: str,
    schema: StructType | None = None,
    *,
    gaps: bool,
) -> DataFrame | None:
    """Open the files; return None if a Delta table has none, and `gaps` are allowed."""
    reader = spark.read if schema is None else spark.read.schema(schema)
    reader = reader.option("ignoreMissingFiles", str(gaps).lower())
    if format != "delta":
        return reader.format(format).load(path)
    files = delta_files(path, gaps=gaps)
    if files:
        return reader.option("basePath", path).parquet(*files)
    if gaps:
        return None
    raise Refused(f"--path {path} is a Delta table that contains no files")


def delta_files(path: str, *, gaps: bool) -> list[str]:
    """Return the files of the table's newest version; with `gaps` those that exist."""
    try:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        from kcli.spark.jobs.delta import address
    except ImportError as error:
        raise Refused(
            "the format delta requires the package deltalake: pip install 'k-kafka[spark]'"
        ) from error
    at = address(path)
    try:
        table = DeltaTable(at)
        gone = tuple(table.repair(dry_run=True)["files_removed"]) if gaps else ()
    except TableNotFoundError as error:
        raise Refused(f"--path {path} contains no Delta table") from error
    files = table.file_uris()
    if "://" not in at:
        # For a directory of this machine, the table's path is encoded as in a URI, the rest is not.
        root = urlsplit(table.table_uri).path.rstrip("/")
        files = [f"{at.rstrip('/')}{file.removeprefix(root)}" for file in files]
    return [file for file in files if not file.endswith(gone)]
