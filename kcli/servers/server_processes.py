"""Servers in forked processes: the code of such a process, and its messages to its starter.

    starter   fork(serve, output)   >   child   a session of its own, killed when the starter ends
              lines of the pipe     <           its log; READY and its address once it serves

Python and its imports are nine tenths of a server's start. A forked child has them already, and
serves some 30 ms after the fork. The starter must have no other threads while it forks.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Callable, Sequence

READY = "\0ready "
"""Begins the line with a server's address: log lines contain no NUL."""
_NAME_BYTES = 15
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15
"""See prctl(2)."""


def fork(name: str, serve: Callable[[], int], output: int) -> int:
    """Fork a process and return its pid. It ends with the status that `serve` returns, or by
    SIGKILL when this one ends; it writes to the descriptor `output`, and ps shows it as `name`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    # Block signals until the child has its own handlers, so that it does not run its starter's.
    stops = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.pthread_sigmask(signal.SIG_BLOCK, stops)
    starter = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            _start_child(name, starter, output, stops)
            status = serve()
        except SystemExit as end:
            status = end.code if isinstance(end.code, int) else 1
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            # Do not return into the starter's frames, which would clean up after it.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)
    return pid


def _start_child(name: str, starter: int, output: int, stops: Sequence[signal.Signals]) -> None:
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != starter:
        os._exit(1)  # it had ended before it could be watched
    prctl(_PR_SET_NAME, name.encode()[:_NAME_BYTES])
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)
    os.close(nothing)
    os.close(output)
    signal.set_wakeup_fd(-1)
    for number in stops:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, stops)


def load_servers() -> None:
    """Import the modules of brokers and ZooKeeper, so that no child has to."""
    import gc
    from importlib import import_module

    for module in (
        "kserver.broker.process",
        "kserver.world.kazoo",
        "kserver.zookeeper_server.process",
    ):
        import_module(module)
    gc.collect()
    gc.freeze()


def serve_broker(overrides: Sequence[str]) -> int:
    """Run a broker with these keys of server.properties, and report its address."""
    from kserver.broker import process
    from kserver.errors import ConfigError

    try:
        config = process.load(None, overrides)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 1
    return process.run(config, lambda endpoints: report_ready(endpoints[0].host, endpoints[0].port))


def serve_zookeeper(properties: str) -> int:
    """Run a ZooKeeper with this text of zookeeper.properties, and report its address."""
    from kserver.zookeeper_server import process
    from kserver.zookeeper_server.settings import parse

    return process.run(parse(properties, "zookeeper.properties"), report_ready)


def report_ready(host: str, port: int) -> None:
    """Report the address to the starter, from within the server."""
    print(f"{READY}{host}:{port}", flush=True)


def ending(status: int) -> str:
    """Describe a status of waitpid: "killed by SIGKILL", "exit status 1"."""
    code = os.waitstatus_to_exitcode(status)
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
