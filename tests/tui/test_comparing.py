"""Two branches beside each other: where they part, and what each is worth."""

import math

import pytest

from engine_daemon.recording.columns import Columns
from tests.tui.story import Story
from tui.comparing import difference, forced, own
from tui.text import SafeText, tail, width, wrap


def columns_of(story: Story) -> Columns:
    columns = Columns()
    columns.extend(list(enumerate(story.log)))
    return columns


def forked() -> Columns:
    """Branch 0: a b c d; branch 1 leaves at step 2 with x y; branch 2 leaves 1 at step 3 with z."""
    story = Story().tokens((b" a", 0.5), (b" b", 0.25), (b" c", 0.8), (b" d", 0.9))
    story.branch(2).pick(70, b" x", 0.1, how="forced").tokens((b" y", 0.3)).predict()
    story.branch(3).pick(71, b" z\x1b", 0.05, how="sampled").predict()
    return columns_of(story)


def test_what_was_forced_is_counted_apart_from_what_followed() -> None:
    story = Story().tokens((b" a", 0.5), (b" b", 0.25))
    story.branch(1).pick(70, b" x", 0.1, how="forced").pick(71, b" y", 0.1, how="forced")
    story.tokens((b" z", 0.3)).pick(72, b" w", 0.1, how="forced").predict()
    columns = columns_of(story)
    assert [forced(columns, branch) for branch in (0, 1)] == [0, 2]
    assert [forced(forked(), branch) for branch in (1, 2)] == [1, 0]


def test_a_branch_is_told_from_where_it_leaves() -> None:
    columns = forked()
    assert [own(columns, k).text for k in range(3)] == [" a b c d", " x y", " z␛"]
    assert [own(columns, k).steps for k in range(3)] == [4, 2, 1]
    sums = [0.5 * 0.25 * 0.8 * 0.9, 0.1 * 0.3, 0.05]
    for branch, product in enumerate(sums):
        found = own(columns, branch)
        assert found.logprob == pytest.approx(math.log(product))
        each = math.log(product) / found.steps
        several = f"logprob {math.log(product):.1f}, {each:.2f} each"
        assert found.words == (several if found.steps > 1 else f"logprob {each:.2f}")


@pytest.mark.parametrize("stand", [0, 1, 2])
def test_where_two_part(stand: int) -> None:
    columns = forked()
    columns.go_to(stand)
    found = difference(columns, 0, 2)
    assert (found.at, found.differ) == (2, True)
    assert found.before.endswith(" by the a b")
    assert (found.first.text, found.second.text) == (" c d", " x z␛")
    assert found.tokens == ("␣c  80.0 %", "␣x  10.0 %")
    assert [one.steps for one in found.shared] == [2, 2]
    logprobs = [one.logprob for one in found.shared]
    assert logprobs == pytest.approx([math.log(0.72), math.log(0.005)])
    assert columns.branch == stand


def test_one_may_be_the_beginning_of_the_other() -> None:
    story = Story().tokens((b" a", 0.5), (b" b", 0.25)).predict()
    story.branch(1)
    found = difference(columns_of(story), 0, 1)
    assert (found.at, found.differ) == (1, False)
    assert found.tokens[1] == "ends here"
    assert found.second.logprob is None
    assert found.second.words == "logprob –"


def test_lines_are_broken_between_words_and_long_ones_in_parts() -> None:
    assert wrap(SafeText("one two three"), 7, 9) == ["one two", "three"]
    assert wrap(SafeText("一二三四五"), 4, 9) == ["一二", "三四", "五"]
    assert wrap(SafeText("one two three four"), 7, 2) == ["one two", "three …"]
    assert wrap(SafeText("a b" * 100_000), 7, 2) == ["a ba ba", "ba ba …"]  # at once
    for line in wrap(SafeText("x" * 100 + " 世界 " * 9), 11, 4):
        assert width(line) <= 11
    assert tail(SafeText("one two"), 5) == "… two"
    assert tail(SafeText("一二三"), 4) == "…三"
    assert tail(SafeText("one"), 5) == "one"


def test_what_is_read_beside_each_other_is_what_the_figures_are_of() -> None:
    """Branch 1 has one step after the difference, branch 0 three."""
    story = Story().tokens((b" a", 0.5), (b" b", 0.25), (b" c", 0.8), (b" d", 0.9))
    story.branch(1).pick(70, b" x", 0.1, how="forced").predict()
    columns = columns_of(story)
    found = difference(columns, 0, 1)
    assert found.texts() == [" b …", " x"]
    assert [one.steps for one in found.shared] == [1, 1]
    assert difference(columns, 1, 0).texts() == [" x", " b …"]


def test_of_a_beginning_all_that_follows_is_read() -> None:
    story = Story().tokens((b" a", 0.5), (b" b", 0.25)).predict()
    story.branch(1)
    assert difference(columns_of(story), 0, 1).texts() == [" b", ""]
