"""Test `k configs` on our broker, and against Apache's kafka-configs.sh on the same broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import count

import pytest

from kcli.main import main
from tests.support import apache_kafka
from tests.support.brokers import QUICK_START
from tests.support.process import BrokerProcess
from tests.support.terminal import on_a_terminal
from tests.support.tools import K, require

TIMEOUT_S = 120
NEW, OLD = "4.3.1", "3.9.2"
numbers = count(1)


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker")) as running:
        os.environ["K_BOOTSTRAP_SERVER"] = running.address
        yield running
        del os.environ["K_BOOTSTRAP_SERVER"]


@pytest.fixture
def k(broker, capsys):
    """Function that runs a line of `k configs` in this process; returns its status and output."""

    def run(line, *words):
        status = main(["configs", *line.split(), *words])
        shown = capsys.readouterr()
        return status, shown.out, shown.err

    return run


@pytest.fixture
def topic(broker, capsys):
    name = f"topic-{next(numbers)}"
    assert main(["topics", "--create", "--topic", name]) == 0
    capsys.readouterr()
    return name


def test_a_topic_s_settings_are_set_shown_and_taken_away(k, topic):
    completed = (0, f"Completed updating config for topic {topic}.\n", "")
    heading = f"Dynamic configs for topic {topic} are:\n"
    assert k(f"--describe --topic {topic}") == (0, heading, "")
    change = "--add-config retention.ms=86400000,cleanup.policy=[compact,delete]"
    assert k(f"--alter --topic {topic} {change}") == completed
    assert k(f"--describe --entity-type topics --entity-name {topic}") == (
        0,
        heading + "  cleanup.policy=compact,delete sensitive=false synonyms="
        "{DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact,delete, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}\n"
        "  retention.ms=86400000 sensitive=false synonyms="
        "{DYNAMIC_TOPIC_CONFIG:retention.ms=86400000}\n",
        "",
    )
    assert k(f"--alter --topic {topic} --delete-config cleanup.policy,retention.ms") == completed
    assert k(f"--describe --topic {topic}") == (0, heading, "")


def test_settings_come_from_a_file_too(k, topic, tmp_path):
    (tmp_path / "f").write_text("# mine\nretention.ms = 5\ncleanup.policy=compact,delete\n")
    assert k(f"--alter --topic {topic} --add-config-file {tmp_path / 'f'}")[0] == 0
    _, out, _ = k(f"--describe --topic {topic}", "-o", "template={name}={value}")
    assert out == "cleanup.policy=compact,delete\nretention.ms=5\n"


def test_a_dry_run_says_what_would_be_done_and_does_nothing(k, topic):
    change = "--add-config retention.ms=5,segment.ms=7 --delete-config preallocate --dry-run"
    assert k(f"--alter --topic {topic} {change}") == (
        0,
        f"Would set retention.ms=5 for topic {topic}, now 604800000: records that are older are "
        f"deleted.\nWould set segment.ms=7 for topic {topic}, now 604800000.\n"
        f"Would leave preallocate of topic {topic} unchanged, because it is not set.\n",
        "",
    )
    assert k(f"--describe --topic {topic}")[1].count("\n") == 1
    status, out, err = k(f"--alter --topic {topic} --add-config retention.ms=x --dry-run")
    assert (status, out) == (1, "")
    assert "Invalid value x for configuration retention.ms: Not a number of type LONG" in err
    quota = "--alter --client c --add-config producer_byte_rate=5 --dry-run"
    assert k(quota) == (0, "Would set producer_byte_rate=5 for client c.\n", "")
    assert k("--describe --client c") == (0, "", "")


def test_brokers_and_their_default_are_changed_and_shown(k):
    defaults = "Completed updating default config for brokers in the cluster.\n"
    assert k("--alter --broker-defaults --add-config max.connections=500") == (0, defaults, "")
    own = "Completed updating config for broker 0.\n"
    assert k("--alter --broker 0 --add-config max.connections=600") == (0, own, "")
    assert k("--describe --entity-type brokers") == (
        0,
        "Dynamic configs for broker 0 are:\n"
        "  max.connections=600 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:max.connections=600"
        ", DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=500, "
        "DEFAULT_CONFIG:max.connections=2147483647}\n"
        "Default configs for brokers in the cluster are:\n"
        "  max.connections=500 sensitive=false synonyms="
        "{DYNAMIC_DEFAULT_BROKER_CONFIG:max.connections=500}\n",
        "",
    )
    status, out, _ = k("--describe --broker 0 --all", "-o", "json")
    rows = {row["name"]: row for row in json.loads(out)["items"]}
    assert (status, rows["num.partitions"]["read_only"]) == (0, True)
    assert rows["max.connections"]["source"] == "DYNAMIC_BROKER_CONFIG"
    assert rows["ssl.key.password"]["value"] is None
    for which in ("--broker 0", "--broker-defaults"):
        assert k(f"--alter {which} --delete-config max.connections")[0] == 0


def test_a_key_that_the_broker_does_not_know_is_told_of(k):
    warning = (
        "log.retention.sm is not a config that the broker knows; it is stored, and has no effect.\n"
    )
    for which in ("--broker 0", "--broker-defaults"):
        status, _, err = k(f"--alter {which} --add-config log.retention.sm=5,log.roll.ms=7777777")
        assert (status, err) == (0, warning)
        shown = k(f"--describe {which}")[1]
        assert "  log.retention.sm=null sensitive=true synonyms=" in shown
        assert k(f"--alter {which} --delete-config log.retention.sm,log.roll.ms")[0] == 0


def test_quotas_are_set_shown_and_taken_away(k):
    def alter(words):
        status, out, err = k(f"--alter {words}")
        assert (status, err) == (0, ""), err
        return out

    assert alter("--client c1 --user u1 --add-config producer_byte_rate=1024") == (
        "Completed updating config for client c1.\n"
    )
    assert alter("--user-defaults --add-config request_percentage=50,consumer_byte_rate=1e7") == (
        "Completed updating default config for users in the cluster.\n"
    )
    # The names are matched with the types in order.
    mixed = "--entity-type users --entity-default --entity-type clients --entity-name c2"
    alter(f"{mixed} --add-config producer_byte_rate=7")
    alter("--ip 127.0.0.1 --add-config connection_creation_rate=5")
    assert k("--describe --entity-type users --entity-type clients") == (
        0,
        "Quota configs for the default user-principal, client-id 'c2' are "
        "producer_byte_rate=7.0\n"
        "Quota configs for user-principal 'u1', client-id 'c1' are producer_byte_rate=1024.0\n",
        "",
    )
    assert k("--describe --user-defaults")[1] == (
        "Quota configs for the default user-principal are consumer_byte_rate=1.0E7, "
        "request_percentage=50.0\n"
    )
    assert k("--describe --entity-type ips")[1] == (
        "Quota configs for ip '127.0.0.1' are connection_creation_rate=5.0\n"
    )
    alter("--client c1 --user u1 --delete-config producer_byte_rate")
    alter(f"{mixed} --delete-config producer_byte_rate")
    alter("--user-defaults --delete-config request_percentage,consumer_byte_rate")
    alter("--ip 127.0.0.1 --delete-config connection_creation_rate")
    for words in ("--entity-type users --entity-type clients", "--entity-type ips"):
        assert k(f"--describe {words}") == (0, "", "")


def test_loggers_are_set_and_given_back(k):
    def level():
        lines = k("--describe --broker-logger 0")[1].splitlines()
        (found,) = (line for line in lines if line.startswith("  kserver.replica="))
        return found

    shown = "  kserver.replica={} sensitive=false synonyms={{}}"
    completed = (0, "Completed updating config for broker-logger 0.\n", "")
    assert level() == shown.format("INFO")
    assert k("--alter --broker-logger 0 --add-config kserver.replica=DEBUG") == completed
    assert level() == shown.format("DEBUG")
    assert k("--alter --broker-logger 0 --delete-config kserver.replica") == completed
    assert level() == shown.format("INFO")


@pytest.mark.parametrize(
    ("line", "out", "err"),
    [
        (
            "--describe --topic missing",
            "The topic 'missing' doesn't exist and doesn't have dynamic config.\n",
            "",
        ),
        (
            "--describe --broker 7",
            "The broker '7' doesn't exist and doesn't have dynamic config.\n",
            "",
        ),
        (
            "--describe --client-metrics m",
            "The client-metric 'm' doesn't exist and doesn't have dynamic config.\n",
            "",
        ),
        (
            "--alter --topic missing --add-config retention.ms=5",
            "",
            "The topic 'missing' does not exist.",
        ),
        (
            "--alter --broker 0 --add-config num.partitions=5",
            "",
            "Cannot update these configs dynamically: [num.partitions]",
        ),
        (
            "--alter --broker 0 --add-config listener.name.plaintext.ssl.key.password=hunter2",
            "",
            "Classes, files, commands and passwords are taken from server.properties alone; "
            "cannot update these configs dynamically: "
            "[listener.name.plaintext.ssl.key.password]",
        ),
        (
            "--alter --group g --add-config consumer.session.timeout.ms=1",
            "",
            "consumer.session.timeout.ms must be greater than or equal to "
            "group.consumer.min.session.timeout.ms",
        ),
        (
            "--alter --client-metrics m --add-config interval.ms=1000",
            "",
            "This broker takes no metrics from clients (KIP-714), so there are no subscriptions "
            "to configure.",
        ),
        (
            "--alter --broker-logger 0 --add-config no.such=INFO",
            "",
            "Invalid broker logger(s): no.such",
        ),
        (
            "--alter --client c --delete-config producer_byte_rate",
            "",
            "Invalid config(s): producer_byte_rate",
        ),
        (
            "--alter --client c --add-config producer_byte_rate=x",
            "",
            "Cannot parse quota configuration value for producer_byte_rate: x",
        ),
        (
            "--alter --client c --add-config nonsense=1",
            "",
            "Only quota configs can be added for 'clients' using --bootstrap-server. Unexpected "
            "config names: nonsense",
        ),
    ],
)
def test_what_cannot_be_is_told_in_a_line(k, line, out, err):
    assert k(line) == (1, out, f"k configs: {err}\n" if err else "")


@pytest.mark.parametrize(
    ("typed", "words", "status"), [(b"n\n", (), 1), (b"y\n", (), 0), (b"", ("--yes",), 0)]
)
def test_on_a_terminal_what_deletes_records_is_agreed_upon(broker, k, topic, typed, words, status):
    change = ["--alter", "--topic", topic, "--add-config", "retention.ms=5,segment.ms=9"]
    ended, shown = on_a_terminal([*K, "configs", *change, *words], typed=typed)
    assert ended == status
    question = (
        f"This will set retention.ms=5 for topic {topic}, now 604800000: records that are older are"
        " deleted.\r\nGo on? [y/N] "
    )
    assert (question.encode() in shown) == (not words)
    assert ("retention.ms=5" in k(f"--describe --topic {topic}")[1]) == (not status)


def apache(version, *words):
    script = [sys.executable, apache_kafka.__file__, "tool", version, "kafka-configs.sh"]
    server = ["--bootstrap-server", os.environ["K_BOOTSTRAP_SERVER"]]
    done = subprocess.run(
        [*script, *server, *words],
        capture_output=True,
        timeout=TIMEOUT_S,
        env=os.environ | {"KAFKA_JVM_PERFORMANCE_OPTS": QUICK_START},
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


def test_kafka_configs_and_k_configs_read_each_other_on_our_broker(k, topic):
    require("java")
    named = ["--entity-type", "topics", "--entity-name", topic]
    assert k(f"--alter --topic {topic} --add-config segment.ms=777777")[0] == 0
    theirs = apache(NEW, "--alter", *named, "--add-config", "cleanup.policy=[compact,delete]")
    assert theirs == f"Completed updating config for topic {topic}.\n"
    assert k(f"--describe --topic {topic}", "-o", "template={name}={value}")[1] == (
        "cleanup.policy=compact,delete\nsegment.ms=777777\n"
    )
    # 3.9 changes broker configs with AlterConfigs, which replaces all configs; it sends those that
    # it read.
    assert k("--alter --broker 0 --add-config max.connections=600")[0] == 0
    broker = ["--alter", "--entity-type", "brokers", "--entity-name", "0"]
    apache(OLD, *broker, "--add-config", "log.retention.ms=77777777")
    described = ["--describe", "--entity-type", "brokers"]
    ours = k(" ".join(described))
    assert ours == (0, apache(NEW, *described), "")
    assert [line.split()[0] for line in ours[1].splitlines() if line.startswith("  ")] == [
        "log.retention.ms=77777777",
        "max.connections=600",
    ]
    assert k("--alter --broker 0 --delete-config max.connections,log.retention.ms")[0] == 0
