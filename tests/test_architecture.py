"""The rules of the layout: who may import what, sizes, registries, and words that never appear."""

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from engine_daemon.export.registry import EXPORTERS
from engine_daemon.worker.backends import BACKENDS
from tui.panes import PANES

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine_daemon", "tui")
MAX_LINES = 400
LONGER: dict[str, str] = {}
"""Files beyond MAX_LINES, each with the reason."""

HEAVY = ("torch", "transformers", "numpy")
SCREEN = ("textual", "rich")
NOT_LOADED = {
    "tui.app": HEAVY,
    "tui.replay": (*HEAVY, "tokenizers", "engine_daemon.hub", "engine_daemon.worker"),
    "tui.cli": (*HEAVY, *SCREEN, "zmq", "msgspec", "argparse", "asyncio", "engine_daemon"),
    "tui.dispatch": (*HEAVY, *SCREEN, "zmq", "msgspec", "argparse", "asyncio"),
    "engine_daemon": (*HEAVY, *SCREEN, "zmq", "msgspec"),
    "engine_daemon.cli.run": (*HEAVY, *SCREEN, "tokenizers"),
    "engine_daemon.client": (*HEAVY, *SCREEN),
    "engine_daemon.export.jsonl": (*HEAVY, *SCREEN, "zmq"),
    "engine_daemon.export.html_page": (*HEAVY, *SCREEN, "zmq"),
    "engine_daemon.export.registry": (*HEAVY, *SCREEN, "zmq"),
    "engine_daemon.hub.hub": (*HEAVY, *SCREEN, "tokenizers"),
    "engine_daemon.protocol.codec": (*HEAVY, *SCREEN, "zmq"),
    "engine_daemon.recording.reader": (*HEAVY, *SCREEN, "zmq"),
    "engine_daemon.tokens.service": (*HEAVY, *SCREEN, "tokenizers", "jinja2"),
    "engine_daemon.worker.decode": HEAVY,
    "engine_daemon.worker.loop": HEAVY,
}
"""Module → what a fresh interpreter has not loaded after importing it."""

FORBIDDEN = {
    "pickle": r"\bpickle\b",
    "marshal": r"\bmarshal\b",
    "eval": r"(?<![.\w])eval\(",
    "exec": r"(?<![.\w])exec\(",
    "pyobj": r"(recv|send)_pyobj",
    "torch.load": r"torch\.load\(",
    "yaml": r"yaml\.(load|unsafe_load)\(",
    "os.system": r"os\.system\(",
    "shell": r"shell=True",
    "remote code": r"trust_remote_code\s*=\s*True",
}
COLOUR = re.compile(r"#[0-9a-fA-F]{3,8}\b|\brgba?\(|\bansi_\w+")


def sources(*folders: str) -> Iterator[Path]:
    for folder in folders:
        yield from sorted((ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


@cache
def code_of(path: Path) -> str:
    """The source without its comments and texts: only what is executed."""
    tree = ast.parse(path.read_text("utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str | bytes):
            node.value = ""
    return ast.unparse(tree)


def test_import_contracts() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    ran = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout[-3000:]


@pytest.mark.parametrize("module", NOT_LOADED)
def test_what_an_import_does_not_load(module: str) -> None:
    script = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd="/", capture_output=True, text=True, check=True
    )
    assert set(NOT_LOADED[module]) & set(json.loads(ran.stdout)) == set()


def test_no_file_is_too_long() -> None:
    files = sources(*PACKAGES, "tests", "scripts")
    lines = {relative(path): len(path.read_text("utf-8").splitlines()) for path in files}
    assert {p: n for p, n in lines.items() if n > MAX_LINES and p not in LONGER} == {}


@pytest.mark.parametrize("path", sources(*PACKAGES), ids=relative)
def test_every_module_says_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text("utf-8")))


@pytest.mark.parametrize("word", FORBIDDEN)
@pytest.mark.fault("S7")
@pytest.mark.xdist_group("sources")  # read once
def test_nothing_that_could_run_foreign_code(word: str) -> None:
    found = [relative(p) for p in sources(*PACKAGES) if re.search(FORBIDDEN[word], code_of(p))]
    assert found == []


def test_panes_and_their_registry() -> None:
    files = {p.stem for p in (ROOT / "tui/panes").glob("*.py")} - {"__init__", "base"}
    assert {pane.__module__.rpartition(".")[2] for pane in PANES.values()} == files


def test_exporters_and_their_registry() -> None:
    files = {p.stem for p in (ROOT / "engine_daemon/export").glob("*.py")}
    registered = {place.rpartition(".")[2] for place in EXPORTERS.values()}
    helpers = {"__init__", "registry", "objects", "text", "chart", "page_text", "page_notes"}
    assert registered == files - helpers


def test_backends_and_their_registry() -> None:
    files = {p.stem for p in (ROOT / "engine_daemon/worker/backends").glob("*.py")}
    registered = {place.backend.partition(":")[0].rpartition(".")[2] for place in BACKENDS.values()}
    assert registered == files - {"__init__", "base"}


def test_colours_come_from_themes() -> None:
    looked_at = [*(ROOT / "tui").rglob("*.tcss"), *sources("tui/panes", "tui/widgets")]
    found = [relative(p) for p in looked_at if COLOUR.search(p.read_text("utf-8"))]
    assert found == []


def test_no_machine_is_in_the_repository() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    texts = [ROOT / name for name in listed.stdout.split("\0") if name]
    found = [
        relative(path)
        for path in texts
        if path.suffix in (".py", ".md", ".toml", ".txt", "")
        and path.is_file()
        and re.search(r"/(?:work|home|Users)/", path.read_text("utf-8", "replace"))
    ]
    assert found == []


def test_the_tree_in_the_readme_is_the_tree_on_disk() -> None:
    """Folders named there exist, and every folder of the packages is named."""
    tree = re.search(r"```\n(engine_daemon/.*?)```", (ROOT / "README.md").read_text("utf-8"), re.S)
    assert tree is not None
    named, parent = set(), ""
    for line in tree[1].splitlines():
        found = re.match(r"( *)([\w.]+/)", line)
        if found:
            parent = parent if found[1] else found[2]
            named.add(f"{parent if found[1] else ''}{found[2]}".rstrip("/"))
    missing = {name for name in named if not (ROOT / name).is_dir()}
    on_disk = {
        relative(p.parent) for p in sources(*PACKAGES) if len(p.relative_to(ROOT).parts) <= 3
    }
    assert (missing, on_disk - named) == (set(), set())
