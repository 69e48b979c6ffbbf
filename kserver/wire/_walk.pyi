def largest_timestamp(
    body: bytes | memoryview,
    count: int,
    base_timestamp: int,
    earliest: int,
    latest: int,
    keyed: bool,
    /,
) -> int | None:
    """The largest timestamp in milliseconds, -1 where no record has one; None where the records
    have to be walked in Python, to say what is wrong with them.

    `body` is their bytes, decompressed; they are in order when there are `count` of them, with the
    offset deltas 0, 1, 2 ..., timestamps of [earliest, latest] or -1, and keys if `keyed`.
    """
