"""C9: names, keys and values leave neither their directory nor their line, and command no terminal.

to a terminal   control characters, separators of lines and turns of direction are shown by
                number, wherever the text comes from
to a pipe       text is exact: programs read it
to a log        a line is ASCII, and one line
to CSV          cells are exact too, RFC 4180: a spreadsheet must be told that they are text
"""

import ast
import contextlib
import csv
import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kcli.command.output import visible
from kcli.rows.config_lines import quota_line
from kcli.rows.row_formats import Csv
from kcli.rows.shapes import RowField, RowShape
from kserver import znodes
from kserver.cluster_config.entity_names import quota_entity, quota_entity_name
from kserver.errors import KafkaError
from kserver.metadata import check_topic_name
from kserver.model import QuotaEntity
from kserver.wire.api_key import ApiKey
from tests.contract.api.calls import alter_quotas
from tests.fault.test_hostile import BAD_NAMES, LOG_LINE, directories
from tests.support.wire_client import WireClient, milliseconds

ROOT = Path(__file__).parents[2]
K = Path(sys.executable).with_name("k")
HOSTILE_TEXT = "\x1b[2J\x1b]0;owned\x07=1+1\u202egnp\x9b31m\r"


# Names


@given(st.text() | st.from_regex(r"[./\\~a-z\x00-]{1,12}", fullmatch=True))
def test_a_topics_name_is_a_directorys(name):
    with contextlib.suppress(KafkaError):
        check_topic_name(name)
        is_directory(name)


def is_directory(name):
    directory = f"{name}-2147483647"
    assert re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", name)
    assert os.path.normpath(f"/data/{directory}") == f"/data/{directory}"
    assert len(directory) <= 260


@given(st.text(min_size=1), st.none() | st.text(min_size=1))
def test_a_name_in_a_quota_is_one_name_of_a_znode(user, client_id):
    entity = QuotaEntity(user, client_id)
    kind, name = quota_entity_name(entity)
    path = znodes.config_path(kind, name)
    assert re.fullmatch(r"/config/users/[-A-Za-z0-9._%]+(/clients/[-A-Za-z0-9._%]+)?", path)
    assert quota_entity(kind, name) == entity


@pytest.mark.parametrize("name", BAD_NAMES)
def test_whatever_a_client_is_called_its_log_lines_are_lines(broker, name):
    before, lines = directories(broker), len(broker.output)
    with WireClient(broker.address, client_id=name) as client:
        client.call(18, 3, client_software_name=name or "x", client_software_version="1\n\x1b[31m")
        topics = [{"name": name, "num_partitions": 1, "replication_factor": 1}]
        client.call(ApiKey.CREATE_TOPICS, 5, topics=topics, timeout=milliseconds(9000))
        for kind in ("user", "client-id", "ip"):
            alter_quotas(client, ((kind, name),), producer_byte_rate=1e12)
        client.call(ApiKey.METADATA, 1, topics=[{"name": name}])
        for kind in ("user", "client-id"):
            alter_quotas(client, ((kind, name),), producer_byte_rate=None)
    assert {path for path in directories(broker) if "secure" not in path} <= before
    for line in broker.output[lines:]:
        assert LOG_LINE.fullmatch(line), line


# Terminals


@given(st.text())
def test_nothing_that_a_terminal_obeys_is_shown(text):
    shown = visible(text)
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", shown)
    if text.isascii() and text.isprintable():
        assert shown == text


PRINTERS = {
    "kcli/command/output.py",
    "kcli/main.py",  # the version
    "kcli/command/command.py",  # help
    "kcli/manual.py",  # names of its own files
    "kcli/command/command_runner.py",  # a question of its own
    "kcli/servers/server_processes.py",  # for the process that has forked it
    "kcli/shell_completion/completion.py",  # for a shell, which quotes what it is given
}


@pytest.mark.parametrize(
    "path", sorted((ROOT / "kcli").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT))
)
def test_what_is_printed_goes_by_what_makes_it_visible(path):
    if str(path.relative_to(ROOT)) in PRINTERS:
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            assert name not in ("print", "click.echo", "click.secho")
            assert not re.match(r"(sys\.)?std(out|err)(\.buffer)?\.write", name)


@pytest.fixture(scope="module")
def hostile_topic(broker):
    """Its records, a header and the quota of a client hold what a terminal would obey."""
    from tests.support.brokers import append, create_topic

    name = create_topic(broker.address, "hostile")
    text = HOSTILE_TEXT.encode()
    append(broker.address, name, [(1, text, text, ((HOSTILE_TEXT, text),))])
    entity = (("client-id", HOSTILE_TEXT),)
    with WireClient(broker.address) as client:
        alter_quotas(client, entity, producer_byte_rate=1e12)
        yield name
        alter_quotas(client, entity, producer_byte_rate=None)


def commands(address, topic):
    everything = ["--property=print.key=true", "--property=print.headers=true"]
    reading = ["--topic", topic, "--from-beginning", "--max-messages=1"]
    server = ["--bootstrap-server", address]
    return [
        ["console-consumer", *server, *reading],
        ["console-consumer", *server, *reading, *everything],
        ["configs", *server, "--describe", "--entity-type", "clients"],
        ["configs", *server, "--describe", "--entity-type", "clients", "-o", "csv"],
        ["topics", *server, "--describe", "--topic", HOSTILE_TEXT],
    ]


@pytest.mark.parametrize("number", range(5))
def test_on_a_terminal_no_command_shows_what_it_obeys(broker, hostile_topic, number):
    words = commands(broker.address, hostile_topic)[number]
    terminal, ours = pty.openpty()
    command = [K, *words]
    with subprocess.Popen(command, stdin=ours, stdout=ours, stderr=ours) as process:
        os.close(ours)
        shown = b""
        try:
            while data := os.read(terminal, 4096):
                shown += data
        except OSError:
            pass  # how a terminal ends
    os.close(terminal)
    is_known = HOSTILE_TEXT not in words
    assert process.returncode == (0 if is_known else 1), shown
    # What a terminal is sent of our own accord: the waiting line, taken away again.
    text = shown.decode().replace("\r\n", "\n").replace("\r\x1b[K", "")
    assert "=1+1" in text
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text), text


def test_through_a_pipe_a_value_is_exact(broker, hostile_topic):
    words = commands(broker.address, hostile_topic)[0]
    done = subprocess.run([K, *words], capture_output=True, check=True)
    assert done.stdout == HOSTILE_TEXT.encode() + b"\n"


@given(st.text(min_size=1))
def test_a_clients_name_is_shown_in_one_line(name):
    line = quota_line(QuotaEntity(client_id=name), {"producer_byte_rate": 1.0})
    assert line.isprintable()
    assert name in line or not name.isprintable()


# Spreadsheets


@given(st.lists(st.text(), min_size=2, max_size=2))
def test_cells_of_csv_are_exact_formulas_too(texts):
    fields = tuple(RowField(name, "string", "A text.") for name in "ab")
    table = Csv(RowShape("k.test", 1, "A row.", fields))
    for values in (texts, ["=1+1", "@SUM(A1)"], ["-1", "+1\t"]):
        row = table.row(dict(zip("ab", values, strict=True)))
        assert next(csv.reader(io.StringIO(row, newline=""))) == values
