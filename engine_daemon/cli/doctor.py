"""`doctor`: everything that may be wrong, a line each, and what to do about it."""

import dataclasses
import json
from collections.abc import Callable, Iterator
from typing import Final

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import tell
from engine_daemon.doctor import daemons, devices, folders, limits, terminal, versions
from engine_daemon.doctor.row import Row, fail
from engine_daemon.errors import Exit, InspectError

LOOKS: Final[tuple[Callable[[], Iterator[Row]], ...]] = (
    versions.look,
    folders.look,
    daemons.look,
    terminal.look,
    limits.look,
    devices.look,
)
"""In the order in which one thing makes sense of the next; devices last, they take seconds."""
_AREA: Final = 18


def main(given: Given) -> int:
    """Look at everything; exit 4 when something fails."""
    words = []
    for row in rows():
        words.append(row.word)
        if given.json:
            tell(json.dumps(dataclasses.asdict(row)))
        else:
            _show(row)
    if not given.json:
        count = {word: words.count(word) for word in ("ok", "warn", "fail")}
        tell(", ".join(f"{number} {word}" for word, number in count.items()))
    return Exit.DAEMON if "fail" in words else Exit.DONE


def rows() -> Iterator[Row]:
    """Every row as soon as it is known; what cannot be looked at fails."""
    for look in LOOKS:
        try:
            yield from look()
        except (OSError, InspectError) as error:
            area = look.__module__.rpartition(".")[2]
            yield fail(area, str(error), "llm-inspect doctor --debug shows where")


def _show(row: Row) -> None:
    """One line, a second one where there is something to do."""
    tell(f"{row.word:<4}  {row.area:<{_AREA}}{row.says}")
    if row.do:
        tell(f"      {'':<{_AREA}}→ {row.do}")
