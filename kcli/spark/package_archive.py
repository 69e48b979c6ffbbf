"""This package as a zip, for executors that do not have it: `k spark-submit --ship`.

It has only Python files and the table of keys. Compiled packages cannot be imported from a zip:
kio, crc32c, cramjam, lz4, msgpack, google-re2, numpy and pyarrow have to be installed on executors.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("kcli", "kserver")
MODULE = "pyspark_k.py"
EPOCH = (1980, 1, 1, 0, 0, 0)


def archive(root: Path = ROOT) -> Path:
    """Return the zip, in the user's cache: equal contents have the same name, and are written
    once.
    """
    files = {str(path.relative_to(root)): path.read_bytes() for path in _sources(root)}
    digest = hashlib.sha256()
    for name, text in files.items():
        digest.update(f"{name} {len(text)}\n".encode() + text)
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "k"
    archive_path = cache / f"k-{digest.hexdigest()[:16]}.zip"
    if not archive_path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        part = archive_path.with_suffix(f".{os.getpid()}")
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, text in files.items():
                zipped.writestr(zipfile.ZipInfo(name, EPOCH), text, zipfile.ZIP_DEFLATED)
        part.replace(archive_path)
    return archive_path


def _sources(root: Path) -> Iterator[Path]:
    for package in PACKAGES:
        for kind in ("*.py", "*_keys.txt"):
            yield from sorted((root / package).rglob(kind))
    yield root / MODULE
