"""The application of a job for spark-submit: `run.py JOB WORDS`.

Like every command of `k` it ends with one line that has the reason, and an exit status.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from pathlib import Path


def main(words: list[str]) -> int:
    from kcli.main import ended
    from kcli.spark.jobs import run
    from kcli.spark.jobs.spark_errors import refusing_spark_errors

    # Spark is started with Ctrl-C ignored, to outlive the job; the job itself has to handle it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _take_streams()
    name, *rest = words

    def body(_words: object) -> int:
        import click

        try:
            with refusing_spark_errors():
                return run(name, rest) or 0
        except click.exceptions.Exit as end:
            return end.exit_code

    return ended([f"spark-submit {name}"], body)


def _take_streams() -> None:
    """Write to the streams of spark-submit. It would pass all output of its Python, standard error
    too, to its own standard output, through a pipe, which is not a terminal. If the system has no
    such paths or they are sockets, the output stays so.
    """
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):
            theirs = os.open(f"/proc/{os.getppid()}/fd/{number}", os.O_WRONLY | os.O_APPEND)
            stream.flush()
            os.dup2(theirs, number)
            os.close(theirs)


if __name__ == "__main__":
    # Python would look for modules in this directory first, which are imported as kcli.spark.jobs.*
    # and would hide others of the same names.
    sys.path[:] = [
        path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent
    ]
    sys.exit(main(sys.argv[1:]))
