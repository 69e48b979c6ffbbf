"""`k dump-log`: a broker's files, read without the broker."""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING

from kcli.command import Manual, command
from kcli.options import INT, Refused, option, require, together
from kcli.output import answer, complain

if TYPE_CHECKING:
    from kcli.segment_files import Printing, Problems

DECODERS = {
    "--offsets-decoder": "the content of __consumer_offsets",
    "--transaction-log-decoder": "the content of __transaction_state",
    "--cluster-metadata-decoder": "KRaft metadata records",
    "--remote-log-metadata-decoder": "tiered storage's metadata",
    "--share-group-state-decoder": "the content of __share_group_state",
}
CLASSES: dict[str, Callable[[bytes], object]] = {
    "StringDecoder": lambda data: data.decode(errors="replace"),
    "IntegerDecoder": lambda data: struct.unpack(">i", data)[0],
    "LongDecoder": lambda data: struct.unpack(">q", data)[0],
}
PACKAGES = ("org.apache.kafka.tools.api.", "kafka.serializer.", "")

MANUAL = Manual(
    kafka="kafka-dump-log.sh",
    examples=(
        ("k dump-log --files orders-0/00000000000000000000.log", "The batches of a segment."),
        (
            "k dump-log --print-data-log --files orders-0/00000000000000000000.log",
            "And the records in them.",
        ),
        (
            "k dump-log --verify-index-only --files orders-0/00000000000000000000.index",
            "Whether an index agrees with its log; nothing is printed when it does.",
        ),
    ),
    differences=(
        "--offsets-decoder, --transaction-log-decoder, --cluster-metadata-decoder, "
        "--remote-log-metadata-decoder and --share-group-state-decoder are refused, with exit "
        "status 1: those contents are not decoded yet.",
        "--key-decoder-class and --value-decoder-class know StringDecoder, IntegerDecoder and "
        "LongDecoder; other classes are refused.",
        "A file that does not exist or makes no sense is one line on standard error and exit "
        "status 1; the other files are still dumped.",
        "An index entry that points behind the end of its log is reported as a mismatch with log "
        "offset -1, where Kafka ends with an exception.",
        "A log that does not begin at offset 0 is not said to have a gap before its first record.",
    ),
)


@command(manual=MANUAL)
@together(
    option("--files", "The files to dump.  Required.", "FILE,..."),
    option("--print-data-log", "Print keys and values.  Implied by any decoder."),
    option("--deep-iteration", "Print records, not only batches.  Implied by --print-data-log."),
    option("--skip-record-metadata", "Print only the key and value of each record."),
    option("--verify-index-only", "Check an index and print only what is wrong."),
    option("--index-sanity-check", "Check an index only as a broker does when it starts."),
    option(
        "--max-message-size",
        "How much of the log to read for one entry of an index.  Default: 5242880.",
        "BYTES",
        type=INT,
    ),
    option(
        "--max-bytes",
        "Read only so much of a log.  Default: 2147483647.",
        "BYTES",
        type=INT,
    ),
    option(
        "--key-decoder-class",
        "How to show keys: StringDecoder (default), IntegerDecoder, LongDecoder.",
        "[CLASS]",
        if_bare="StringDecoder",
    ),
    option(
        "--value-decoder-class",
        "How to show values; the same classes.",
        "[CLASS]",
        if_bare="StringDecoder",
    ),
    *(option(name, f"Show {what}.") for name, what in DECODERS.items()),
)
def dump_log(given: SimpleNamespace) -> int:
    """Decodes log, index and snapshot files of a broker, which need not run.

    Files are told apart by their suffix: .log and .checkpoint hold record batches, .index and
    .timeindex are the sparse indexes of the log beside them, .txnindex lists aborted
    transactions, .snapshot the state of producers.  Files are only read, never changed.

    What does not fit together, such as an index entry that points into the middle of a batch, is
    listed on standard error after all files are dumped, and does not change the exit status.
    """
    from kcli.segment_files import UNLIMITED, Printing, Problems
    from kserver.errors import KafkaError, ProtocolError, StorageError

    require(given, "files")
    for name in DECODERS:
        if getattr(given, name.lstrip("-").replace("-", "_")):
            raise Refused(f"{name} is not supported yet: {DECODERS[name]} cannot be decoded")
    contents = bool(given.print_data_log or given.key_decoder_class or given.value_decoder_class)
    printing = Printing(
        deep=contents or given.deep_iteration,
        contents=contents,
        metadata=not given.skip_record_metadata,
        key=_decoder(given.key_decoder_class),
        value=_decoder(given.value_decoder_class),
    )
    given.max_bytes = UNLIMITED if given.max_bytes is None else given.max_bytes
    given.max_message_size = 5242880 if given.max_message_size is None else given.max_message_size
    problems = Problems()
    status = 0
    for path in given.files.rstrip(",").split(","):
        answer(f"Dumping {path}")
        try:
            for line in _lines(path, given, printing, problems):
                answer(line)
        except (OSError, KafkaError, ProtocolError, StorageError) as error:
            complain(f"k dump-log: {path}: {getattr(error, 'strerror', None) or error}")
            status = 1
    for line in problems.lines():
        complain(line)
    return status


def _decoder(name: str | None) -> Callable[[bytes], str]:
    for package in PACKAGES:
        decode = CLASSES.get((name or "StringDecoder").removeprefix(package))
        if decode is not None:
            return lambda data: str(decode(data))
    raise Refused(f"{name} is not a decoder that k has; it has {', '.join(CLASSES)}")


def _lines(
    path: str, given: SimpleNamespace, printing: Printing, problems: Problems
) -> Iterator[str]:
    from kcli import segment_files as files

    stem, _, suffix = os.path.basename(path).rpartition(".")
    full = os.path.abspath(path)
    beside = os.path.join(os.path.dirname(full), os.path.basename(path).split(".")[0])
    match suffix:
        case "log" | "checkpoint":
            yield _log_heading(path, stem, suffix)
            yield from files.log_lines(full, _mapped(path), printing, given.max_bytes, problems)
        case "index" | "timeindex":
            base, entries = int(stem), bytes(_mapped(path))
            if suffix == "index" and not entries:
                yield f"{path} is empty."
                return
            if given.index_sanity_check:
                insane = files.insane_index if suffix == "index" else files.insane_time_index
                if (reason := insane(full, entries, base)) is not None:
                    raise Refused(reason)
                yield f"{path} passed sanity check."
                return
            log = _mapped(f"{beside}.log")
            if suffix == "timeindex":
                index = bytes(_mapped(f"{beside}.index"))
                yield from files.time_index_lines(
                    full, entries, base, index, log, given.verify_index_only, problems
                )
            else:
                size = given.max_message_size
                yield from files.index_lines(
                    full, entries, base, log, size, given.verify_index_only, problems
                )
        case "txnindex":
            yield from files.aborted_lines(bytes(_mapped(path)))
        case "snapshot":
            yield from files.producer_lines(path, bytes(_mapped(path)))
        case _:
            complain(f"Ignoring unknown file {path}")


def _log_heading(path: str, stem: str, suffix: str) -> str:
    if suffix == "log":
        return f"Log starting offset: {int(stem.split('.')[0])}"
    if os.path.basename(path) == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    offset, _, epoch = stem.partition("-")
    return f"Snapshot end offset: {int(offset)}, epoch: {int(epoch)}"


def _mapped(path: str) -> memoryview:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
