"""Interactive shells on a terminal of their own, to test the effect of keys on the line.

    with Shell("zsh", directory, home, environment) as shell:
        shell.line_after("k topi\\t")                 "k topics "

A shell writes "ready" at its prompt, and its line after Ctrl-G, to a named pipe: nothing waits for
a fixed time.
"""

from __future__ import annotations

import os
import pty
import select
import signal
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

PATIENCE_S = 30
DUMP, CLEAR = "\x07", "\x15"

BASH = """
PS1='$ '
PROMPT_COMMAND='echo ready > {pipe}; PROMPT_COMMAND='
source <(k completion bash)
bind 'set bell-style none'
bind -x '"\\C-g": printf "%s\\n" "$READLINE_LINE" > {pipe}'
"""
ZSH = """
PS1='$ '
autoload -U compinit && compinit -u -D
source <(k completion zsh)
unsetopt beep
dump() {{ print -r -- "$BUFFER" > {pipe} }}
zle -N dump
bindkey '^G' dump
zle-line-init() {{ echo ready > {pipe}; zle -D zle-line-init }}
zle -N zle-line-init
"""
FISH = """
function fish_prompt; echo '$ '; end
function fish_greeting; end
set -g fish_autosuggestion_enabled 0
k completion fish | source
bind \\cg 'commandline > {pipe}'
function ready --on-event fish_prompt; echo ready > {pipe}; functions -e ready; end
"""


class Shell:
    """Works in `directory`; has its own files in `home`."""

    def __init__(
        self, name: str, directory: Path, home: Path, environment: Mapping[str, str]
    ) -> None:
        pipe = home / "pipe"
        os.mkfifo(pipe)
        # Open for reading and writing, so that neither side waits for the other.
        self._pipe = os.open(pipe, os.O_RDWR)
        words: Sequence[str]
        if name == "bash":
            (home / "rc").write_text(BASH.format(pipe=pipe))
            words = ["bash", "--noprofile", "--rcfile", str(home / "rc"), "-i"]
        elif name == "zsh":
            (home / ".zshrc").write_text(ZSH.format(pipe=pipe))
            words = ["zsh", "-d", "-i"]
        else:
            words = ["fish", "--no-config", "-i", "-C", FISH.format(pipe=pipe)]
        self._pid, self._terminal = pty.fork()
        if self._pid == 0:
            os.chdir(directory)
            os.execvpe(
                words[0],
                words,
                {**environment, "HOME": str(home), "ZDOTDIR": str(home), "TERM": "xterm"},
            )
        self.screen = b""
        """All output to the terminal."""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._said() == "ready"

    def line_after(self, keys: str) -> str:
        """Return the line after these keys were typed into an empty one."""
        os.write(self._terminal, (CLEAR + keys + DUMP).encode())
        return self._said()

    def __enter__(self) -> Shell:
        return self

    def __exit__(self, *_: object) -> None:
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
        self._reader.join()
        os.close(self._pipe)

    def _said(self) -> str:
        said = b""
        while not said.endswith(b"\n"):
            found, _, _ = select.select([self._pipe], [], [], PATIENCE_S)
            assert found, f"the shell says nothing:\n{self.screen.decode(errors='replace')}"
            said += os.read(self._pipe, 4096)
        return said.decode().removesuffix("\n")

    def _read(self) -> None:
        """Read the terminal's output, or the shell would block."""
        with open(self._terminal, "rb", buffering=0) as terminal:
            try:
                while shown := terminal.read(4096):
                    self.screen += shown
            except OSError:
                pass  # the end of a terminal's output
