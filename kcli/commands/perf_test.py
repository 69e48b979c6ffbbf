"""`k perf-test producer|consumer|e2e`: the three performance tests under one name."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import click

from kcli.command.command import Command, Manual, Options
from kcli.command.options import refuse

TESTS = {
    "producer": "producer_perf_test",
    "consumer": "consumer_perf_test",
    "e2e": "e2e_latency",
}

MANUAL = Manual(
    examples=(
        (
            "k perf-test producer --topic perf --num-records 1000000 --record-size 200 \\\n"
            "    --throughput -1",
            "Measure how fast records can be sent.",
        ),
        (
            "k perf-test consumer --topic perf --num-records 1000000",
            "Measure how fast records can be read.",
        ),
        (
            "k perf-test e2e --topic latency --num-records 1000 --producer-acks 1 \\\n"
            "    --record-size 200",
            "Measure the latency of a record from producer to consumer.",
        ),
    ),
    differences=("Each of Kafka's three tools has a script of its own.",),
    see_also=("k-producer-perf-test", "k-consumer-perf-test", "k-e2e-latency"),
)


class PerfTest(Command):
    """A command that passes its words to the command that the first one names."""

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        if args and args[0] in TESTS:
            attribute = TESTS[args[0]]
            test = getattr(importlib.import_module(f"kcli.commands.{attribute}"), attribute)
            assert isinstance(test, Command)
            return test.make_context(f"{info_name} {args[0]}", args[1:], parent, **extra)
        return super().make_context(info_name, args, parent, **extra)


def _no_command(options: Options) -> int:
    words: Sequence[str] = options.test
    text = f"there is no test '{words[0]}'" if words else "no test given"
    refuse(f"{text}; choose producer, consumer or e2e")


perf_test = PerfTest(
    "perf-test",
    manual=MANUAL,
    callback=_no_command,
    params=[click.Argument(["test"], nargs=-1, metavar="producer|consumer|e2e")],
    help="""Runs a performance test: producer (k-producer-perf-test), consumer
    (k-consumer-perf-test) or e2e (k-e2e-latency).

    The options that follow are those of the test; k perf-test producer --help shows them.""",
)
