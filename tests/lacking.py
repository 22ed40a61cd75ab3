"""What a test does where a tool is missing that `.ci/run` installs."""

import os
from typing import NoReturn

import pytest


def lacking(what: str) -> NoReturn:
    """On a person's machine the test is skipped for that reason; in CI it fails."""
    if os.environ.get("CI"):
        pytest.fail(f"no {what}: .ci/run installs it")
    pytest.skip(f"needs {what}")
