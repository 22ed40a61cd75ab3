"""The stages of having a model, in words."""

import re
from pathlib import Path

from engine_daemon.stages import stage_text

TOLD = re.compile(r'(?:progress\(|_counted\(|"stage": )"([a-z ]+)"')


def test_every_stage_that_a_worker_tells_of_has_words() -> None:
    worker = Path(__file__).parents[1] / "engine_daemon" / "worker"
    told = {stage for path in worker.rglob("*.py") for stage in TOLD.findall(path.read_text())}
    assert {"import", "load", "pack", "warm up", "check", "write"} <= told
    assert {stage for stage in told if stage_text(stage) == stage} == set()


def test_one_file_of_several_and_what_is_not_known() -> None:
    assert stage_text("load 2/4") == "loading the weights, file 2/4"
    assert stage_text("a newer one") == "a newer one"
    assert stage_text("") == "starting the engine"
