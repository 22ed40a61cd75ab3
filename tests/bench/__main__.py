"""`make bench`: figures, never a pass or a fail. Names choose: `python -m tests.bench decode`."""

import argparse
import os
import platform
from importlib import import_module

from engine_daemon.worker.pages import in_huge_pages, keep_freed_pages
from engine_daemon.worker.threads import sleep_when_idle
from tests.bench.table import Row, render

BENCHES = ("imports", "recordings", "decode", "screen", "late", "watched")


def machine() -> str:
    """What it ran on, in a line."""
    model = platform.processor() or platform.machine()
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        named = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    name = named[0] if named else model
    return f"{name}, {os.cpu_count()} cores, Python {platform.python_version()}"


def main() -> None:
    """Run what is asked for and print one table."""
    in_huge_pages()
    parser = argparse.ArgumentParser(prog="tests.bench")
    parser.add_argument("names", nargs="*", choices=[*BENCHES, []], help="default: all")
    names = parser.parse_args().names or BENCHES
    rows: list[Row] = []
    # Modules are compiled once, as where the project is installed, not in each process.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sleep_when_idle()
    keep_freed_pages()
    for name in names:
        rows += import_module(f"tests.bench.{name}").run()
    print(f"{machine()}\n\n{render(rows)}")


if __name__ == "__main__":
    main()
