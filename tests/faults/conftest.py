"""What the tests of the matrix share with those of the command."""

from tests.end_to_end.conftest import place

__all__ = ["place"]
