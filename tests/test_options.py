"""Values of options: what is taken, and how a refusal reads."""

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine_daemon import options as check


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0", 0),
        ("90", 90),
        ("1.5", 1.5),
        ("90s", 90),
        ("15m", 900),
        ("1h30m", 5400),
        ("20ms", 0.02),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert check.duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "x", "-1", "5y", "h", "1h 30m", "inf", "nan", "1e3"])
def test_no_durations(text: str) -> None:
    with pytest.raises(ValueError, match="takes a duration"):
        check.duration(text)


@given(st.integers(0, 10**6))
def test_a_duration_is_written_as_it_can_be_read(seconds: int) -> None:
    assert check.duration(check.duration_text(float(seconds))) == seconds


@pytest.mark.parametrize("text", ["0.0001s", "0.4s", "3959.9999s", "0.00000000012s"])
def test_a_short_duration_is_written_whole(text: str) -> None:
    assert check.duration_text(check.duration(text)) == text
    assert check.duration_text(check.duration("1.1h")) == "66m"  # 3960.0000000000005


def test_never() -> None:
    assert check.idle_exit("never") == math.inf
    assert check.duration_text(math.inf) == "never"
    assert check.duration_text(7200.0) == "2h"


@pytest.mark.parametrize(
    ("convert", "text", "words"),
    [
        (check.whole(0), "-1", "must be at least 0"),
        (check.whole(0, 2**64 - 1), str(2**64), "must be at most"),
        (check.whole(1), "1.5", "takes a whole number"),
        (check.whole(1), "٣", "takes a whole number"),
        (check.number(0), "nan", "finite"),
        (check.number(0), "inf", "finite"),
        (check.number(0), "-0.1", "at least 0"),
        (check.number(above=0, most=1), "0", "greater than 0"),
        (check.number(above=0, most=1), "1.01", "at most 1"),
        (check.number(), "one", "takes a number"),
        (check.engine, "vllm", "not supported in this version"),
        (check.engine, "scrpted", "Did you mean scripted"),
        (check.device, "cuda:0,2,0", "names a device twice"),
        (check.device, "gpu", "takes auto, cpu"),
        (check.dtype, "int8", "takes auto, bf16"),
        (check.ranks, "65", "at most 64"),
        (check.ranks, "0", "at least 1"),
        (check.plain, "", "must not be empty"),
    ],
)
def test_refusals(convert: Callable[[str], object], text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        convert(text)


def test_accepted_values() -> None:
    assert check.whole(0, 2**64 - 1)(str(2**64 - 1)) == 2**64 - 1
    assert check.device("cuda:3") == "cuda:3"
    assert check.device("cuda:0,2,4,5") == "cuda:0,2,4,5"
    assert check.dtype("bf16") == "bf16"
    assert check.ranks("4") == 4
