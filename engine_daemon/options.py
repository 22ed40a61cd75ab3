"""What an option's value may be, on the command line and in `config.toml` alike.

Each check takes text and gives the value, or raises ValueError with the end of a sentence that
begins with the option's name. Knows no command and no file.
"""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final, Literal, cast, get_args

from engine_daemon.characters import Visible
from engine_daemon.nearest import suggestion

Dtype = Literal["auto", "bf16", "fp16", "fp32"]

ENGINES: Final = ("hf", "scripted")
LATER_ENGINES: Final = ("vllm", "openai")
NEVER: Final = math.inf
"""`--idle-exit never`."""
COUNT: Final = 2**31
"""No count of positions, steps or candidates is larger."""
LARGEST: Final = 2**63 - 1
"""What every message can carry."""
MOST_RANKS: Final = 64
WHO_CHARS: Final = 64
"""Of a name shown to others."""
_LONGEST_S: Final = 36500 * 86400.0
_UNITS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
SAMPLER_RANGES: Final = {
    "temperature": (1e-6, 1e6),
    "repetition_penalty": (0.01, 100.0),
    "presence_penalty": (-100.0, 100.0),
    "frequency_penalty": (-100.0, 100.0),
}
"""Least and most of what is divided by or taken off a logit: beyond, float32 holds no number."""


def whole(least: int, most: int = LARGEST) -> Callable[[str], int]:
    """A check for whole numbers from `least` to `most`."""

    def check(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,30}", text):
            raise ValueError(f"takes a whole number, not {text!r}")
        value = int(text)
        if value < least:
            raise ValueError(f"must be at least {least}, not {text}")
        if value > most:
            raise ValueError(f"must be at most {most}, not {text}")
        return value

    return check


def number(
    least: float | None = None, most: float | None = None, *, above: float | None = None
) -> Callable[[str], float]:
    """A check for finite numbers from `least`, or from just above `above`, to `most`."""

    def check(text: str) -> float:
        try:
            value = float(text)
        except ValueError:
            raise ValueError(f"takes a number, not {text!r}") from None
        if not math.isfinite(value):
            raise ValueError(f"must be a finite number, not {text}")
        if least is not None and value < least:
            raise ValueError(f"must be at least {least:g}, not {text}")
        if above is not None and value <= above:
            raise ValueError(f"must be greater than {above:g}, not {text}")
        if most is not None and value > most:
            raise ValueError(f"must be at most {most:g}, not {text}")
        return value

    return check


def duration(text: str) -> float:
    """Seconds of `90`, `90s`, `15m`, `2h`, `1h30m`."""
    if re.fullmatch(r"\d+(\.\d+)?", text):
        seconds = float(text)
    else:
        parts = _PART.findall(text)
        if not parts or "".join(n + unit for n, unit in parts) != text:
            raise ValueError(f"takes a duration such as 90s, 15m or 2h, not {text!r}")
        seconds = sum(float(n) * _UNITS[unit] for n, unit in parts)
    if seconds > _LONGEST_S:
        raise ValueError("must be at most 36500d")
    return seconds


def duration_text(seconds: float) -> str:
    """A duration as one would type it."""
    if math.isinf(seconds):
        return "never"
    exact = Decimal(f"{seconds:.15g}")
    for unit in ("d", "h", "m"):
        if exact and exact % int(_UNITS[unit]) == 0:
            return f"{seconds / _UNITS[unit]:.0f}{unit}"
    return f"{exact:f}s"  # without an exponent, which nobody types


def idle_exit(text: str) -> float:
    """A duration, or NEVER."""
    return NEVER if text == "never" else duration(text)


def patience(text: str) -> float:
    """A duration of at least a second."""
    seconds = duration(text)
    if seconds < 1.0:
        raise ValueError(f"must be at least 1s, not {text}")
    return seconds


def engine(text: str) -> str:
    """The name of an engine of this version."""
    if text in LATER_ENGINES:
        raise ValueError(f"{text} is not supported in this version; known: {', '.join(ENGINES)}")
    if text not in ENGINES:
        raise ValueError(f"has no engine {text!r}. {suggestion(text, ENGINES)}")
    return text


def device(text: str) -> str:
    """`auto`, `cpu`, `cuda`, `cuda:N`, or `cuda:N,M,…` for one rank a device."""
    if not re.fullmatch(r"auto|cpu|cuda(:\d{1,3}(,\d{1,3})*)?", text):
        raise ValueError(f"takes auto, cpu, cuda, cuda:N or cuda:N,M, not {text!r}")
    numbers = text.partition(":")[2].split(",")
    if len({int(x) for x in numbers if x}) < len([x for x in numbers if x]):
        raise ValueError(f"names a device twice: {text}")
    return text


def devices_fit(device: str, tp: int) -> bool:
    """Named devices are as many as there are ranks; one a rank."""
    named = device.partition(":")[2]
    return not named or named.count(",") + 1 == tp


def dtype(text: str) -> Dtype:
    """The number format of the weights."""
    if text not in get_args(Dtype):
        raise ValueError(f"takes {', '.join(get_args(Dtype))}, not {text!r}")
    return cast("Dtype", text)


def ranks(text: str) -> int:
    """How many tensor-parallel ranks."""
    return whole(1, MOST_RANKS)(text)


def switch(text: str) -> bool:
    """`true` or `false`."""
    if text not in ("true", "false"):
        raise ValueError(f"takes true or false, not {text!r}")
    return text == "true"


def plain(text: str) -> str:
    """Any text but the empty one."""
    if not text:
        raise ValueError("must not be empty")
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


def accounts(text: str) -> str:
    """Names of users, and of groups as @GROUP, separated by commas; whether there are such is
    looked at where the daemon starts. The empty one: nobody."""
    if text and not re.fullmatch(r"@?[\w.-]+(,@?[\w.-]+)*", text):
        raise ValueError(f"takes alice,bob or @group, not {text!r}")
    return text


def utf8(text: str) -> str:
    """Any text that is UTF-8, the empty one excepted."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("is not UTF-8") from None
    return plain(text)


def shown_name(text: str) -> str:
    """A name shown to others: short, and harmless on their terminals."""
    if not utf8(text).strip():
        raise ValueError("must not be blank")
    if len(text) > WHO_CHARS:
        raise ValueError(f"takes at most {WHO_CHARS} characters, not {len(text)}")
    if text.translate(Visible()) != text:
        raise ValueError("must not hold control or invisible characters")
    return text
