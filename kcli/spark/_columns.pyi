from collections.abc import Sequence

from kcli.spark.columns import Batch, Columns

def decode(batches: Sequence[Batch], key: bool, value: bool, headers: bool, /) -> Columns: ...
