"""Texts from outside, of any size and depth: what cannot be read is a ValueError that says why."""

import json
from typing import Any


def parse_json(text: str | bytes) -> Any:
    """What the JSON says. ValueError when it is none, or more than can be read."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _fault(error) from None


def parse_toml(text: str) -> dict[str, Any]:
    """The same of TOML."""
    import tomllib  # a client that reads no configuration does without

    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise _fault(error) from None


def _fault(error: ValueError | RecursionError) -> ValueError:
    if isinstance(error, RecursionError):
        return ValueError("it is nested too deeply")
    if type(error) is not ValueError:  # it says where the fault is
        return error
    return ValueError("a number in it is too long")
