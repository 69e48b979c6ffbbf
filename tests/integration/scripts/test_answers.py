"""Test that `k` and Apache's scripts print the same: topics, offsets, configs, transactions, the
cluster."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.support.process import BrokerProcess
from tests.support.side_by_side import (
    NEW,
    OLD,
    apache,
    hang,
    k,
)
from tests.support.tools import require
from tests.support.transactions import hanging
from tests.support.verifications import OURS, QUICK, apache_s, until, verifying

OPTIONS_FIRST = ("transactions", "features")
"""Commands whose scripts need their options before the action."""
BY_ALL = [
    ("topics", "--describe"),
    ("topics", "--describe --topics-with-overrides"),
    ("topics", "--create --topic seen"),
    ("topics", "--create --topic a.b/c"),
    ("topics", "--create --topic new --replication-factor 2"),
    ("topics", "--create --topic new --config foo=bar"),
    ("topics", "--alter --topic seen --partitions 1"),
    ("get-offsets", ""),
    ("get-offsets", "--topic one --time max-timestamp"),
    ("broker-api-versions", ""),
    ("cluster", "cluster-id"),
    ("cluster", "list-endpoints"),
    ("log-dirs", "--describe --topic-list one"),
    ("log-dirs", "--describe --broker-list 7,8"),
    ("transactions", "describe-producers --topic hung --partition 0"),
]
"""Commands that are run on brokers of all versions, because the responses may differ."""
BY_NEW = [
    ("transactions", "list"),
    ("transactions", "list --duration-filter -1 --transactional-id-pattern tx.*"),
    ("transactions", "describe --transactional-id tx-1"),
    ("transactions", "describe --transactional-id missing"),
    ("transactions", "find-hanging --broker-id 1 --max-transaction-timeout 1"),
    ("features", "describe --node-id 1"),
    ("features", "upgrade --metadata 4.3-IV0 --feature bogus=1"),
    ("features", "disable --feature share.version --feature streams.version --dry-run"),
    ("features", "version-mapping"),
    ("configs", "--describe --topic seen --all"),
    ("configs", "--describe --entity-type brokers"),
    ("configs", "--alter --topic seen --add-config foo=bar"),
    ("cluster", "list-endpoints --include-fenced-brokers"),
    ("topics", "--list"),
    ("topics", "--list --exclude-internal --topic se.*,one"),
    ("topics", "--describe --topic one"),
    ("topics", "--describe --under-replicated-partitions"),
    ("topics", "--describe --at-min-isr-partitions --topic seen"),
    ("topics", "--describe --topic missing"),
    ("topics", "--describe --topic missing --if-exists"),
    ("topics", "--describe --topic-id 2BmACECHRZOvuI04BXclGw"),
    ("topics", "--create --topic seen --if-not-exists"),
    ("topics", "--create --topic new --replica-assignment 1:1"),
    ("topics", "--create --topic new --config retention.ms=abc"),
    ("topics", "--alter --topic seen --partitions 3"),
    ("topics", "--describe --unavailable-partitions"),
    ("topics", "--describe --under-min-isr-partitions"),
    ("topics", "--describe --exclude-internal --topic se.* --partition-size-limit-per-response 1"),
    ("topics", "--describe --topic-id nonsense"),
    ("topics", "--create --topic new --partitions 0"),
    ("topics", "--create --topic new --replication-factor 0"),
    ("topics", "--create --topic new --config retention.ms"),
    ("topics", "--create --topic new --replica-assignment 1:2,3"),
    ("topics", "--create --topic new --replica-assignment 77"),
    ("topics", "--alter --topic seen --partitions 4 --replica-assignment 1,1,1,77"),
    ("topics", "--alter --topic missing --partitions 4 --if-exists"),
    ("topics", "--delete --topic missing"),
    ("topics", "--delete --topic missing --if-exists"),
    ("get-offsets", "--topic one --time earliest"),
    ("get-offsets", "--topic-partitions one,seen:1-,:0 --exclude-internal-topics"),
    ("get-offsets", "--topic one --time 99999999999999"),
    ("get-offsets", "--topic one,seen --partitions 0,2 --time -2"),
    ("get-offsets", "--topic one --time earliest-local"),
    ("get-offsets", "--topic one --time latest-tiered"),
    ("get-offsets", "--topic one --time earliest-pending-upload"),
    ("get-offsets", "--topic one --time 0"),
    ("get-offsets", "--partitions x"),
    ("get-offsets", "--topic-partitions one:a"),
    ("get-offsets", "--topic-partitions one --topic one"),
    ("get-offsets", "--topic missing"),
    ("get-offsets", "--time nonsense"),
]
HUNG = ["find-hanging", "--topic"]


@pytest.mark.parametrize(
    ("broker", "command", "words"),
    [*((NEW, *row) for row in BY_ALL + BY_NEW), *((OLD, *row) for row in BY_ALL)],
    indirect=["broker"],
)
def test_answers_are_the_same(server, command, words):
    # kafka-cluster.sh needs its action first.
    words = words.split()
    order = [*server, *words] if command in OPTIONS_FIRST else [*words, *server]
    ours, theirs = (run(command, *order) for run in (k, apache))
    assert sorted(ours.lines) == sorted(theirs.lines)
    assert ours.status == theirs.status


@pytest.mark.parametrize("broker", [OLD], indirect=True)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("get-offsets", "--broker-list SERVER --topic one"),
        (
            "console-consumer",
            "--bootstrap-server SERVER --whitelist on. --from-beginning --max-messages 6",
        ),
    ],
)
def test_what_was_removed_since_answers_as_3_9_did(broker, command, words):
    words = words.replace("SERVER", broker.address).split()
    ours, theirs = k(command, *words), apache(command, *words, version=OLD)
    assert (ours.status, ours.out) == (theirs.status, theirs.out)


@pytest.mark.parametrize(
    "words",
    [
        "--list --partitions 2",
        "--create --topic a --if-exists",
        "--describe --if-exists",
        "--list --create --topic a",
        "--create",
        "--list --nonsense",
        "--describe --topics-with-overrides --unavailable-partitions",
        "--create --topic a --partitions",
    ],
)
def test_what_makes_no_sense_is_refused_in_the_same_words(words):
    require("java")
    words = ["--bootstrap-server", "127.0.0.1:1", *words.split()]
    ours, theirs = (run("topics", *words) for run in (k, apache))
    assert (ours.status, theirs.status) == (2, 1)
    assert (ours.out, theirs.out) == (b"", b"")
    assert ours.err.splitlines()[0] == b"k topics: " + theirs.err.splitlines()[0]


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_a_dry_run_asks_apache_and_changes_nothing(server):
    before = k("topics", "--describe", *server).lines
    for words, said in (
        ("--create --topic dry", "create topic dry: partitions 3, replication factor 1"),
        ("--alter --topic seen --partitions 5", "give topic seen 5 partitions in all"),
        ("--delete --topic seen", "delete topic seen and all its records"),
    ):
        done = k("topics", *words.split(), "--dry-run", *server)
        assert (done.status, done.lines) == (0, [f"Would {said}."])
    refused = k("topics", "--create", "--topic", "seen", "--dry-run", *server)
    assert (refused.status, b"already exists" in refused.out) == (1, True)
    unregistered = k("cluster", "unregister", "--id", "1", "--dry-run", *server)
    assert unregistered == (0, b"Would unregister broker 1.\n", b"")
    assert k("topics", "--describe", *server).lines == before


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_an_unknown_broker_cannot_be_unregistered(server):
    ours, theirs = (run("cluster", "unregister", "--id", "77", *server) for run in (k, apache))
    why = b"Broker ID 77 is not currently registered"
    assert (ours.status, ours.out, ours.err) == (1, b"", b"k cluster: " + why + b"\n")
    assert (theirs.status, theirs.out, why in theirs.err) == (1, b"", True)


def test_a_topic_s_life_is_the_same(server):
    def life(run, name):
        steps = [
            f"--create --topic {name} --partitions 2",
            f"--describe --topic {name}",
            f"--alter --topic {name} --partitions 4",
            f"--describe --topic {name}",
            f"--delete --topic {name}",
        ]
        done = [run("topics", *server, *step.split()) for step in steps]
        return [(one.status, [line.replace(name, "T") for line in one.lines]) for one in done]

    assert life(k, "our_s") == life(apache, "their_s")


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_records_are_deleted_the_same(server, tmp_path):
    """Except for the exit status: that of `k` is 1 if a partition was refused."""

    def deleted(run):
        name = f"deleted-from-{run.__name__}"
        made = ["--create", "--topic", name, "--partitions", "1"]
        assert k("topics", *server, *made).status == 0
        assert k("console-producer", *server, "--topic", name, input=b"a\nb\nc\n").status == 0
        file, found = tmp_path / name, []
        for offset in (1, 4, 0, -1):
            asked = {"topic": name, "partition": 0, "offset": offset}
            file.write_text(json.dumps({"partitions": [asked], "version": 1}))
            done = run("delete-records", *server, "--offset-json-file", str(file))
            found.append((done.status, [line.replace(name, "T") for line in done.lines]))
        return found

    ours, theirs = deleted(k), deleted(apache)
    assert [lines for _, lines in ours] == [lines for _, lines in theirs]
    assert [status for status, _ in ours] == [0, 1, 0, 0]


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_transactions_are_ended_the_same(broker, server):
    def ended(run):
        name = f"ended-by-{run.__name__}"
        made = ["--create", "--topic", name, "--partitions", "1"]
        assert k("topics", *server, *made).status == 0
        asyncio.run(hanging(broker.address, name, name, [b"v"]))
        (_, row) = k("transactions", *server, *HUNG, name).lines
        producer_id, epoch = row.split()[2:4]
        by_offset = ["--topic", name, "--partition", "0", "--start-offset", "0"]
        by_id = ["--topic", name, "--partition", "0", "--producer-id", producer_id]
        by_id += ["--producer-epoch", epoch, "--coordinator-epoch", "-1"]
        done = [
            run("transactions", *server, *words)
            for words in (
                ["abort", *by_offset],
                ["abort", *by_offset],
                ["abort", *by_id],
                ["forceTerminateTransaction", "--transactionalId", name],
            )
        ]
        assert len(k("transactions", *server, *HUNG, name).lines) == 1
        return [(one.status, one.out, b"Could not find any open" in one.err) for one in done]

    ours = ended(k)
    assert ours == ended(apache)
    assert [status for status, _, _ in ours] == [0, 1, 0, 0]


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_a_dry_run_ends_no_transaction(server):
    before = k("transactions", *server, *HUNG, "hung").lines
    start = ["--topic", "hung", "--partition", "0", "--start-offset", "0", "--dry-run"]
    done = k("transactions", *server, "abort", *start)
    assert (done.status, done.out.startswith(b"Would abort the transaction of")) == (0, True)
    name = ["--transactional-id", "hangs", "--dry-run"]
    done = k("transactions", *server, "forceTerminateTransaction", *name)
    assert done == (0, b"Would abort the open transaction of hangs, and fence its producer.\n", b"")
    assert k("transactions", *server, *HUNG, "hung").lines == before


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_controllers_tell_of_brokers_what_these_tell_themselves(broker, server):
    asked = ["--describe", "--entity-type", "brokers"]
    controllers = ["--bootstrap-controller", f"127.0.0.1:{broker.controller_port}"]
    ours = k("configs", *controllers, *asked)
    assert (ours.status, ours.err) == (0, b"")
    assert ours == k("configs", *server, *asked)


@pytest.mark.parametrize("broker", [NEW], indirect=True)
def test_settings_and_quotas_are_changed_the_same(server):
    def life(run, name):
        steps = [
            "--alter --client NAME --add-config producer_byte_rate=10000000",
            "--alter --topic seen --add-config flush.ms=77,cleanup.policy=[compact,delete]",
            "--describe --topic seen",
        ]
        done = [run("configs", *server, *step.replace("NAME", name).split()) for step in steps]
        return [(one.status, [line.replace(name, "C") for line in one.lines]) for one in done]

    ours = life(k, "our_s")
    assert ours == life(apache, "their_s")
    deleted = ["--alter", "--topic", "seen", "--delete-config", "flush.ms,cleanup.policy"]
    assert k("configs", *server, *deleted).status == 0


def test_of_our_broker_k_cluster_says_what_the_script_says(tmp_path):
    require("java")
    with BrokerProcess(tmp_path) as ours:
        server = ["--bootstrap-server", ours.address]
        for action in ("cluster-id", "list-endpoints"):
            told = k("cluster", action, *server)
            assert (told.status, told.lines) == (0, apache("cluster", action, *server).lines)
        unregister = ("cluster", "unregister", "--id", "7", *server)
        no, why = k(*unregister), b"The target cluster does not support the broker unregistration"
        assert (no.status, no.out, no.err.startswith(b"k cluster: " + why)) == (1, b"", True)
        assert apache(*unregister).out.startswith(why)


def test_of_our_broker_s_transactions_and_features_both_say_the_same(tmp_path):
    require("java")
    settings = {"transaction.partition.verification.enable": "false"}
    with BrokerProcess(tmp_path, settings) as ours:
        server = ["--bootstrap-server", ours.address]
        hang(ours.address)
        for command, words in (
            ("transactions", "list --transactional-id-pattern t.*"),
            ("transactions", "describe --transactional-id tx-1"),
            ("transactions", "describe-producers --topic hung --partition 0"),
            ("transactions", "find-hanging --topic hung"),
            ("features", "describe"),
            ("features", "downgrade --feature transaction.version=1 --dry-run"),
        ):
            told = k(command, *server, *words.split())
            assert (told.status, told.err) == (0, b"")
            theirs = apache(command, *server, *words.split())
            if told.lines != theirs.lines:
                # The output has the age in minutes, which may change between the two runs.
                told = k(command, *server, *words.split())
            assert told.lines == theirs.lines


def test_replicas_are_verified_the_same(broker, server):
    words = ("--broker-list", broker.address, "--topics-include", "one", "--time", "-2", *QUICK)
    ends = "max lag is 0 for partition one-0 at offset 6 among 1 partitions"
    found = []
    for command in (OURS, apache_s(broker.version)):
        with verifying(command, *words) as (_, lines):
            found.append([one for one in until(lines, ends) if "lag" not in one or one == ends])
    assert found[0] == found[1] == ["verification process is started", ends]
    summed = k("replica-verification", "--sums", "--topics-include", "one", *server)
    assert (summed.status, summed.err) == (0, b"")
    assert summed.lines[0].startswith("one-0\treplica: 1\toffsets: 0 to 6\tbytes: ")
