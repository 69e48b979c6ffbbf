"""The metadata is in setup.cfg; here is what only Python can say: what is compiled.

The walk through the records that a client sends is written in C, and built wherever there is a C
compiler.  More may be compiled:

    K_COMPILE=1 pip install .

needs a C compiler.  It makes C extensions of these modules with mypyc: they are the hot loops, and
the same source runs uncompiled otherwise.  mypyc takes its types at their word: what is handed to a
compiled function and is of another type raises TypeError at the call.  And it builds what is in C,
where other modules stand in otherwise.
"""

import os
import sys

from setuptools import Extension, setup

COMPILED = (
    "kserver/metrics/meters.py",
    "kserver/wire/varint.py",
    "kserver/wire/records.py",
    "kserver/wire/batch.py",
    "kserver/wire/codec.py",
    "kserver/world/disk.py",
    "kserver/world/clock.py",
    "kserver/log/validator.py",
    "kserver/log/producer_state.py",
    "kserver/log/index.py",
    "kserver/log/segment.py",
    "kserver/log/segments.py",
    "kserver/log/log.py",
    "kserver/network/conversation.py",
    "kserver/network/connection.py",
    "kserver/replica/partition.py",
    "kserver/replica/fetch.py",
    "kserver/replica/fetch_session.py",
    "kserver/api/fetch_bytes.py",
    "kserver/api/fetch.py",
    "kserver/api/produce.py",
    "kserver/api/table.py",
)
WRITTEN_IN_C = {"kcli.spark._columns": "kcli/spark/_columns.c"}
ALWAYS = Extension(
    "kserver.wire._walk",
    ["kserver/wire/_walk.c"],
    depends=["kserver/wire/record.h"],
    optional=True,  # where there is no compiler, the broker starts with a warning instead
)
REQUIRED = ["mypy[mypyc]>=1.11"]


def extensions():
    # pip first asks for what the build needs (egg_info), and has mypyc only afterwards.
    if not os.environ.get("K_COMPILE") or "egg_info" in sys.argv:
        return [ALWAYS]
    from mypyc.build import mypycify

    options = ["--config-file=", "--follow-imports=silent", "--ignore-missing-imports"]
    written = [Extension(name, [source]) for name, source in WRITTEN_IN_C.items()]
    return [*mypycify([*options, *COMPILED]), ALWAYS, *written]


setup(ext_modules=extensions(), setup_requires=REQUIRED if os.environ.get("K_COMPILE") else [])
