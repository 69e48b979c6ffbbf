from collections.abc import Sequence

from kcli.spark.columns import ColumnBatch, Columns

def decode(batches: Sequence[ColumnBatch], key: bool, value: bool, headers: bool, /) -> Columns: ...
