"""C6: a secret that the broker or a command was given is in nothing that they say.

CVE-2019-12399, CVE-2026-33558: passwords in answers, and in logs at DEBUG.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kserver.config.broker import BrokerConfig
from kserver.config.setting import settings_of
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.support.brokers import create_topic
from tests.support.process import BrokerProcess
from tests.support.wire_client import WireClient

K = Path(sys.executable).with_name("k")
TOPIC, BROKER, SET = 2, 4, 0
INSTEAD = {"zookeeper.sasl.jaas.config"}
"""Given together with zookeeper.auth they are refused."""
PASSWORDS = [
    s.name for s in settings_of(BrokerConfig).values() if s.sensitive and s.name not in INSTEAD
]
BESIDES = [
    "listener.name.plaintext.ssl.key.password",
    "listener.name.plaintext.scram-sha-256.sasl.jaas.config",
    "my.plugin.password",
    "ssl.keystore.pasword",  # misspelt
]


def secret_of(key):
    return f"hunter2-{key.replace('.', '-')}"


SECRETS = {key: secret_of(key) for key in [*PASSWORDS, *BESIDES]}
FORMS = {"zookeeper.auth": "digest broker:{}"}
"""What surrounds the secret, where anything has to."""


def leaks(*texts):
    return [s for s in ["hunter2", *SECRETS.values()] if any(s in text for text in texts)]


class FileBroker(BrokerProcess):
    """Told its settings by a file, as a broker that has secrets is."""

    def arguments(self):
        path = self.directory / "server.properties"
        path.write_text("".join(f"{k}={v}\n" for k, v in self.settings.items()))
        path.chmod(0o600)
        return [str(path)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    """It logs all that it ever logs."""
    secrets = {key: FORMS.get(key, "{}").format(secret) for key, secret in SECRETS.items()}
    settings = secrets | {"log.level": "DEBUG", "broker.id": 5}
    with FileBroker(tmp_path_factory.mktemp("broker"), settings) as broker:
        yield broker


@pytest.fixture(autouse=True)
def _keeps_them(broker):
    yield
    assert leaks("".join(broker.output)) == []


def test_the_log_and_the_process_list_tell_none(broker):
    for name in ("cmdline", "environ"):
        assert leaks(Path(f"/proc/{broker.pid}/{name}").read_bytes().decode(errors="replace")) == []
    assert any("my.plugin.password" in line for line in broker.output), "it is named"


@pytest.mark.parametrize("version", range(1, 5))
def test_describe_configs_tells_none(broker, version):
    with WireClient(broker.address) as client:
        asked = [
            {"resource_type": BROKER, "resource_name": name, "configuration_keys": keys}
            for name, keys in (("5", None), ("", None))
        ]
        answer = client.call(
            ApiKey.DESCRIBE_CONFIGS,
            version,
            resources=asked,
            include_synonyms=True,
            include_documentation=True,
        )
    assert leaks(repr(answer)) == []
    told = {entry.name: entry for entry in answer.results[0].configs}
    for key in PASSWORDS:
        assert told[key].value is None
        assert told[key].is_sensitive


@pytest.mark.parametrize("key", [*PASSWORDS, *BESIDES])
@pytest.mark.parametrize("api", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_no_answer_to_a_change_tells_what_was_to_be_set(broker, api, key):
    value = "hunter2-new"
    config = {"name": key, "config_operation": SET, "value": value}
    resource = {"resource_type": BROKER, "resource_name": "5", "configs": [config]}
    with WireClient(broker.address) as client:
        answer = client.call(api, 1, resources=[resource])
        assert leaks(repr(answer)) == []
        asked = [{"resource_type": BROKER, "resource_name": "5", "configuration_keys": None}]
        described = client.call(ApiKey.DESCRIBE_CONFIGS, 4, resources=asked, include_synonyms=True)
    assert leaks(repr(described)) == []


def test_an_error_about_a_password_does_not_repeat_it(tmp_path):
    path = tmp_path / "server.properties"
    path.write_text("\n".join(f"{k}={v}" for k, v in SECRETS.items()) + "\nnum.partitions=many\n")
    command = [sys.executable, "-m", "kserver", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "num.partitions" in done.stderr
    assert leaks(done.stdout, done.stderr) == []


def run(*words):
    return subprocess.run([K, *words], capture_output=True, text=True, check=False)


@pytest.mark.parametrize("form", [[], ["-o", "json"]])
def test_no_command_shows_one_of_the_broker(broker, form):
    server = ["--bootstrap-server", broker.address]
    done = run(
        *("configs", *server, "--describe", "--all", "--entity-type", "brokers"),
        *("--entity-name", "5", *form),
    )
    assert done.returncode == 0, done.stderr
    assert "ssl.key.password" in done.stdout
    assert leaks(done.stdout, done.stderr) == []
    if form == ["-o", "json"]:
        json.loads(done.stdout)


CLIENT_SECRETS = """
security.protocol=SASL_SSL
sasl.mechanism=PLAIN
sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
 username="alice" password="hunter2-client";
ssl.keystore.password=hunter2-store
ssl.key.password=hunter2-key
ssl.truststore.password=hunter2-trust
"""


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "--list", "--command-config"],
        ["configs", "--describe", "--entity-type", "topics", "--command-config"],
        ["console-consumer", "--topic", "x", "--timeout-ms", "1000", "--consumer.config"],
        ["console-producer", "--topic", "x", "--producer.config"],
    ],
    ids=lambda words: words[0],
)
def test_no_command_shows_one_of_its_own(broker, tmp_path, words):
    """Neither where it works nor where it cannot, which TLS and SASL cannot yet."""
    path = tmp_path / "client.properties"
    path.write_text(CLIENT_SECRETS)
    for text in (CLIENT_SECRETS, CLIENT_SECRETS.replace("SASL_SSL", "PLAINTEXT")):
        path.write_text(text)
        done = run(words[0], "--bootstrap-server", broker.address, *words[1:], str(path))
        assert leaks(done.stdout, done.stderr) == []
        assert "Traceback" not in done.stderr


def test_a_topics_refused_value_is_told_to_who_set_it_and_logged_for_nobody(broker):
    create_topic(broker.address, "logged")
    config = {"name": "retention.ms", "config_operation": SET, "value": "hunter2"}
    resource = {"resource_type": TOPIC, "resource_name": "logged", "configs": [config]}
    with WireClient(broker.address) as client:
        answer = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    assert answer.responses[0].error_code is ErrorCode.invalid_config


def test_what_a_broker_keeps_of_its_settings_is_not_in_its_directory(broker):
    data = broker.data
    for directory, _, names in os.walk(data):
        for name in names:
            try:
                text = Path(directory, name).read_bytes().decode(errors="replace")
            except FileNotFoundError:  # the broker replaces its checkpoints by renaming a .tmp file
                continue
            assert not any(secret in text for secret in SECRETS.values()), name
