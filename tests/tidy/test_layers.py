"""What code may not do: import to the right, hide a clock in a pure module, outgrow its file."""

from __future__ import annotations

import ast
import graphlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAP = (ROOT / "kserver/__init__.py").read_text()
LAYERS = re.search(r"^    (model .*?)\n\n", MAP, re.M | re.S)[1].split()
IMPURE = {"asyncio", "kazoo", "logging", "os", "random", "socket", "threading", "time"}
WORLDLY = {"os", "random", "socket", "subprocess", "threading", "time", "uuid.uuid4"}
"""Only world/ touches these, but for the shells that are named here."""
ALLOWED = {
    "kserver/network/connection.py": {"os", "socket"},  # sendfile and recv_into are its whole point
    "kserver/network/listener.py": {"socket"},
    "kserver/peer.py": {"socket"},  # buffer sizes
    "kserver/broker/process.py": {"os", "random"},  # hands the real world in
    "kserver/zookeeper_server/process.py": {"os", "random"},
}
CLIENT_MAY_SEE = {"model", "errors", "config", "wire", "peer"}
CLIENT_MAY_ALSO = {"__version__"}
MAX_LINES, MAX_COLUMNS = 600, 100

SERVER = sorted(p for p in (ROOT / "kserver").rglob("*.py"))
CLIENT = sorted(p for p in (ROOT / "kcli/client").rglob("*.py"))
COMMANDS = sorted(p for p in (ROOT / "kcli").rglob("*.py") if "client" not in p.parts)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def runtime_nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes but those under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            continue
        yield node
        yield from runtime_nodes(node)


def imports(tree: ast.AST, *, runtime: bool = False) -> Iterator[str]:
    for node in runtime_nodes(tree) if runtime else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{a.name}" for a in node.names)


def worldly(tree: ast.AST) -> set[str]:
    """The modules of chance, time and machine that are imported; `Random`, an object that is handed
    in, is not chance by itself."""
    found = set(imports(tree, runtime=True)) & WORLDLY
    whole = any(isinstance(n, ast.Import) and n.names[0].name == "random" for n in ast.walk(tree))
    drawn = {
        node.attr
        for node in ast.walk(tree)
        if whole and isinstance(node, ast.Attribute) and ast.unparse(node.value) == "random"
    }
    taken = {i for i in imports(tree) if i.startswith("random.")}
    if drawn <= {"Random"} and taken <= {"random.Random"}:
        found.discard("random")
    return found


def layer(path: Path) -> str:
    return path.relative_to(ROOT / "kserver").parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", SERVER + CLIENT + COMMANDS, ids=name)
def test_every_module_opens_with_what_lives_in_it_and_stays_readable(path: Path) -> None:
    text = path.read_text()
    assert ast.get_docstring(ast.parse(text)), "no docstring"
    assert len(text.splitlines()) <= MAX_LINES
    assert max(map(len, text.splitlines()), default=0) <= MAX_COLUMNS


@pytest.mark.parametrize(
    "path", [p for p in SERVER if layer(p) not in {"__init__", "__main__"}], ids=name
)
def test_the_server_imports_from_the_left_only(path: Path) -> None:
    here = layer(path)
    for imported in imports(ast.parse(path.read_text())):
        assert not imported.startswith("kcli"), "the server never imports the command"
        parts = imported.split(".")
        if parts[0] == "kserver" and len(parts) > 1 and parts[1] in LAYERS:
            assert LAYERS.index(parts[1]) <= LAYERS.index(here), f"{here} may not import {imported}"


@pytest.mark.parametrize("path", SERVER + CLIENT, ids=name)
def test_a_pure_module_has_no_clock_no_chance_no_wait(path: Path) -> None:
    tree = ast.parse(path.read_text())
    if "Pure:" not in (ast.get_docstring(tree) or ""):
        return
    clean = IMPURE if "random" in worldly(tree) else IMPURE - {"random"}
    assert not {i.split(".")[0] for i in imports(tree, runtime=True)} & clean
    assert not any(isinstance(n, ast.AsyncFunctionDef | ast.Await) for n in ast.walk(tree))


@pytest.mark.parametrize("path", [p for p in SERVER if layer(p) != "world"], ids=name)
def test_what_is_not_deterministic_comes_from_the_world(path: Path) -> None:
    assert worldly(ast.parse(path.read_text())) <= ALLOWED.get(name(path), set())


@pytest.mark.parametrize("path", CLIENT, ids=name)
def test_the_client_library_sees_only_what_both_ends_share(path: Path) -> None:
    for imported in imports(ast.parse(path.read_text())):
        parts = imported.split(".")
        if parts[0] == "kserver" and len(parts) > 1:
            assert parts[1] in CLIENT_MAY_SEE | CLIENT_MAY_ALSO, imported
        if parts[0] == "kcli" and len(parts) > 1:
            assert parts[1] in {"client"}, imported


def module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_no_circles() -> None:
    """An import within a function counts too; a module's own packages, which Python imports before
    it, do not."""
    sources = {module(p): p for p in [*SERVER, *CLIENT, *COMMANDS]}
    graph = {
        name: {
            i
            for i in imports(ast.parse(path.read_text()), runtime=True)
            if i in sources and not f"{name}.".startswith(f"{i}.")
        }
        for name, path in sources.items()
    }
    graphlib.TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("path", sorted((ROOT / "kserver/api").glob("*.py")), ids=name)
def test_an_api_opens_with_its_key_and_versions(path: Path) -> None:
    text = path.read_text()
    said = re.match(r'"""(\w+) \(key (\d+)\): v(\d+)(?:-v(\d+))?\.', text)
    declared = re.search(r"^KEY, VERSIONS = (\d+), range\((\d+)(?:, (\d+))?\)$", text, re.M)
    assert bool(said) == bool(declared)
    if said and declared:
        key, start, stop = declared.groups()
        low, high = (0, int(start) - 1) if stop is None else (int(start), int(stop) - 1)
        assert (int(said[2]), int(said[3]), int(said[4] or said[3])) == (int(key), low, high)
        assert path.stem == re.sub(r"(?<!^)(?=[A-Z])", "_", said[1]).lower()


def test_the_map_names_what_is_there() -> None:
    for word in re.findall(r"\b(\w+(?:/\w+)*\.py)\b", MAP):
        assert (ROOT / "kserver" / word).exists() or (ROOT / word).exists(), word
    for room in LAYERS:
        there = (ROOT / "kserver" / room).is_dir() or (ROOT / f"kserver/{room}.py").exists()
        assert there or room in {"metrics", "coordinator", "group", "security"}, room
