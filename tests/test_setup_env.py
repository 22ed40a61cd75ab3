"""The Makefile and the script that makes the environment."""

import importlib.util
import io
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
SCRIPT = ROOT / "scripts" / "setup_env.py"


@pytest.fixture(scope="module")
def setup_env() -> ModuleType:
    """The script as a module."""
    spec = importlib.util.spec_from_file_location("setup_env", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("version", "enough"),
    [
        ("2.13.0", True),
        ("2.8.0+cu128", True),
        ("2.7.1", False),
        ("1.13", False),
        ("nightly", False),
    ],
)
def test_which_torch_is_kept(setup_env: ModuleType, version: str, enough: bool) -> None:
    assert setup_env.is_new_enough(version) is enough


def test_a_kept_torch_is_not_replaced_by_the_tested_one(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(setup_env, "VENV", tmp_path)
    assert setup_env.constraints_for(None) == ROOT / "constraints.txt"
    kept = setup_env.constraints_for({"version": "2.9.1+cu128"}).read_text("utf-8").splitlines()
    tested = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    assert [x for x in kept if x.startswith("torch==")] == ["torch==2.9.1+cu128"]
    assert set(tested) - set(kept) == {"torch==2.13.0"}


def test_the_tested_versions_are_exact_and_name_no_build() -> None:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    assert pins["textual"] == "8.2.8"
    assert pins["torch"] == "2.13.0"
    assert not any("+" in version for version in pins.values())


def test_nothing_to_do_is_said_at_once(setup_env: ModuleType, tmp_path: Path) -> None:
    assert setup_env.wanted_hash() == setup_env.wanted_hash()
    assert setup_env.read_stamp() is not None


def test_the_time_moves_while_pip_says_nothing(
    setup_env: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shown(io.StringIO):
        def isatty(self) -> bool:
            return True

    class Ticks:
        left = 3

        def wait(self, _seconds: float) -> bool:
            self.left -= 1
            return self.left < 0

    shown = Shown()
    monkeypatch.setattr(sys, "stdout", shown)
    clock = iter(range(100))
    monkeypatch.setattr(setup_env, "_STARTED", 0.0)
    monkeypatch.setattr(setup_env.time, "monotonic", lambda: float(next(clock)))
    setup_env.show_progress("Installing collected packages: torch")
    setup_env.go_on_ticking(Ticks())
    drawn = shown.getvalue().split("\r\x1b[K")[1:]
    assert len(drawn) == 4
    assert len(set(drawn)) == 4
    assert all("Installing collected" in line for line in drawn)


@pytest.mark.parametrize("prompt", ['it\'s "quoted"', "$HOME and $(x)", "run", "--version", "a\tb"])
def test_make_demo_hands_the_prompt_over_as_it_is(tmp_path: Path, prompt: str) -> None:
    command = tmp_path / "llm-inspect"
    command.write_text('#!/bin/sh\nprintf "%s|" "$@"\n', "utf-8")
    command.chmod(0o755)
    made = subprocess.run(
        ["make", "-s", "demo", f"BIN={tmp_path}", "SETUP=true", f"PROMPT={prompt}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": os.environ["PATH"]},
    )
    assert made.stdout == f"--|{prompt}|"


def test_the_script_can_be_read_by_old_interpreters() -> None:
    """Only so can it say that they are too old."""
    compile(SCRIPT.read_text("utf-8"), str(SCRIPT), "exec")
    source = SCRIPT.read_text("utf-8")
    assert "match " not in source
    assert ":=" not in source
    too_old = source.index("sys.version_info < OLDEST_PYTHON")
    assert too_old < source.index("set_up(sys.argv")
    assert sys.version_info >= (3, 11)


def test_the_sources_have_bytecode_whatever_the_environment_says(
    setup_env: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("engine_daemon", "tui"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "one.py").write_text("A = 1\n", "utf-8")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setattr(setup_env, "ROOT", tmp_path)
    monkeypatch.setattr(setup_env, "VENV_PYTHON", sys.executable)
    setup_env.compile_sources()
    for name in ("engine_daemon", "tui"):
        cached = importlib.util.cache_from_source(str(tmp_path / name / "one.py"))
        assert Path(cached).is_file()
