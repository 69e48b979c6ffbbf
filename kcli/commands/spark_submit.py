"""`k spark-submit`: runs Spark's own spark-submit, with the PySpark of this environment."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import signal
import stat
import sys

import click

from kcli.command.command import Command, Manual, Options, command
from kcli.command.options import Refused, option, option_group, read_properties, refuse
from kcli.command.output import print_output
from kcli.spark import installation, jobs, package_archive
from kcli.spark.submission import (
    WITH_DEFAULTS,
    WITHOUT_APPLICATION,
    Submission,
    adjusted,
    own_first,
)

PRINT = "--print-command"

SHIP = "--ship"
RUNNER = os.path.join(os.path.dirname(jobs.__file__), "run.py")
LOGGING = os.path.join(os.path.dirname(jobs.__file__), "log4j2.properties")

MANUAL = Manual(
    examples=(
        (
            "k spark-submit land --topics orders --path /lake/orders --partition-by hour \\\n"
            "    --checkpoint /lake/_checkpoints/orders",
            "A job, on all processors of this machine.",
        ),
        ("k spark-submit land --help", "Print the options of a job; nothing is started."),
        ("k spark-submit count.py", "Your own application."),
        (
            "k spark-submit --master spark://head:7077 --conf spark.cores.max=8 count.py orders",
            "On a cluster; arguments after the application are passed to it.",
        ),
        (
            "PYSPARK_PYTHON=environment/bin/python k spark-submit --master yarn \\\n"
            "    --archives environment.tar.gz#environment count.py",
            "On nodes that have only Spark: ship an environment, made by venv-pack or conda-pack.",
        ),
        ("k spark-submit --print-command count.py", "Show the command that would be run."),
    ),
    environment=(
        (
            "PYSPARK_PYTHON",
            "The Python of the workers, if its path differs there.  Default: the one that runs k.",
        ),
        ("PYSPARK_DRIVER_PYTHON", "The Python of the driver.  Default: the one that runs k."),
        ("JAVA_HOME", "The Java that Spark runs on.  Default: the one on PATH."),
    ),
    statuses=(
        (0, "The application has succeeded."),
        (
            1,
            "The application was refused, or failed; any other status is the application's own.",
        ),
    ),
    differences=("Kafka's scripts have no such command.",),
    see_also=(*(f"k-spark-submit-{job}" for job in jobs.JOBS), "k-spark(7)"),
)


class Submit(Command):
    """A command that parses only its own options; those of Spark, and all words after the
    application, are passed on.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own = {name for param in self.params for name in param.opts if name.startswith("-")}
        own |= set(self.get_help_option_names(ctx))
        own_words, words = own_first(args, own)
        super().parse_args(ctx, own_words)
        ctx.params["words"] = words
        return []

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        super().format_options(ctx, formatter)
        with formatter.section("Jobs"):
            formatter.write_dl(list(jobs.JOBS.items()))


@command(manual=MANUAL, cls=Submit)
@option_group(
    option(PRINT, "Print the command and its environment, and do not run it."),
    option(
        SHIP,
        "Send this package to the executors, as a zip in --py-files.  Compiled packages are not "
        "included: every node needs kio, crc32c, cramjam, lz4, msgpack, google-re2, click, numpy "
        "and pyarrow for the Python that runs there.",
    ),
    click.argument("words", nargs=-1, metavar="[SPARK-OPTIONS] APP|JOB [WORDS]"),
)
def spark_submit(options: Options) -> None:
    """Runs a job or an application on Spark, where the format k reads topics.

    A job is one of the names below; its arguments are checked before anything is started.  Anything
    else is an application, as for Spark's own spark-submit.

    All options are those of Spark's spark-submit, and are passed to it unchanged; --print-command
    and --ship may be among them.  Without --master it runs on this machine.  Filters are pushed
    down into the source k, and Spark and its Python communicate over Unix domain sockets, unless
    --conf or a properties file overrides this.

    The PySpark of this environment is used, whatever SPARK_HOME says, and finds the data source k
    by itself: spark.read.format("k").  On spark:// and yarn every node needs the same environment
    at the same path, or one that --archives ships and PYSPARK_PYTHON names, or --ship; on k8s:// it
    is in the image, where Python is python3 unless PYSPARK_PYTHON says otherwise.

    If the driver runs on the cluster, --deploy-mode cluster, files that a job names must exist
    there too, and the exit status is the one that the cluster manager reports.
    """
    submission = Submission.of(options.words, jobs.JOBS)
    if submission.application is None and not WITHOUT_APPLICATION & submission.options.keys():
        refuse(
            "name an application or a job to run: k spark-submit [SPARK-OPTIONS] APP|JOB [WORDS]"
        )
    file = submission.local_file
    if file is not None and not os.path.isfile(file):
        raise Refused(f"file {file} does not exist, and {_no_job(file)}")
    script, environment = installation.script("spark-submit")
    submission = submission.over(_properties(submission, environment["SPARK_HOME"]))
    if submission.application and (why := submission.refusal(os.environ)) is not None:
        raise Refused(why)
    if submission.job is not None:
        words_of_job = jobs.read(submission.job, submission.words)
        if submission.runs_driver_here and not options.print_command:
            jobs.look(submission.job, words_of_job)
    environment = adjusted(environment, os.environ, submission, LOGGING)
    if submission.job is not None:
        environment |= installation.quiet_java()
    shipped = str(package_archive.archive()) if options.ship else None
    words = [
        script,
        *submission.command(runner=RUNNER, sources=installation.sources(), shipped=shipped),
    ]
    if options.print_command:
        print_output(
            shlex.join(["env", *(f"{name}={text}" for name, text in environment.items()), *words])
        )
        return
    sys.stdout.flush()
    if submission.job is not None and submission.runs_driver_here:
        _append()
        # Spark would end at once, before the job, which has to end first; the job handles the
        # signal again.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    # It replaces this process: signals and the exit status are Spark's own.
    os.execve(script, words, os.environ | environment)


def _append() -> None:
    """Set O_APPEND on standard output and error. A job opens their files again and appends to them,
    so other processes that have them open must append after its output.
    """
    for number in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISREG(os.fstat(number).st_mode):
                flags = fcntl.fcntl(number, fcntl.F_GETFL)
                fcntl.fcntl(number, fcntl.F_SETFL, flags | os.O_APPEND)


def _no_job(word: str) -> str:
    import difflib

    near = difflib.get_close_matches(word, jobs.JOBS, 1)
    hint = f" (did you mean {near[0]}?)" if near else f": {', '.join(jobs.JOBS)} are"
    return f"no job of that name{hint}"


def _properties(submission: Submission, spark_home: str) -> dict[str, str]:
    """Return the properties of the file that Spark reads before --conf."""
    own = submission.properties_file
    if own is not None and WITH_DEFAULTS not in submission.options:
        return read_properties(own)
    directory = os.environ.get("SPARK_CONF_DIR") or os.path.join(spark_home, "conf")
    path = os.path.join(directory, "spark-defaults.conf")
    defaults = read_properties(path) if os.path.isfile(path) else {}
    return defaults if own is None else defaults | read_properties(own)
