"""`models pull NAME`: a model into the cache, without a daemon and without loading it.

The work is done by a process of the engine's (torch is its alone); this shows how it goes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from engine_daemon.cli.options import Given
from engine_daemon.cli.output import tell
from engine_daemon.cli.progress import LoadProgress
from engine_daemon.cli.target import target_of
from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.state import EngineState, State
from engine_daemon.sizes import sized

_MODULE: Final = "engine_daemon.worker.pull"


def main(name: str, given: Given) -> int:
    """Pull `name`; its folder is the last line on standard output."""
    if not name.strip():
        raise InspectError("NAME is empty", "Give owner/name, a .gguf file or a folder")
    cache = target_of(given).paths.cache.absolute()
    command = ["--model", name, "--cache-dir", str(cache)]
    if given.revision is not None:
        command += ["--revision", given.revision]
    progress = LoadProgress()
    last: dict[str, Any] = {}
    try:
        with _started(command) as process:
            assert process.stdout is not None
            for raw in process.stdout:
                last = json.loads(raw)
                if "stage" in last:
                    progress.update(_state(name, last))
    finally:
        progress.close()
    if "folder" in last:
        _report(name, last, given)
        return Exit.DONE
    if "error" in last:
        raise InspectError(
            last["message"], last["hint"], exit_code=Exit.MODEL, code=str(last["error"])
        )
    raise InspectError(
        f"{name} was not pulled: the process that pulls ended with {process.returncode}",
        "Try again; what is there already is not fetched twice",
        exit_code=Exit.MODEL,
        code="model",
    )


def _report(name: str, found: dict[str, Any], given: Given) -> None:
    if given.json:
        row = {"name": name, "path": found["folder"], "bytes": found["bytes"]}
        tell(msgspec.json.encode(row).decode())
    else:
        tell(f"{name}: {sized(found['bytes'])} in {found['folder']}")


def _state(name: str, line: dict[str, Any]) -> State:
    """A line of progress as the display of loading knows it."""
    engine = EngineState(
        word="loading",
        model_name=name,
        stage=line["stage"],
        done=line["done"],
        total=line["total"],
    )
    return State(engine=engine, sessions=[], viewers=[])


@contextmanager
def _started(arguments: list[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """The process that pulls; it ends when this one does, or is interrupted."""
    read_end, death_pipe = os.pipe()
    try:
        with subprocess.Popen(
            # -P: no module of the working directory can be imported by the engine.
            [sys.executable, "-P", "-m", _MODULE, *arguments, "--death-fd", str(read_end)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            pass_fds=(read_end,),
        ) as process:
            os.close(read_end)
            try:
                yield process
            except BaseException:
                process.kill()
                raise
    finally:
        os.close(death_pipe)
