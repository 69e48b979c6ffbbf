"""A server in the background is believed by what it says itself."""

import subprocess
import sys

SCRIPT = """
import os, sys
from kcli import background

read, write = os.pipe()
said = []

def serve():
    os.read(read, 1)
    os._exit(0)

def is_up(text):
    said.append(text)
    os.write(write, b"x")
    return True

status = background.start(sys.argv[1], serve, "k server", is_up)
print(status, said)
"""


def test_what_an_earlier_server_said_is_not_its_word(tmp_path):
    console = tmp_path / "logs" / "server.out"
    console.parent.mkdir()
    console.write_text("the server before it has started\n")
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(console)], capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("0 ['']\n", "")
