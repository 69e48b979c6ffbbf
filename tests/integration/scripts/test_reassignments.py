"""Test that `k` and Apache's scripts reassign partitions, elect leaders and verify replicas with
the same output and the same effect.

Each tool has its own topic, on three of our brokers and on three of Apache 4.3.1's. The scripts are
those of 4.3.1; of 2.8.2 for kafka-preferred-replica-election.sh, which was removed since.

    CLUSTERS=3.9.2 pytest tests/integration/scripts/test_reassignments.py

runs them on three of Apache 3.9.2's brokers, as tests/soak/soak_transcripts.py does.

| in all transcripts | Apache's scripts | `k` | because |
|---|---|---|---|
| usage error | status 1, the usage | status 2, a hint | programs can tell it from a failure |
| other error | a stack trace | one line | it has all that a user needs |
| invalid JSON | "is empty" or a Java text | the place, and the remedy | the file can be mended |
| partitions | in the order of a hash table | sorted | the same output for the same cluster |

The differences of one command are stated in its test.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import re

import pytest

from kcli.client import Producer
from kserver.controller.placement import place
from tests.support import verifications
from tests.support.brokers import OURS, until
from tests.support.kraft_cluster import KRaftCluster
from tests.support.mixed_cluster import APACHE, MixedCluster
from tests.support.side_by_side import ELDEST, NEW, OLD, apache, k, scripts
from tests.support.tools import require
from tests.support.transcripts import (
    ELECT,
    LOG_DIRS,
    PATIENCE_S,
    Transcript,
    both,
    differing,
    first_error,
    log_dirs,
)

CLUSTERS = os.environ.get("CLUSTERS", f"{OURS} {NEW}").split()
"""OURS, and versions of Apache Kafka."""
IDS = (1, 2, 3)
PARTITIONS = 2
RECORDS = 200
"""Enough for a throttled move to take a minute: a broker fetches 1 MB, then waits until the rate
over the last eleven seconds is below its limit."""
VALUE = bytes(50_000)
BEFORE, AFTER = {0: [1, 2], 1: [2, 1]}, {0: [2, 3], 1: [3, 2]}
SWAPPED = {0: [2, 1], 1: [1, 2]}
SLOW = ("--throttle", "1000")
PREFERRED, OLDER = ("--election-type", "preferred"), "preferred-election"
ALL = "--all-topic-partitions"
MISSING = ("missing", 0)
DEPRECATED = re.compile(r"Option --admin\.config has been deprecated .*\n")
NOT_NEEDED = "Preferred replica already elected for partitions"
SETTINGS = {"auto.leader.rebalance.enable": "false"}
LINES = b"".join(b"%d\n" % number for number in range(10))
TOOLS = {"ours": k, "theirs": apache}
ELDER_TOOLS = {"ours": k, "theirs": functools.partial(apache, version=ELDEST)}


@pytest.fixture(scope="module", params=CLUSTERS)
def cluster(request, tmp_path_factory):
    require("java")
    directory = tmp_path_factory.mktemp("cluster")
    if request.param in (OURS, APACHE):
        cluster = MixedCluster(directory, dict.fromkeys(IDS, request.param), SETTINGS)
    else:
        cluster = KRaftCluster(directory, request.param, SETTINGS)
    for id, broker in cluster.brokers.items():
        broker.settings["log.dirs"] = ",".join(log_dirs(cluster, id))
    with cluster:
        yield cluster


async def fill(transcript):
    async with Producer(transcript.cluster.client) as producer:
        for number in range(RECORDS):
            await producer.send(transcript.topic, VALUE, partition=number % PARTITIONS)


def test_a_move_is_begun_slowed_told_cancelled_and_done_to_the_letter(cluster, tmp_path):
    def scenario(transcript):
        asyncio.run(fill(transcript))
        transcript.run("nothing moves", "--list")
        told = transcript.run("begin", "--execute", *transcript.plan(AFTER), *SLOW)
        assert '"log_dirs":["/' in told
        transcript.run("it moves", "--list")
        transcript.run("once more", "--execute", *transcript.plan(AFTER), status=1)
        again = ("--additional", "--throttle", "2000")
        transcript.run("another rate", "--execute", *transcript.plan(AFTER), *again)
        assert "in progress" in transcript.run("how far", "--verify", *transcript.plan(AFTER))
        transcript.run("give up", "--cancel", *transcript.plan(AFTER), "--preserve-throttles")
        # The original order is lost: it becomes that of the target, in Kafka too.
        assert {n: sorted(of) for n, of in transcript.replicas().items()} == {0: [1, 2], 1: [1, 2]}
        assert "rather than" in transcript.run("gave up", "--verify", *transcript.plan(AFTER))
        assert transcript.throttles() == {}
        transcript.run(
            "in earnest", "--execute", *transcript.plan(AFTER), "--throttle", "100000000"
        )
        transcript.until_at_rest()
        kept = ("--verify", "--preserve-throttles")
        assert "is completed" in transcript.run("done", *kept, *transcript.plan(AFTER))
        assert transcript.throttles()
        transcript.run("nothing to cancel", "--cancel", *transcript.plan(AFTER))
        assert transcript.throttles() == {}
        assert transcript.replicas() == AFTER

    ours, theirs = both(cluster, tmp_path, scenario, "between", TOOLS, BEFORE)
    assert differing(ours, theirs) == {}


def test_replicas_are_moved_between_directories_to_the_letter(cluster, tmp_path):
    def scenario(transcript):
        asyncio.run(fill(transcript))
        for step, name in (("there", "a"), ("and back", "b")):
            target = log_dirs(cluster, 2)["ab".index(name)]
            plan = transcript.plan({0: [1, 2]}, {0: ["any", target]})
            words = ("--replica-alter-log-dirs-throttle", "100000000")
            transcript.run(step, "--execute", *plan, *words)
            transcript.until_at_rest()
            transcript.run(f"{step}, done", "--verify", *plan)
            assert transcript.places()[0, 2, False] == target
        plan = transcript.plan({0: [1, 2]}, {0: ["any", log_dirs(cluster, 2)[0]]})
        transcript.run("elsewhere", "--verify", *plan)
        # Slow enough to continue during the test.
        transcript.slow_down(2)
        transcript.run("slowly", "--execute", *plan, "--replica-alter-log-dirs-throttle", "1")
        transcript.run("on its way", "--verify", *plan)
        transcript.run("given up", "--cancel", *plan)
        transcript.until_at_rest()
        assert transcript.places()[0, 2, False] == log_dirs(cluster, 2)[1]
        both_at_once = transcript.plan({1: [3, 1]}, {1: [log_dirs(cluster, 3)[1], "any"]})
        transcript.run("to a broker and its directory", "--execute", *both_at_once)
        transcript.until_at_rest()
        transcript.run("both done", "--verify", *both_at_once)
        assert transcript.places()[1, 3, False] == log_dirs(cluster, 3)[1]

    ours, theirs = both(cluster, tmp_path, scenario, "disks", TOOLS, BEFORE)
    assert differing(ours, theirs) == {}


def test_what_cannot_be_is_refused_to_the_letter(cluster, tmp_path):
    def scenario(transcript):
        def plan(*entries, **fields):
            named = [
                {"topic": transcript.topic, "partition": 0, "replicas": [1]} | e for e in entries
            ]
            return transcript.write({"partitions": named} | fields)

        def refused(step, action, *words):
            transcript.run(step, action, *words, status=1)

        for step, file in (
            ("no such broker", lambda: plan({"replicas": [1, 9]})),
            ("no such topic", lambda: plan({"topic": "missing"})),
            ("no such partition", lambda: plan({"partition": 7})),
            ("nothing", plan),
            ("no replicas", lambda: plan({"replicas": []})),
            ("a partition twice", lambda: plan({}, {"replicas": [2]})),
            ("a broker twice", lambda: plan({"replicas": [1, 1]})),
            ("too few directories", lambda: plan({"replicas": [1, 2], "log_dirs": ["any"]})),
            ("another version", lambda: plan({}, version=2)),
        ):
            refused(step, "--execute", *file())
        refused("verify what is not there", "--verify", *plan({"topic": "missing"}))
        missing = plan({"topic": "missing"}, {"partition": 7})
        transcript.run("verify, and clear nothing", "--verify", *missing, "--preserve-throttles")
        refused("cancel what is not there", "--cancel", *plan({"topic": "missing"}))
        transcript.run("cancel, and clear nothing", "--cancel", *missing, "--preserve-throttles")
        transcript.run("cancel what is not on the move", "--cancel", *plan({"partition": 1}))

        def topics(*names):
            transcript.write({"topics": [{"topic": name} for name in names]})
            return ("--topics-to-move-json-file", str(transcript.file), "--broker-list")

        refused("brokers twice", "--generate", *topics(transcript.topic), "1,2,1")
        refused("topics twice", "--generate", *topics(transcript.topic, transcript.topic), "1,2")
        refused("no such topic to plan for", "--generate", *topics("missing"), "1,2")
        refused("too few brokers", "--generate", *topics(transcript.topic), "3")
        refused("not a broker", "--generate", *topics(transcript.topic), "1,x")

    ours, theirs = both(cluster, tmp_path, scenario, "refused", TOOLS, BEFORE)
    assert differing(ours, theirs) == {}


def test_a_plan_is_one_that_kafka_could_have_made(cluster, tmp_path):
    """Both tools draw the start at random, so compare with the plans of every start and shift.

    The plans of `k` are those of 3.9; 4.3.1 has another algorithm, so only its other lines are the
    same.
    """
    transcript = Transcript(k, "planned", cluster, tmp_path, BEFORE)
    transcript.write({"topics": [{"topic": transcript.topic}]})
    words = ("--topics-to-move-json-file", str(transcript.file), "--broker-list", "1,2,3")
    racks = dict.fromkeys(IDS)
    possible = {
        tuple(place(racks, PARTITIONS, 2, start=start, shift=shift))
        for start in range(len(IDS))
        for shift in range(len(IDS))
    }
    ours, of_3_9, of_4_3 = (
        tool("reassign-partitions", "--generate", *words, *transcript.server).out.decode()
        for tool in (k, functools.partial(apache, version=OLD), apache)
    )
    for text in (ours, of_3_9):
        lines = text.splitlines()
        planned = json.loads(lines[4])["partitions"]
        assert [list(one) for one in planned] == [
            ["topic", "partition", "replicas", "log_dirs"]
        ] * PARTITIONS
        assert tuple(tuple(one["replicas"]) for one in planned) in possible
    assert ours.splitlines()[:4] == of_4_3.splitlines()[:4]
    assert len(ours.splitlines()) == len(of_4_3.splitlines())
    # 3.9 has no directories in the plan for a rollback.
    assert LOG_DIRS.sub("", ours).splitlines()[:4] == LOG_DIRS.sub("", of_3_9).splitlines()[:4]


def test_elections_are_reported_to_the_letter(cluster, tmp_path):
    """4.3.1 prints that --admin.config is deprecated; `k` does not."""
    config = tmp_path / "admin.properties"
    config.write_text("client.id=elects\n")
    k(ELECT, *PREFERRED, ALL, "--bootstrap-server", cluster.addresses)  # other tests' topics

    def scenario(transcript):
        elect = functools.partial(transcript.run, command=ELECT)
        one = ("--topic", transcript.topic, "--partition")
        elect("not needed", *PREFERRED, *one, "0")
        transcript.reorder(SWAPPED)
        assert "Successfully completed" in elect("one", *PREFERRED, *one, "0")
        assert transcript.leaders() == {0: 2, 1: 2}
        named = transcript.partitions(0, 1)
        elect("of a file", *PREFERRED, *named, "--admin.config", str(config))
        assert transcript.leaders() == {0: 2, 1: 1}
        transcript.reorder(BEFORE)
        elect("all", *PREFERRED, ALL)
        assert transcript.leaders() == {0: 1, 1: 2}
        elect("none left", *PREFERRED, ALL)
        elect("unclean, not needed", "--election-type", "UNCLEAN", *one, "1")
        elect("unclean, none needed", "--election-type", "unclean", ALL)
        elect("no such partition", *PREFERRED, *one, "9", status=1)
        elect("no such topic", *PREFERRED, "--topic", *MISSING[:1], "--partition", "0", status=1)
        elect("some", *PREFERRED, *transcript.partitions(0, MISSING), status=1)
        elect("one twice", *PREFERRED, *transcript.partitions(0, 0), status=1)
        (option, file) = transcript.partitions()
        elect("none", *PREFERRED, option, file)
        for name, document in (("no field", {}), ("no JSON", "x")):
            transcript.write(document)
            elect(name, *PREFERRED, option, file, status=1)

    ours, theirs = both(cluster, tmp_path, scenario, "elected", TOOLS, BEFORE)
    assert theirs.pop("no JSON").error in ours.pop("no JSON").error
    with_config = theirs["of a file"]
    assert DEPRECATED.match(with_config.text)
    theirs["of a file"] = with_config._replace(text=DEPRECATED.sub("", with_config.text))
    assert differing(ours, theirs) == {}


def test_preferred_elections_are_reported_as_by_2_8(cluster, tmp_path):
    """The script names elected partitions in the line about those that need no election."""
    config = tmp_path / "admin.properties"
    config.write_text("client.id=elects\n")
    k(ELECT, *PREFERRED, ALL, "--bootstrap-server", cluster.addresses)  # other tests' topics

    def scenario(transcript):
        elect = functools.partial(transcript.run, command=OLDER)
        transcript.reorder(SWAPPED)
        assert "Successfully completed" in elect("of a file", *transcript.partitions(0))
        elect("with a config", "--admin.config", str(config), *transcript.partitions(1))
        assert transcript.leaders() == {0: 2, 1: 1}
        elect("not needed", *transcript.partitions(0))
        transcript.reorder(BEFORE)
        elect("all")
        assert transcript.leaders() == {0: 1, 1: 2}
        elect("none left")
        elect("no such topic", *transcript.partitions(MISSING), status=1)
        elect("some", *transcript.partitions(0, MISSING), status=1)
        elect("one twice", *transcript.partitions(0, 0), status=1)
        option, file = transcript.partitions(0)
        for name, document in (("no field", {}), ("no JSON", "x")):
            transcript.write(document)
            elect(name, option, file, status=1)
        if isinstance(cluster, MixedCluster):
            transcript.reorder({0: [2, 1], 1: [2, 1]})
            zookeeper = ("--zookeeper", cluster.zookeeper.address)
            named = transcript.partitions(0, MISSING)
            elect("through ZooKeeper", *zookeeper, *named, server=())
            until(lambda: transcript.leaders() == {0: 2, 1: 2}, PATIENCE_S)
            elect("in vain", *zookeeper, *transcript.partitions(MISSING), server=())

    ours, theirs = both(cluster, tmp_path, scenario, "preferred", ELDER_TOOLS, BEFORE)
    assert theirs.pop("no JSON").error in ours.pop("no JSON").error
    assert ours["not needed"].text.startswith(f"{NOT_NEEDED} TOPIC-0\n")
    names = re.compile(f"(?<={NOT_NEEDED}).*")
    ours, theirs = (
        {step: of._replace(text=names.sub("", of.text)) for step, of in printed.items()}
        for printed in (ours, theirs)
    )
    assert differing(ours, theirs) == {}


def test_a_stopped_broker_is_reported_to_the_letter(cluster, tmp_path):
    stopped = 3
    before = {0: [stopped, 1], 1: [1, 2], 2: [stopped, 1]}
    alone = {0: [stopped, 1], 1: [1, 2], 2: [stopped]}

    # Without ZooKeeper a partition never gets back to replicas of which none is available.
    cancelled = int(isinstance(cluster, KRaftCluster))

    def scenario(transcript):
        elect_all = (ELECT, *PREFERRED, ALL, *transcript.server)
        until(lambda: k(*elect_all).status == 0, PATIENCE_S)  # the first scenario moved leaders
        transcript.reorder(alone)
        cluster.brokers[stopped].stop()
        try:
            until(lambda: transcript.leaders() == {0: 1, 1: 1, 2: None}, PATIENCE_S)
            elect_without(transcript)
            move_without(transcript)
        finally:
            cluster.brokers[stopped].start()
        transcript.until_at_rest()

    def elect_without(transcript):
        elect = functools.partial(transcript.run, command=ELECT)
        statuses = {"preferred": {0: 1, 1: 0, 2: 1}, "unclean": {0: 0, 1: 0, 2: 1}}
        for kind, of in statuses.items():
            words = ("--election-type", kind)
            for number, status in of.items():
                one = ("--topic", transcript.topic, "--partition", str(number))
                elect(f"{kind} {number}", *words, *one, status=status)
            elect(f"{kind} of all", *words, *transcript.partitions(*of), status=1)

    def move_without(transcript):
        run, plan = transcript.run, transcript.plan
        run("to the stopped broker", "--execute", *plan({1: [1, stopped]}), status=1)
        away = plan({0: [1, 2], 2: [2]})
        run("away from it", "--execute", *away)
        until(lambda: transcript.replicas()[0] == [1, 2], PATIENCE_S)
        run("one waits for it", "--list")
        kept = ("--verify", "--preserve-throttles")
        assert "still in progress" in run("how far", *kept, *away)
        run("give up", "--cancel", "--preserve-throttles", *away, status=cancelled)
        run("gave up", *kept, *away)

    ours, theirs = both(cluster, tmp_path, scenario, "stopped", TOOLS, before)
    assert differing(ours, theirs) == {}


def test_three_replicas_are_verified_the_same(cluster, tmp_path):
    transcript = Transcript(k, "verified", cluster, tmp_path, {0: [1, 2, 3]})
    words = ("--topic", transcript.topic, "--request-required-acks", "all", *transcript.server)
    assert k("console-producer", *words, input=LINES).status == 0
    ours, theirs = verify(cluster, transcript.topic)
    assert ours == theirs == ["verification process is started", all_of(transcript.topic)]
    for topics, error in (("none", ""), ("(", "( is an invalid regex")):
        words = ("--broker-list", cluster.addresses, "--topics-include", topics)
        ours = k("replica-verification", *words)
        theirs = scripts(verifier()).run("replica-verification", *words)
        # The script logs that no topics were found; here its log is off.
        assert (ours.status, ours.out, theirs.status, theirs.out) == (1, b"", 1, "")
        assert first_error(theirs.err.encode()) == error
        assert first_error(ours.err).startswith(error or "No topics found. --topics-include")


def verifier():
    """Return the release of the script: that of 4.3.1 does not work with 3.9."""
    return OLD if CLUSTERS == [APACHE] else NEW


def all_of(topic):
    return f"max lag is 0 for partition {topic}-0 at offset 10 among 1 partitions"


def verify(cluster, topic):
    """Return the lines of both commands up to the end of the topic, without those about lag."""
    words = ("--broker-list", cluster.addresses, "--topics-include", topic, "--time", "-2")
    found = []
    for command in (verifications.OURS, verifications.apache_s(verifier())):
        with verifications.verifying(command, *words, *verifications.QUICK) as (_, lines):
            printed = verifications.until(lines, all_of(topic))
        found.append([one for one in printed if "max lag" not in one or one == all_of(topic)])
    return found


@pytest.mark.parametrize(
    ("command", "version", "words"),
    [
        ("reassign-partitions", NEW, "--nonsense"),
        ("reassign-partitions", NEW, ""),
        ("reassign-partitions", NEW, "--list --verify"),
        ("reassign-partitions", NEW, "--list --bootstrap-controller c:1"),
        ("reassign-partitions", NEW, "--execute"),
        ("reassign-partitions", NEW, "--verify"),
        ("reassign-partitions", NEW, "--cancel"),
        ("reassign-partitions", NEW, "--generate --broker-list 1"),
        ("reassign-partitions", NEW, "--generate --topics-to-move-json-file t"),
        ("reassign-partitions", NEW, "--list --throttle 1"),
        ("reassign-partitions", NEW, "--list --reassignment-json-file p"),
        ("reassign-partitions", NEW, "--list --timeout 5"),
        ("reassign-partitions", NEW, "--verify --reassignment-json-file p --additional"),
        ("reassign-partitions", NEW, "--execute --reassignment-json-file p --preserve-throttles"),
        ("reassign-partitions", NEW, "--execute --reassignment-json-file"),
        ("reassign-partitions", NEW, "--execute --reassignment-json-file p --broker-list 1"),
        ("leader-election", NEW, "--nonsense"),
        ("leader-election", NEW, "--election-type preferred --topic t --partition x"),
        ("preferred-election", ELDEST, "--nonsense"),
        ("preferred-election", ELDEST, "--zookeeper z:1"),
        ("preferred-election", ELDEST, "--path-to-json-file"),
        ("replica-verification", NEW, "--broker-list b:1 --nonsense"),
        ("replica-verification", NEW, "--broker-list b:1 --time"),
    ],
)
def test_wrong_words_are_refused_with_the_same_words(command, version, words):
    require("java")
    words = words.split()
    if command != "replica-verification":
        words = ["--bootstrap-server", "127.0.0.1:1", *words]
    script = "preferred-replica-election" if command == OLDER else command
    ours, theirs = k(command, *words), scripts(version).run(script, *words)
    assert (ours.status, ours.out, theirs.status) == (2, b"", 1)
    error = first_error(theirs.err.encode())
    assert error
    assert first_error(ours.err).startswith(error)


def test_zookeeper_is_refused_where_kafka_reassigned_through_it():
    """Since 3.0 the option does not exist; `k` names the one that replaces it."""
    require("java")
    words = ("reassign-partitions", "--zookeeper", "127.0.0.1:1", "--list")
    ours, theirs = k(*words), apache(*words)
    assert (theirs.status, theirs.out) == (1, b"")
    assert first_error(theirs.err) == "zookeeper is not a recognized option"
    assert (ours.status, ours.out) == (2, b"")
    assert first_error(ours.err) == "--zookeeper is not supported; use --bootstrap-server"
