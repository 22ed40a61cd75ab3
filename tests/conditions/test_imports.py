"""The parser is loaded when there is a condition, not before: it costs a tenth of a second."""

import json
import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    "module",
    [
        "engine_daemon.cli.run",
        "engine_daemon.client",
        "engine_daemon.hub.hub",
        "engine_daemon.tokens.service",
        "engine_daemon.worker.loop",
        "tui.app",
        "tui.screens.breakpoints",
    ],
)
def test_the_parser_is_not_loaded_with(module: str) -> None:
    script = f"import json, sys, {module}; print(json.dumps(sorted(sys.modules)))"
    ran = subprocess.run(
        [sys.executable, "-P", "-c", script], cwd="/", capture_output=True, text=True, check=True
    )
    assert not {"lark", "regex"} & set(json.loads(ran.stdout))
