"""Makes `.venv` and installs the project into it: `setup_env.py EXTRA…`, called by the Makefile.

Standard library only, and readable by old interpreters, so that they can be told they are too old.
Knows nothing of models and daemons.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
VENV_PYTHON = VENV / "bin" / "python"
STAMP = VENV / "setup.json"
LOG = VENV / "setup.log"
OLDEST_PYTHON = (3, 11)
OLDEST_TORCH = (2, 8)
TICK_S = 0.25
_STARTED = time.monotonic()
_doing = ""

_FIND_TORCH = """
import json, platform, site, sys
try:
    import torch
except Exception:
    sys.exit(1)
cuda = torch.cuda.is_available()
where = "CUDA " + str(torch.version.cuda) + ", " + torch.cuda.get_device_name(0) if cuda else "CPU"
found = {"version": torch.__version__, "device": where, "python": platform.python_version()}
print(json.dumps({**found, "sites": site.getsitepackages()}))
"""


class SetupFailed(Exception):
    """A stage that did not work: what happened, and what to do."""


def say(text: str) -> None:
    """One line of what was done, with the seconds since the start."""
    sys.stdout.write(f"setup {time.monotonic() - _STARTED:6.1f} s  {text}\n")
    sys.stdout.flush()


def wanted_hash() -> str:
    """Changes when something that is installed changes."""
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    parts = [project["project"], project["build-system"]]
    digest = hashlib.sha256(json.dumps(parts, sort_keys=True).encode())
    digest.update((ROOT / "constraints.txt").read_bytes())
    return digest.hexdigest()


def read_stamp() -> dict:
    """What the last complete set-up left; empty when there was none."""
    try:
        return json.loads(STAMP.read_text("utf-8"))
    except (OSError, ValueError):
        return {}


def find_torch(python: Path | str) -> dict | None:
    """Version, device and site directories of the torch this interpreter imports, if any."""
    found = subprocess.run(
        [str(python), "-P", "-c", _FIND_TORCH], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    return json.loads(found.stdout.decode().splitlines()[-1]) if found.returncode == 0 else None


def torch_text(torch: dict) -> str:
    """Its version and what it runs on."""
    return f"torch {torch['version'].split('+')[0]} ({torch['device']})"


def is_new_enough(version: str) -> bool:
    """Whether a torch of this version will do."""
    numbers = version.split("+")[0].split(".")[:2]
    return all(n.isdigit() for n in numbers) and tuple(map(int, numbers)) >= OLDEST_TORCH


def usable_venv() -> bool:
    """Whether `.venv` is whole: its interpreter starts and has pip."""
    if not VENV_PYTHON.exists():
        return False
    check = [str(VENV_PYTHON), "-c", "import sys, pip; sys.exit(sys.version_info < (3, 11))"]
    return subprocess.run(check, stderr=subprocess.DEVNULL).returncode == 0


def make_venv() -> None:
    """A new `.venv`, one that sees the torch of this interpreter where that is new enough."""
    torch = find_torch(sys.executable)
    keep = torch is not None and is_new_enough(torch["version"])
    if torch is None:
        say("no torch in this interpreter; the tested one will be installed")
    elif not keep:
        oldest = ".".join(map(str, OLDEST_TORCH))
        say(f"{torch_text(torch)} is older than {oldest}; the tested one will be installed")
    if VENV.exists():
        shutil.rmtree(VENV)
    flags = ["--system-site-packages"] if keep else []
    made = subprocess.run([sys.executable, "-m", "venv", *flags, str(VENV)])
    if made.returncode != 0:
        raise SetupFailed("could not make .venv; on Debian and Ubuntu: apt install python3-venv")
    if keep:
        show_sites(torch["sites"])
        say(f"keeping {torch_text(torch)} of this interpreter")
    say("made .venv")


def show_sites(sites: list[str]) -> None:
    """Let `.venv` see these folders too: of an interpreter that is itself in a virtual environment
    `--system-site-packages` shows only what lies below that environment."""
    if sys.prefix != sys.base_prefix:
        for folder in VENV.glob("lib/python*/site-packages"):
            (folder / "outer.pth").write_text("\n".join(sites) + "\n", "utf-8")


def constraints_for(torch: dict | None) -> Path:
    """The tested versions; with a torch that is kept, all but torch."""
    tested = ROOT / "constraints.txt"
    if torch is None:
        return tested
    lines = [x for x in tested.read_text("utf-8").splitlines() if not x.startswith("torch==")]
    kept = VENV / "constraints.txt"
    kept.write_text("\n".join([*lines, f"torch=={torch['version']}", ""]), "utf-8")
    return kept


def install(extras: list[str], constraints: Path) -> None:
    """`pip install -e .[extras]`; its output goes to a log, what it is doing to the terminal."""
    command = [str(VENV_PYTHON), "-m", "pip", "install", "--disable-pip-version-check"]
    command += ["--constraint", str(constraints), "--editable", f".[{','.join(extras)}]"]
    with LOG.open("w", encoding="utf-8") as log:
        pip = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert pip.stdout is not None
        over = threading.Event()
        ticking = threading.Thread(target=go_on_ticking, args=(over,), daemon=True)
        ticking.start()
        for line in pip.stdout:
            log.write(line)
            show_progress(line.strip())
        over.set()
        ticking.join()
    clear_progress()
    if pip.wait() != 0:
        tail = "\n".join(LOG.read_text("utf-8").splitlines()[-12:])
        raise SetupFailed(f"pip failed (all of it is in {LOG}):\n{tail}")


def show_progress(line: str) -> None:
    """What pip does right now: redrawn on a terminal, a line for what takes long elsewhere."""
    global _doing
    if not line.startswith(("Collecting", "Downloading", "Installing", "Building")):
        return
    if sys.stdout.isatty():
        _doing = line
        redraw()
    elif " MB)" in line or line.startswith("Installing collected"):
        say(line[:76])


def redraw() -> None:
    """The line of what is being done, with the time as it is now."""
    room = max(shutil.get_terminal_size().columns - 18, 0)
    elapsed = time.monotonic() - _STARTED
    sys.stdout.write(f"\r\x1b[Ksetup {elapsed:6.1f} s  {_doing[:room]}")
    sys.stdout.flush()


def go_on_ticking(over: threading.Event) -> None:
    """On a terminal, let the time move also while pip says nothing."""
    while sys.stdout.isatty() and not over.wait(TICK_S):
        if _doing:
            redraw()


def clear_progress() -> None:
    """Take the redrawn line away."""
    if sys.stdout.isatty():
        sys.stdout.write("\r\x1b[K")


def set_up(extras: list[str]) -> None:
    """Bring `.venv` to what is wanted; nothing at all when it is there already."""
    wanted, stamp = wanted_hash(), read_stamp()
    if stamp.get("hash") == wanted and set(extras) <= set(stamp["extras"]) and usable_venv():
        compile_sources()
        say(f"ready: {stamp['found']}")
        return
    if not usable_venv():
        say(f"Python {'.'.join(map(str, sys.version_info[:3]))} ({sys.executable})")
        make_venv()
        stamp = {}
    inherited = find_torch(VENV_PYTHON) if "system-site-packages = true" in venv_config() else None
    all_extras = sorted({*extras, *stamp.get("extras", [])})
    install(all_extras, constraints_for(inherited))
    say(f"installed llm-inspect with: {', '.join(all_extras)}")
    torch = find_torch(VENV_PYTHON)
    if torch is None:
        raise SetupFailed(f"torch was installed but cannot be imported; see {LOG}")
    found = f"Python {torch['python']}, {torch_text(torch)}"
    beside = STAMP.with_name("setup.json.new")
    beside.write_text(json.dumps({"hash": wanted, "extras": all_extras, "found": found}), "utf-8")
    os.replace(beside, STAMP)
    compile_sources()
    say(f"ready: {found}")


def compile_sources() -> None:
    """Bytecode beside the sources, as pip makes it for what it copies: an editable install has
    none until it first runs, and never gets any where PYTHONDONTWRITEBYTECODE is set."""
    packages = [str(ROOT / name) for name in ("engine_daemon", "tui")]
    subprocess.run([str(VENV_PYTHON), "-m", "compileall", "-q", *packages])


def venv_config() -> str:
    """The text of `.venv/pyvenv.cfg`."""
    return (VENV / "pyvenv.cfg").read_text("utf-8")


def main() -> int:
    if sys.version_info < OLDEST_PYTHON:
        oldest, have = (".".join(map(str, v[:2])) for v in (OLDEST_PYTHON, sys.version_info))
        sys.stderr.write(
            f"setup: Python {oldest} or newer is needed, {sys.executable} is {have}\n"
            "Choose one with: make PYTHON=/path/to/python3.11\n"
        )
        return 2
    try:
        set_up(sys.argv[1:] or ["engine"])
    except SetupFailed as failure:
        clear_progress()
        sys.stderr.write(f"setup: {failure}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
