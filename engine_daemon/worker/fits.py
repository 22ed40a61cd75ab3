"""`python -P -m engine_daemon.worker.fits FOLDER…`: would each be loaded here and now?

For `models list`, whose process imports no torch. One line of JSON a folder: `why` empty when it
fits, else what loading it would say, null when that cannot be told. Reads no weights.
"""

import json
import sys
from pathlib import Path

from engine_daemon.errors import InspectError


def main(folders: list[str]) -> int:
    """Ask as loading does, with every option left as it is."""
    from engine_daemon.protocol.worker import EngineOptions
    from engine_daemon.worker.checkpoint import check_folder
    from engine_daemon.worker.loading import check_model
    from engine_daemon.worker.placement import choose_place

    options = EngineOptions()
    for folder in folders:
        why: str | None = ""
        try:
            check_model(check_folder(Path(folder)), options, choose_place(options))
        except InspectError as error:
            why = error.message
        except Exception:  # noqa: BLE001  one folder nobody foresaw: the others are told all the same
            why = None
        sys.stdout.write(json.dumps({"why": why}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
