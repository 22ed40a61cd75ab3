"""The image of a session: folding on from it is folding from the beginning."""

from array import array
from collections import deque
from typing import Any

import msgspec
import pytest

from engine_daemon.protocol import events as e
from engine_daemon.protocol.codec import WireError, pack_event
from engine_daemon.protocol.values import Sampler
from engine_daemon.recording.columns import Columns
from engine_daemon.recording.rows import Rows
from tests.protocol.condition_samples import CONDITION_SAMPLES
from tests.protocol.samples import SAMPLES
from tests.recording.logs import packed, session
from tests.tui.story import Story, paused

_NOT_SAID = {"turned", "_prompt_tokens"}
"""What has no meaning outside one pair of columns, or is made on demand."""


def everything(value: Any) -> Any:
    """All that columns hold, as plain values."""
    match value:
        case Rows():
            fields = {name: v for name, v in vars(value).items() if name not in _NOT_SAID}
            return {name: everything(field) for name, field in fields.items()}
        case array() | bytearray():
            return bytes(value)
        case deque():
            return [everything(one) for one in value]
        case dict():
            return {key: everything(one) for key, one in value.items()}
        case msgspec.Struct():
            return repr(value)  # NaN equals itself this way
        case _ if hasattr(value, "rest"):
            return (value.parent, value.step, everything(value.rest), repr(value.end))
        case _:
            return repr(value)


def branching() -> list[bytes]:
    """Branches, left and come back to, samplers, notes, commands of several people."""
    story = Story().predict().stop()
    story.command("run_to", 6).tokens(*[(b" word", 0.5)] * 6).stop()
    story.branch(2).pick(70, b" other", 0.1, how="forced").predict().stop()
    story.switch(0)
    story.add(e.Noted(t_ns=1, wall_ns=1, branch=0, step=3, who="bob", text="hm"))
    story.branch(4).pick(71, b" third", 0.1, how="sampled").predict(sampled=True).stop()
    story.add(e.SamplerSet(t_ns=1, wall_ns=1, branch=2, sampler=Sampler(seed=4), salt=3))
    story.switch(1)
    story.command("run_to", None)
    story.tokens(*[(b" on", 0.25)] * 3)
    return story.log


def known() -> list[bytes]:
    """Every kind of event once, after an opening, whatever it says."""
    first = [SAMPLES["Opened"], SAMPLES["SessionSet"], SAMPLES["PromptSet"]]
    events = [one for one in {**SAMPLES, **CONDITION_SAMPLES}.values() if isinstance(one, e.Event)]
    return [pack_event(one) for one in [*first, *events] if isinstance(one, e.Event)]


@pytest.mark.parametrize(
    "log",
    [branching(), known(), paused().log, packed(session()), packed(session(close=False))],
    ids=["branching", "every kind", "paused", "closed", "open"],
)
def test_whoever_joins_at_any_event_has_the_same_in_the_end(log: list[bytes]) -> None:
    whole = Columns()
    for cut in range(len(log) + 1):
        late = Columns.of(whole.image())
        assert everything(late) == everything(whole), cut
        for seq in range(cut, len(log)):
            _fold(late, seq, log[seq])
        if cut < len(log):
            _fold(whole, cut, log[cut])
        if cut == 0:
            expected = everything(late)
        assert everything(late) == expected, cut


def _fold(columns: Columns, seq: int, one: bytes) -> None:
    try:
        columns.apply(seq, one)
    except WireError:  # samples that do not fit each other
        columns.skip(seq + 1)


def test_an_image_is_not_changed_by_what_comes_after() -> None:
    log = branching()
    columns = Columns()
    for seq, one in enumerate(log[:12]):
        columns.apply(seq, one)
    image = columns.image()
    before = everything(Columns.of(image))
    for seq, one in enumerate(log[12:], 12):
        columns.apply(seq, one)
    assert everything(Columns.of(image)) == before


def test_whatever_is_cut_or_changed_is_refused_or_read_but_never_a_crash() -> None:
    columns = Columns()
    for seq, one in enumerate(branching()):
        columns.apply(seq, one)
    image = columns.image()
    for cut in range(0, len(image), 97):
        with pytest.raises(WireError):
            Columns.of(image[:cut])
    for place in range(0, len(image), 61):
        changed = bytearray(image)
        changed[place] ^= 0x55
        try:
            Columns.of(bytes(changed))
        except WireError:
            continue
