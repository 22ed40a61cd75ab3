"""`python -P -m engine_daemon.worker.startable OPTIONS`: what can be known of a start beforehand.

For `daemon restart`, which stops a daemon that works for it. OPTIONS are `EngineOptions` as JSON.
One line of JSON: `why` and `hint`, both empty where nothing speaks against it. Loads nothing, and
imports torch only where a GPU is asked for by name.
"""

import json
import sys

import msgspec

from engine_daemon.errors import InspectError
from engine_daemon.protocol.worker import EngineOptions


def check(options: EngineOptions) -> None:
    """Raise InspectError as loading would: engine, packages, model, devices. Memory is not looked
    at: the daemon that runs has some of it."""
    from engine_daemon.worker.backends import check_installed
    from engine_daemon.worker.checkpoint import check_folder
    from engine_daemon.worker.models import lies_here
    from engine_daemon.worker.script import parse_script

    check_installed(options.backend)
    if options.backend == "scripted":
        parse_script(options.model)
        return
    folder = lies_here(options)
    if folder is not None:
        check_folder(folder.resolve())
    if options.device.startswith("cuda"):
        from engine_daemon.worker.placement import choose_place

        choose_place(options)


def main(words: list[str]) -> int:
    """Say what speaks against it."""
    why = hint = ""
    try:
        check(msgspec.json.decode(words[0], type=EngineOptions))
    except InspectError as error:
        why, hint = error.message, error.hint
    sys.stdout.write(json.dumps({"why": why, "hint": hint}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
