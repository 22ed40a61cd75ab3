"""`make faults`: every row of the matrix, its tests, how they ended and what they measured.

The short forms; `LONG=1 make faults` (or `--long`) the long ones too. `--write FILE` puts the table
into a document. `--results FILE` keeps what was measured, so that rows may be run one by one.
"""

import argparse
import json
import os
import platform
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

from tests.faults.matrix import ROWS


@dataclass(slots=True)
class Outcome:
    """One test of a row."""

    name: str
    form: str
    ended: str = "not run"
    figures: list[str] = field(default_factory=list)


class Collector:
    """Notes what becomes of each marked test."""

    def __init__(self) -> None:
        self.tests: dict[str, tuple[list[str], Outcome]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """What is going to run."""
        for item in session.items:
            rows = [str(row) for mark in item.iter_markers("fault") for row in mark.args]
            form = "long" if item.get_closest_marker("soak") else "short"
            self.tests[item.nodeid] = (rows, Outcome(item.nodeid, form))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """How it went; the worst of set-up, call and tear-down counts."""
        _, outcome = self.tests[report.nodeid]
        if report.when == "call" or report.outcome != "passed":
            outcome.ended = report.outcome
        figures = [str(value) for name, value in report.user_properties if name == "figure"]
        outcome.figures = figures

    def add(self, path: Path) -> None:
        """What earlier runs left there, but for the tests of this one; then all of it is left."""
        known = json.loads(path.read_text("utf-8")) if path.exists() else {}
        for name, (rows, one) in known.items():
            self.tests.setdefault(name, (rows, Outcome(**one)))
        told = {name: (rows, asdict(one)) for name, (rows, one) in self.tests.items()}
        path.write_text(json.dumps(told), "utf-8")

    def of(self, row: str) -> list[Outcome]:
        """The tests of a row, one line for the variants of a test."""
        merged: dict[tuple[str, str], Outcome] = {}
        for rows, one in self.tests.values():
            if row not in rows:
                continue
            name = one.name.removeprefix("tests/").partition("[")[0]
            known = merged.setdefault((name, one.form), Outcome(name, one.form, one.ended))
            known.figures += [figure for figure in one.figures if figure not in known.figures]
            if one.ended != "passed":
                known.ended = one.ended
        return sorted(merged.values(), key=lambda one: (one.form == "long", one.name))


def table(collector: Collector) -> str:
    """The matrix as a Markdown table."""
    lines = ["| row | what happens | what must hold | test | form | outcome | figure |"]
    lines.append("|---" * 7 + "|")
    for name, row in ROWS.items():
        tests = collector.of(name) or [Outcome("**no test**", "", "missing")]
        for number, one in enumerate(tests):
            head = (name, row.done, row.limit) if number == 0 else ("", "", "")
            cells = [*head, one.name, one.form, one.ended, "; ".join(one.figures)]
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def main() -> int:
    """Run them, print the table; 1 when one failed or is missing."""
    parser = argparse.ArgumentParser(prog="tests.faults")
    parser.add_argument("--long", action="store_true", default=bool(os.environ.get("LONG")))
    parser.add_argument("--write", type=Path)
    parser.add_argument("--results", type=Path)
    parser.add_argument("-k", default="", help="as pytest's")
    parser.add_argument("places", nargs="*", default=["tests"], help="files or folders of tests")
    chosen = parser.parse_args()
    collector = Collector()
    expression = "fault" if chosen.long else "fault and not soak"
    words = ["-q", "-p", "no:cacheprovider", "-m", expression, *chosen.places]
    code = pytest.main([*words, *(["-k", chosen.k] if chosen.k else [])], plugins=[collector])
    if chosen.results is not None:
        collector.add(chosen.results)
    forms = "short and long forms" if chosen.long else "short forms"
    where = f"{os.cpu_count()} cores, Python {platform.python_version()}, {forms}"
    made = f"{where}\n\n{table(collector)}\n"
    print(f"\n{made}")
    if chosen.write is not None:
        chosen.write.write_text(f"# Faults and load: rows, tests, figures\n\n{made}", "utf-8")
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
