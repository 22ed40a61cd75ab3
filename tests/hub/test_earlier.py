"""A distribution that is made again and has another token in front says so, with a real model.

The model is flat: all its logits are one bf16 unit apart, so that bf16 and fp32 put others first.
"""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import torch
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from engine_daemon.export.jsonl import export, to_bytes
from engine_daemon.protocol import commands as cmd
from engine_daemon.protocol.codec import unpack_event
from engine_daemon.protocol.events import Predicted
from engine_daemon.recording.reader import Recording
from tests.daemons import Daemon, Watch, attached, running_daemon, watching
from tests.hub.test_branches import engine_is_ready, run_to, send, stands
from tests.worker.checkpoints import VOCABULARY, save_tiny

pytestmark = pytest.mark.engine


def save_flat(folder: Path) -> Path:
    """A tiny Llama of fp32 weights whose output rows are nearly the same row."""
    file = save_tiny(folder) / "model.safetensors"
    weights = load_file(file)
    rows = weights["lm_head.weight"]
    noise = torch.randn(rows.shape, generator=torch.Generator().manual_seed(3))
    weights["lm_head.weight"] = rows[:1].expand(VOCABULARY, -1) + 5e-4 * noise
    save_file(weights, file, metadata={"format": "pt"})
    return folder


@asynccontextmanager
async def again(daemon: Daemon, session: str, dtype: str) -> AsyncIterator[Watch]:
    """The session, after a restart that computes in `dtype`."""
    daemon.stop()
    daemon.options = replace(daemon.options, engine=replace(daemon.options.engine, dtype=dtype))
    daemon.start()
    async with attached(daemon.paths, session) as watch:
        await engine_is_ready(watch)
        await watch.until(lambda columns: columns.place.step > 0)
        yield watch


def predictions(watch: Watch, step: int) -> list[Predicted]:
    """Of a step on whatever branch, in the order they were made."""
    events = [unpack_event(packed) for _, packed in watch.events]
    return [e for e in events if isinstance(e, Predicted) and e.step == step]


def first(predicted: Predicted) -> int:
    return predicted.candidates.rows()[0].id


def check_diverged(before: Predicted, made: Predicted) -> None:
    assert first(made) != first(before)
    assert made.restored is not None
    assert made.restored.diverged is not None
    assert made.restored.diverged.id == first(before)
    assert made.restored.diverged.margin == before.margin


async def test_another_token_in_front_is_told_at_the_head_and_on_a_branch(tmp_path: Path) -> None:
    model = str(save_flat(tmp_path / "flat"))
    with running_daemon(model, "hf") as daemon:
        async with watching(daemon.paths, b"w3 w7", run_to=4) as watch:
            await watch.standing(4)
            await send(watch, cmd.Force(id=9, step=2))
            await stands(watch, 1, 3)
            await run_to(watch, 5)
            made_again = [one for step in range(6) for one in predictions(watch, step)]
            back = [one.restored for one in made_again if one.restored is not None]
            assert back[0].method == "row"
            assert all(one.diverged is None for one in back)
            await send(watch, cmd.Switch(branch=0))
            await stands(watch, 0, 4)
            session = watch.session
        async with again(daemon, session, "bf16") as watch:
            await run_to(watch, 5)
            before, *_, made = predictions(watch, 4)
            check_diverged(before, made)
            await send(watch, cmd.Force(id=8, step=2))
            await stands(watch, 2, 3)
            before, *_, made = predictions(watch, 2)
            check_diverged(before, made)
        async with again(daemon, session, "bf16") as watch:
            await run_to(watch, 4)
            before, made = predictions(watch, 3)[-2:]
            assert first(made) == first(before)
            assert made.restored is not None
            assert made.restored.diverged is None

        with Recording.open(daemon.paths.recordings / f"{session}.lir") as recording:
            lines = [json.loads(to_bytes(line)) for line in export(recording)]
        restored = [line["restored"] for line in lines if line["event"] == "step"]
        told = [it["diverged"] for it in restored if it is not None and "diverged" in it]
        assert [set(it) for it in told] == [{"id", "margin"}] * 2
