"""Going back 64 steps and on from there, in steps of the same session."""

import tempfile
from functools import partial
from pathlib import Path

from engine_daemon.protocol.packing import pack_ints
from engine_daemon.protocol.values import Sampler
from engine_daemon.protocol.worker import Move
from engine_daemon.worker.engine import Engine
from tests.bench.engines import Stepping, load, timed
from tests.bench.table import Row, median
from tests.worker.checkpoints import save_tiny

BACK = 64
TURNS = 7
_AHEAD = 75
"""Steps made before each turn: not a multiple of those between snapshots, so that places differ."""


def rows(dense: Engine) -> list[Row]:
    """The demo model, whose cache is cropped, and a tiny hybrid of random weights, whose state is
    restored and replayed."""
    with tempfile.TemporaryDirectory() as folder:
        hybrid = load(save_tiny(Path(folder) / "hybrid", "qwen3_5"), plain=False, dtype="fp32")
        return [
            _row("full attention", dense, 1.0),
            _row("hybrid of 4 layers", hybrid, 8.0),
        ]


def _row(name: str, engine: Engine, goal: float) -> Row:
    """What it takes beyond a step until the distribution after the next token is there."""
    stepping = Stepping(engine)
    steps: list[float] = []
    backs: list[float] = []
    for turn in range(TURNS):
        steps += [timed(stepping.step) for _ in range(_AHEAD)]
        session = stepping.session
        ids = session.path[len(session.prompt) : -BACK]
        move = Move(
            session=session.id,
            branch=turn + 1,
            ids=pack_ints("I", ids),
            sampler=Sampler(),
            salt=0,
            look=True,
        )
        backs.append(timed(partial(_back, stepping, move)))
    step = median(steps)
    beyond = (median(backs) - step) / step
    title = f"{BACK} steps back and one on, {name}: beyond a step"
    return Row(title, f"{beyond:.2f} steps of {step:.1f} ms", f"≤ {goal:.0f}", beyond <= goal)


def _back(stepping: Stepping, move: Move) -> None:
    stepping.session.move(move)
    stepping.again()
    stepping.step()
