"""The tokens process: `python -P -m engine_daemon.tokens --socket E_SOCK --death-fd N`.

Arms its death watch before it imports anything slow. Knows only how the process starts.
"""

import argparse
import os

from engine_daemon import __version__, deathwatch


def main() -> None:
    """Run until the hub ends this process or goes away itself."""
    parser = argparse.ArgumentParser(prog="engine_daemon.tokens")
    parser.add_argument("--socket", required=True)
    parser.add_argument("--death-fd", type=int, required=True)
    arguments = parser.parse_args()
    deathwatch.arm(arguments.death_fd)
    _serve(arguments.socket)


def _serve(socket_path: str) -> None:
    import logging

    from engine_daemon.protocol.worker import ChildReady
    from engine_daemon.tokens.service import serve

    logging.basicConfig(format="%(asctime)s tokens %(levelname)s %(message)s")
    serve(socket_path, ChildReady(role="tokens", version=__version__, pid=os.getpid()))


if __name__ == "__main__":
    main()
