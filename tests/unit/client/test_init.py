from __future__ import annotations

import subprocess
import sys

import pytest

import kcli.client


@pytest.mark.parametrize("name", kcli.client.__all__)
def test_what_the_package_names_is_there(name):
    assert getattr(kcli.client, name).__name__ == name


def test_what_it_does_not_name_is_not():
    with pytest.raises(AttributeError, match="no attribute 'Streams'"):
        kcli.client.Streams  # noqa: B018


def test_importing_it_imports_nothing_heavy():
    code = "import sys, kcli.client; print(*{'asyncio', 'kio', 'crc32c'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
