"""A server in the background is believed by what it says itself, or is seen to do."""

import subprocess
import sys

import pytest

SERVES = """
import os, sys
from kcli.servers import background

read, write = os.pipe()

def serve(ready):
    ready()
    os.read(read, 1)
    os._exit(0)

print(background.start(sys.argv[1], serve, "k server"))
os.write(write, b"x")
"""
IS_SEEN = """
import os, sys
from kcli.servers import background

os.mkfifo(sys.argv[2])
looked = []

def serve(ready):
    os.execvp("sh", ["sh", "-c", 'echo started; read line < "$0"', sys.argv[2]])

def is_up():
    looked.append(open(sys.argv[1]).read())
    return "started" in looked[-1]

print(background.start(sys.argv[1], serve, "k server", is_up))
open(sys.argv[2], "w").close()
"""
ENDS = """
import os, sys
from kcli.servers import background

def serve(ready):
    print("a line")
    print("k server: the reason", flush=True)
    os._exit(1)

print(background.start(sys.argv[1], serve, "k server"))
"""


@pytest.mark.parametrize(
    ("script", "said"),
    [
        (SERVES, ("0\n", "")),
        (IS_SEEN, ("0\n", "")),
        (ENDS, ("1\n", "k server: the reason\n")),
    ],
)
def test_a_start_ends_once_the_server_serves_or_with_its_reason(tmp_path, script, said):
    console = tmp_path / "logs" / "server.out"
    console.parent.mkdir()
    console.write_text("the server before it has started\n")
    done = subprocess.run(
        [sys.executable, "-c", script, str(console), str(tmp_path / "fifo")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == said
    assert "before" not in console.read_text()
