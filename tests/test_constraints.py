"""The tested set of versions: complete, within what pyproject.toml allows, without known traps."""

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
KEPT = {"torch"}
"""What is kept where the machine has it: any version that is new enough."""


def pinned() -> dict[str, str]:
    """Name → version."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pairs = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(name): version for name, version in pairs}


def asked_for() -> list[Requirement]:
    """By the project and its extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(one) for part in (project["dependencies"], *extras) for one in part]


@pytest.mark.pitfall("P38")
def test_everything_asked_for_is_pinned_within_what_is_allowed() -> None:
    versions = pinned()
    names: dict[str, Requirement] = {canonicalize_name(one.name): one for one in asked_for()}
    assert set(names) - set(versions) <= KEPT
    assert {n: v for n, v in versions.items() if n in names and v not in names[n].specifier} == {}


@pytest.mark.pitfall("P38")
def test_the_wrapper_that_holds_back_the_plots_is_not_among_them() -> None:
    """textual-plotext 1.0.1 wants plotext below 6."""
    assert "textual-plotext" not in pinned()
    assert int(pinned()["plotext"].split(".")[0]) >= 6
