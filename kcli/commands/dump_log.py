"""`k dump-log`: prints a broker's files, without the broker."""

from __future__ import annotations

import functools
import mmap
import os
import re
import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Self

from kcli.command.command import Manual, Options, command
from kcli.command.options import (
    INT,
    Refused,
    exclude,
    is_set,
    option,
    option_group,
    refuse,
    require,
)
from kcli.command.output import complain, print_output
from kcli.command.progress import Progress
from kcli.command.statuses import DONE, FAILED, FOUND
from kcli.rows.listing import formatted, rows
from kcli.segments.segment_shapes import ALL, EPOCHS, OFFSETS, shape_of
from kserver.errors import KafkaError, ProtocolError, StorageError

if TYPE_CHECKING:
    from kcli.rows.listing import Rows
    from kcli.rows.shapes import RowShape
    from kcli.segments.decoders import Decoder
    from kcli.segments.segment_files import Entry, Problems
    from kcli.segments.segment_text import Printing

DECODERS = {
    "offsets-decoder": ("offsets", "the content of __consumer_offsets"),
    "transaction-log-decoder": ("transaction_log", "the content of __transaction_state"),
    "cluster-metadata-decoder": ("cluster_metadata", "the records of KRaft's metadata"),
    "share-group-state-decoder": ("share_group_state", "the content of __share_group_state"),
}
"""Each with its function in kcli.segments.decoders."""
REMOTE_LOG = "remote-log-metadata-decoder"
CLASSES: dict[str, Callable[[bytes], object]] = {
    "StringDecoder": lambda data: data.decode(errors="replace"),
    "IntegerDecoder": lambda data: struct.unpack(">i", data)[0],
    "LongDecoder": lambda data: struct.unpack(">q", data)[0],
}
LEADER_EPOCHS = "leader-epoch-checkpoint"
OFFSETS_END = "-offset-checkpoint"
FAILURES = (OSError, Refused, KafkaError, ProtocolError, StorageError)
"""Errors that end the reading of one file."""
PACKAGES = ("org.apache.kafka.tools.api.", "kafka.serializer.", "")

MANUAL = Manual(
    kafka="kafka-dump-log.sh",
    examples=(
        ("k dump-log --files orders-0/00000000000000000000.log", "The batches of a segment."),
        (
            "k dump-log --print-data-log --files orders-0/00000000000000000000.log",
            "The batches and the records in them.",
        ),
        (
            "k dump-log --offsets-decoder --files __consumer_offsets-7/00000000000000000000.log",
            "The offsets that groups committed.",
        ),
        (
            "k dump-log --verify-index-only --files orders-0/00000000000000000000.index",
            "Check an index against its log; nothing is printed if they agree.",
        ),
        (
            "k dump-log --check -o jsonl --files orders-0/00000000000000000000.log",
            "A line of JSON for each batch; exit status 3 if one is corrupt.",
        ),
    ),
    statuses=((FOUND, "With --check: an inconsistency was found."),),
    differences=(
        "--remote-log-metadata-decoder is refused, with exit status 1: kafka-dump-log.sh prints "
        "the metadata of tiered storage in the format of its Java classes.",
        "Two decoders of records are refused; kafka-dump-log.sh uses one of them.",
        "If a decoder cannot read a record, the reason after Error at offset N, skipping is "
        "worded differently.",
        "leader-epoch-checkpoint and the checkpoint files next to meta.properties are shown too.",
        "--key-decoder-class and --value-decoder-class support StringDecoder, IntegerDecoder and "
        "LongDecoder; other classes are refused.",
        "A file that does not exist or cannot be decoded results in one line on standard error "
        "and exit status 1; the other files are still dumped.",
        "An index entry that points past the end of its log is reported as a mismatch with log "
        "offset -1; Kafka's tool ends with an exception.",
        "--check also reports a batch with a wrong CRC and bytes after the last whole batch.  "
        "Use it on files that no broker is writing: the indexes of the active segment are padded "
        "with zeros.",
        "For a log that does not begin at offset 0, no gap before its first record is reported.",
    ),
)


@command(manual=MANUAL)
@option_group(
    option("--files", "The files to dump.  Required.", "FILE,..."),
    option("--print-data-log", "Print keys and values.  Implied by any decoder."),
    option("--deep-iteration", "Print records, not only batches.  Implied by --print-data-log."),
    option("--skip-record-metadata", "Print only the key and value of each record."),
    option("--verify-index-only", "Check an index and print only errors."),
    option(
        "--index-sanity-check", "Run only the checks of an index that a broker runs at startup."
    ),
    option(
        "--max-message-size",
        "Bytes of the log to read for one entry of an index.  Default: 5242880.",
        "BYTES",
        type=INT,
    ),
    option(
        "--max-bytes",
        "Read at most this many bytes of a log.  Default: 2147483647.",
        "BYTES",
        type=INT,
    ),
    option(
        "--key-decoder-class",
        "Decoder of keys: StringDecoder (default), IntegerDecoder, LongDecoder.",
        "[CLASS]",
        if_bare="StringDecoder",
    ),
    option(
        "--value-decoder-class",
        "Decoder of values; the same classes.",
        "[CLASS]",
        if_bare="StringDecoder",
    ),
    *(option(f"--{name}", f"Show {what}, as JSON.") for name, (_, what) in DECODERS.items()),
    option(f"--{REMOTE_LOG}", "Refused."),
    option("--check", "End with status 3 if an inconsistency is found."),
    formatted(*ALL),
)
def dump_log(options: Options) -> int:
    """Decodes log, index and snapshot files of a broker, which need not be running.

    The suffix of a file determines its type: .log and .checkpoint hold record batches, .index and
    .timeindex are the sparse indexes of the log in the same directory, .txnindex lists aborted
    transactions, .snapshot the state of producers.  leader-epoch-checkpoint has the start offset of
    each epoch, and files such as recovery-point-offset-checkpoint hold an offset for each
    partition.  Files are only read, never changed.

    Inconsistencies, such as an index entry that points into the middle of a batch, are listed on
    standard error after all files are dumped, and change the exit status only with --check.  With
    --output, all files must be of one type; rows are batches, or records if they would be printed,
    or entries of an index.
    """
    from kcli.segments.segment_files import UNLIMITED, Problems
    from kcli.segments.segment_text import Printing

    require(options, "files")
    if is_set(options, REMOTE_LOG):
        raise Refused(f"--{REMOTE_LOG}: k does not support the metadata of tiered storage")
    exclude(options, "output", ("skip-record-metadata",))
    decode = _decoder(options)
    contents = bool(
        options.print_data_log or options.key_decoder_class or options.value_decoder_class
    )
    contents = contents or any(is_set(options, name) for name in DECODERS)
    printing = Printing(
        deep=contents or options.deep_iteration,
        contents=contents,
        metadata=not options.skip_record_metadata,
        decode=decode,
    )
    options.max_bytes = UNLIMITED if options.max_bytes is None else options.max_bytes
    options.max_message_size = (
        5242880 if options.max_message_size is None else options.max_message_size
    )
    paths = options.files.rstrip(",").split(",")
    problems = Problems()
    with FileReading(paths) as reading:
        if options.output is None:
            status = _print_lines(paths, options, printing, problems, reading)
        else:
            with rows(options, _shape(paths, printing.deep)) as out:
                _print_rows(paths, options, printing, problems, reading, out)
            status = out.status
    return FOUND if status == DONE and options.check and any(problems.all_problems()) else status


class FileReading:
    """The progress of reading the files, and the notice of an interrupted command."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.sizes = {path: _size(path) for path in paths}
        self.progress = Progress("bytes", sum(self.sizes.values()))
        self.before = 0
        self.path = ""
        self.position = 0

    def file(self, path: str) -> None:
        self.before += self.sizes.get(self.path, 0)
        self.path, self.position = path, 0

    def at(self, position: int) -> None:
        self.position = position
        self.progress.at(self.before + position)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.progress.end()
        if isinstance(error, KeyboardInterrupt):
            complain(
                f"k dump-log: ended at byte {self.position} of {self.sizes[self.path]} of "
                f"{self.path}"
            )


def _size(path: str) -> int:
    """Return the size; 0 if the file cannot be read, which is reported when it is opened."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _shape(paths: Sequence[str], deep: bool) -> RowShape:
    shapes = {path: shape_of(_kind(path), deep) for path in paths}
    for path, shape in shapes.items():
        if shape is None:
            refuse(f"--output: {path} is not a file type that k dump-log supports")
        if shape != shapes[paths[0]]:
            refuse(
                f"--output: {paths[0]} and {path} are different types of files, with different "
                "rows; dump them one by one"
            )
    shape = shapes[paths[0]]
    assert shape is not None
    return shape


def _kind(path: str) -> str:
    """Return the suffix of a file's name, or the kind of a file without one."""
    name = os.path.basename(path)
    if "." in name:
        return name.rpartition(".")[2]
    if name.endswith(LEADER_EPOCHS):
        return EPOCHS
    return OFFSETS if name.endswith(OFFSETS_END) else ""


def _print_lines(
    paths: Sequence[str],
    options: Options,
    printing: Printing,
    problems: Problems,
    reading: FileReading,
) -> int:
    status = DONE
    for path in paths:
        print_output(f"Dumping {path}")
        try:
            for line in _lines(path, options, printing, problems, reading):
                print_output(line)
        except BrokenPipeError:
            raise  # the reader of standard output has closed it: not an error of the file
        except FAILURES as error:
            complain(f"k dump-log: {path}: {getattr(error, 'strerror', None) or error}")
            status = FAILED
    for line in problems.lines():
        complain(line)
    return status


def _print_rows(
    paths: Sequence[str],
    options: Options,
    printing: Printing,
    problems: Problems,
    reading: FileReading,
    out: Rows,
) -> None:
    from kcli.segments.segment_rows import row

    for path in paths:
        try:
            if options.index_sanity_check and _is_index(path):
                _check_sanity(path)
                continue
            for entry in _entries(path, options, printing.deep, problems, reading):
                values = None if _is_quiet(path, options) else row(entry, printing)
                if values is not None:
                    out.row(file=path, **values)
        except BrokenPipeError:
            raise
        except FAILURES as error:
            out.refused(path, error)
    for path, code, text in problems.all_problems():
        out.problem(path, code, text)


def _decoder(options: Options) -> Decoder:
    from kcli.segments import decoders

    decoder_options = [name for name in DECODERS if is_set(options, name)]
    for other in decoder_options[1:]:
        exclude(options, decoder_options[0], [other])
    if decoder_options:
        decoder: Decoder = getattr(decoders, DECODERS[decoder_options[0]][0])
        return decoder
    return decoders.plain(_class(options.key_decoder_class), _class(options.value_decoder_class))


def _class(name: str | None) -> Callable[[bytes], str]:
    for package in PACKAGES:
        decode = CLASSES.get((name or "StringDecoder").removeprefix(package))
        if decode is not None:
            return functools.partial(_decoded, decode)
    raise Refused(f"{name} is not a supported decoder; use one of {', '.join(CLASSES)}")


def _decoded(decode: Callable[[bytes], object], data: bytes) -> str:
    try:
        return str(decode(data))
    except struct.error:
        raise Refused(f"{len(data)} bytes do not match the size of the decoder's number") from None


def _lines(
    path: str,
    options: Options,
    printing: Printing,
    problems: Problems,
    reading: FileReading,
) -> Iterator[str]:
    from kcli.segments.segment_text import line

    kind = _kind(path)
    if shape_of(kind, printing.deep) is None:
        complain(f"Ignoring unknown file {path}")
        return
    if kind in ("log", "checkpoint"):
        yield _log_heading(path, kind)
    if kind == "index" and os.stat(path).st_size == 0:
        yield f"{path} is empty."
        return
    if options.index_sanity_check and _is_index(path):
        _check_sanity(path)
        yield f"{path} passed sanity check."
        return
    for entry in _entries(path, options, printing.deep, problems, reading):
        if not _is_quiet(path, options):
            yield line(entry, printing)


def _is_index(path: str) -> bool:
    return _kind(path) in ("index", "timeindex")


def _is_quiet(path: str, options: Options) -> bool:
    """Whether only problems are shown."""
    return bool(options.verify_index_only) and _is_index(path)


def _check_sanity(path: str) -> None:
    """Raises Refused for an index that a broker would rebuild."""
    from kcli.segments import segment_files as files

    insane = files.insane_index if _kind(path) == "index" else files.insane_time_index
    reason = insane(os.path.abspath(path), bytes(_map_file(path)), _base_offset(path))
    if reason is not None:
        raise Refused(reason)


def _entries(
    path: str, options: Options, deep: bool, problems: Problems, reading: FileReading
) -> Iterator[Entry]:
    """Yield the entries of a file; for an index, the log next to it is read too."""
    from kcli.segments import segment_files as files

    full = os.path.abspath(path)
    beside = os.path.join(os.path.dirname(full), os.path.basename(path).split(".")[0])
    data = _map_file(path)
    reading.file(path)
    match _kind(path):
        case "log" | "checkpoint":
            for entry in files.log_entries(full, data, deep, options.max_bytes, problems):
                if isinstance(entry, files.BatchEntry):
                    reading.at(entry.position)
                yield entry
        case "index":
            log = _map_file(f"{beside}.log")
            base = _base_offset(path)
            size = options.max_message_size
            yield from files.index_entries(full, bytes(data), base, log, size, problems)
        case "timeindex":
            log = _map_file(f"{beside}.log")
            base = _base_offset(path)
            index = bytes(_map_file(f"{beside}.index"))
            yield from files.time_index_entries(full, bytes(data), base, index, log, problems)
        case "txnindex":
            yield from files.aborted_entries(bytes(data))
        case "snapshot":
            yield from files.producer_entries(path, bytes(data))
        case "epochs":
            yield from files.epoch_entries(path, bytes(data))
        case "offsets":
            yield from files.offset_entries(path, bytes(data))


def _log_heading(path: str, suffix: str) -> str:
    if suffix == "log":
        return f"Log starting offset: {_base_offset(path)}"
    if os.path.basename(path) == "bootstrap.checkpoint":
        return "KRaft bootstrap snapshot"
    offset, _, epoch = os.path.basename(path).rpartition(".")[0].partition("-")
    return f"Snapshot end offset: {_number(offset, path)}, epoch: {_number(epoch, path)}"


def _base_offset(path: str) -> int:
    """Return the first offset of a file, which is its name."""
    return _number(os.path.basename(path).split(".")[0], path)


def _number(text: str, path: str) -> int:
    if re.fullmatch("[0-9]{1,20}", text):
        return int(text)
    raise Refused(f"{os.path.basename(path)} is not named after an offset")


def _map_file(path: str) -> memoryview:
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
