"""A place of its own for each test of the command."""

from collections.abc import Iterator

import pytest

from tests.end_to_end.command import Place


@pytest.fixture
def place() -> Iterator[Place]:
    """Directories, environment and daemons of one test."""
    with Place() as made:
        yield made
