"""Files of Spark: on this machine, or in any store that its Hadoop supports.

Paths are relative to the directory of the store, with slashes. Writing and replacing are atomic.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol
from urllib.parse import urlsplit

from kcli.command.options import Refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class StoreEntry:
    path: str
    is_directory: bool
    size: int
    modified_ms: int

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


class Store(Protocol):
    @property
    def root(self) -> str:
        """Its own path, without scheme and host."""

    def entries(self, directory: str) -> list[StoreEntry]:
        """Return the entries; none if there is no such directory."""

    def read(self, path: str) -> str: ...
    def write(self, path: str, text: str) -> None: ...
    def replace(self, path: str, by: str) -> None:
        """Move `by` to `path`, creating directories as needed."""

    def delete(self, path: str) -> None:
        """Delete a file or a directory with its contents, if it exists."""

    def uri(self, path: str) -> str:
        """Return the URI for Spark."""

    def locked(self, path: str) -> AbstractContextManager[None]:
        """Hold a lock. Raises Refused if another run has it."""


DELTA_LOG = "_delta_log"
TABLES = ("_spark_metadata", DELTA_LOG)
"""Directories of lists that determine which files belong to a table."""


def opened(spark: SparkSession, path: str) -> Store:
    default = spark._jsc.hadoopConfiguration().get("fs.defaultFS", "file:///")
    scheme = urlsplit(path).scheme or urlsplit(default).scheme
    if scheme == "file":
        # Remove only the scheme: # and ? may be part of names.
        return LocalStore(path.removeprefix("file:").removeprefix("//"))
    return HadoopStore(spark, path)


def data_files(store: Store, directory: str = "") -> Iterator[StoreEntry]:
    """Yield all files that readers see: not hidden, and not in another table."""
    entries = store.entries(directory)
    if directory and any(entry.name in TABLES for entry in entries):
        return
    for entry in entries:
        if entry.name.startswith(("_", ".")):
            continue
        if entry.is_directory:
            yield from data_files(store, entry.path)
        else:
            yield entry


class LocalStore:
    def __init__(self, path: str) -> None:
        self._root = Path(os.path.abspath(path))

    @property
    def root(self) -> str:
        return str(self._root)

    def entries(self, directory: str) -> list[StoreEntry]:
        try:
            with os.scandir(self._root / directory) as scan:
                names = list(scan)
        except (FileNotFoundError, NotADirectoryError):
            return []
        entries = []
        for name in names:
            with contextlib.suppress(FileNotFoundError):  # it was removed meanwhile
                entries.append(self._entry(directory, name))
        return entries

    def _entry(self, directory: str, entry: os.DirEntry[str]) -> StoreEntry:
        stat = entry.stat()
        path = f"{directory}/{entry.name}" if directory else entry.name
        return StoreEntry(path, entry.is_dir(), stat.st_size, stat.st_mtime_ns // 1_000_000)

    def read(self, path: str) -> str:
        return (self._root / path).read_text(encoding="utf-8")

    def write(self, path: str, text: str) -> None:
        part = f"{self._beside(path)}.tmp"
        (self._root / part).parent.mkdir(parents=True, exist_ok=True)
        with open(self._root / part, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        self.replace(path, part)

    def replace(self, path: str, by: str) -> None:
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        # Remove Hadoop's checksum of the old contents, which would not match the new ones.
        (self._root / f"{self._beside(path)}.crc").unlink(missing_ok=True)
        os.replace(self._root / by, self._root / path)

    def delete(self, path: str) -> None:
        import shutil

        if (self._root / path).is_dir():
            shutil.rmtree(self._root / path)
        else:
            (self._root / path).unlink(missing_ok=True)
            (self._root / f"{self._beside(path)}.crc").unlink(missing_ok=True)

    def uri(self, path: str) -> str:
        return f"file://{self._root / path}"

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        (self._root / path).parent.mkdir(parents=True, exist_ok=True)
        with open(self._root / path, "w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Refused(
                    f"another run holds the lock {self._root / path}; wait until it has ended"
                ) from None
            yield

    @staticmethod
    def _beside(path: str) -> str:
        """Return the path of a hidden file next to it."""
        directory, slash, name = path.rpartition("/")
        return f"{directory}{slash}.{name}"


class HadoopStore:
    """Files by Hadoop's FileSystem in the JVM."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        jvm: Any = spark._jvm
        self._gateway: Any = spark.sparkContext._gateway
        self._hadoop = jvm.org.apache.hadoop.fs
        self._text: Any = jvm.org.apache.commons.io.IOUtils
        conf = spark._jsc.hadoopConfiguration()
        self._base = self._hadoop.Path(path)
        self._fs = self._base.getFileSystem(conf)
        self._base = self._base.makeQualified(self._fs.getUri(), self._fs.getWorkingDirectory())
        self._context = self._hadoop.FileContext.getFileContext(self._fs.getUri(), conf)

    @property
    def root(self) -> str:
        return str(self._base.toUri().getPath())

    def entries(self, directory: str) -> list[StoreEntry]:
        where = self._path(directory)
        if not self._fs.exists(where):
            return []
        return [self._entry(directory, status) for status in self._fs.listStatus(where)]

    @staticmethod
    def _entry(directory: str, status: Any) -> StoreEntry:
        name = status.getPath().getName()
        path = f"{directory}/{name}" if directory else name
        return StoreEntry(path, status.isDirectory(), status.getLen(), status.getModificationTime())

    def read(self, path: str) -> str:
        stream = self._fs.open(self._path(path))
        try:
            return str(self._text.toString(stream, "UTF-8"))
        finally:
            stream.close()

    def write(self, path: str, text: str) -> None:
        directory, slash, name = path.rpartition("/")
        part = f"{directory}{slash}.{name}.tmp"
        stream = self._fs.create(self._path(part), True)
        try:
            stream.write(bytearray(text.encode()))
            stream.hsync()
        finally:
            stream.close()
        self.replace(path, part)

    def replace(self, path: str, by: str) -> None:
        where = self._path(path)
        self._fs.mkdirs(where.getParent())
        kind = self._hadoop.Options.Rename
        options = self._gateway.new_array(kind, 1)
        options[0] = kind.OVERWRITE
        self._context.rename(self._path(by), where, options)

    def delete(self, path: str) -> None:
        self._fs.delete(self._path(path), True)

    def uri(self, path: str) -> str:
        return str(self._path(path).toString())

    @contextlib.contextmanager
    def locked(self, path: str) -> Iterator[None]:
        where = self._path(path)
        self._fs.mkdirs(where.getParent())
        if not self._fs.createNewFile(where):
            raise Refused(
                f"another run holds the lock {where.toString()}, or was killed; remove the lock "
                "if no run is active"
            )
        try:
            yield
        finally:
            self.delete(path)

    def _path(self, path: str) -> Any:
        return self._hadoop.Path(self._base, path) if path else self._base
