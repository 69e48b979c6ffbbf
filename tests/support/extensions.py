"""The C extensions, built for a test.

K_C_FLAGS are compiler flags: tests/soak sets some that detect each access out of bounds.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sysconfig
from array import array
from pathlib import Path
from types import ModuleType

from tests.support.tools import require

ROOT = Path(__file__).parents[2]


def build(name: str, directory: Path) -> ModuleType:
    """Build the module `name` from its source, and import it."""
    require("gcc")
    source = (ROOT / name.replace(".", "/")).with_suffix(".c")
    path = directory / f"{source.stem}{sysconfig.get_config_var('EXT_SUFFIX')}"
    flags = ["-O2", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-shared", "-fPIC"]
    flags += os.environ.get("K_C_FLAGS", "").split()
    include = f"-I{sysconfig.get_path('include')}"
    subprocess.run(["gcc", *flags, include, "-o", str(path), str(source)], check=True)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def exactly(body: bytes) -> memoryview:
    """Return the bytes with nothing after them, so that a read past their end is detected."""
    return memoryview(array("B", body))
