"""What spark-submit is handed as the application of a job: `run.py JOB WORDS`.

It ends as every command of `k` does: with one line that says why, and an exit status.
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
    from kcli.spark.jobs.telling import told

    # Spark was started with Ctrl-C ignored, to live on until the job has ended: here it counts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    _take_streams()
    name, *rest = words

    def body(_words: object) -> int:
        import click

        try:
            with told():
                return run(name, rest) or 0
        except click.exceptions.Exit as end:
            return end.exit_code

    return ended([f"spark-submit {name}"], body)


def _take_streams() -> None:
    """Write where spark-submit writes: it hands all that its Python writes, standard error too, to
    its own standard output, through a pipe that is no terminal.  Where the system has no such paths
    or they are sockets, so it stays."""
    for number, stream in ((1, sys.stdout), (2, sys.stderr)):
        with contextlib.suppress(OSError):
            theirs = os.open(f"/proc/{os.getppid()}/fd/{number}", os.O_WRONLY | os.O_APPEND)
            stream.flush()
            os.dup2(theirs, number)
            os.close(theirs)


if __name__ == "__main__":
    # Python looks for modules beside this one first: they are found as kcli.spark.jobs.*, and
    # would stand in the way of others of their names.
    sys.path[:] = [
        path for path in sys.path if Path(path or ".").resolve() != Path(__file__).parent
    ]
    sys.exit(main(sys.argv[1:]))
