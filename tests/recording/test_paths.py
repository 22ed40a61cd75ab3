"""Branches as a log tells them, against plain lists."""

from hypothesis import given
from hypothesis import strategies as st

from engine_daemon.export.jsonl import JsonLines
from engine_daemon.protocol import events as e
from engine_daemon.protocol.values import Sampler
from engine_daemon.recording.columns import Columns
from tests.recording.logs import (
    commanded,
    fold,
    opened,
    packed,
    predicted,
    prompt_set,
    sampler_set,
    session_set,
    stepped,
    stopped,
)


def branched(branch: int, parent: int, step: int) -> e.Branched:
    return e.Branched(t_ns=1, wall_ns=2, branch=branch, parent=parent, step=step)


def switched(branch: int, step: int) -> e.Switched:
    return e.Switched(t_ns=1, wall_ns=2, branch=branch, step=step)


START = [opened(), session_set(), sampler_set(), prompt_set()]


class Plain:
    """Branches as plain lists of (id, piece); only the whole path of each, nothing shared."""

    def __init__(self) -> None:
        self.log: list[e.Event] = list(START)
        self.paths: dict[int, list[tuple[int, bytes]]] = {0: []}
        self.left: dict[int, tuple[int | None, int]] = {0: (None, 0)}
        self.now = 0
        self._token = 100

    def step(self) -> None:
        self._token += 1
        path, piece = self.paths[self.now], bytes([65 + self._token % 26]) * (self._token % 4)
        self.log += [
            predicted(len(path), branch=self.now),
            stepped(len(path), token=self._token, piece=piece, branch=self.now),
        ]
        path.append((self._token, piece))

    def branch(self, of: int, step: int) -> None:
        while step <= self.left[of][1] and self.left[of][0] is not None:
            parent = self.left[of][0]
            assert parent is not None
            of = parent
        new = len(self.paths)
        self.log.append(branched(new, of, step))
        self.paths[new] = self.paths[of][:step]
        self.left[new] = (of, step)
        self.now = new

    def switch(self, to: int) -> None:
        self.log.append(switched(to, len(self.paths[to])))
        self.now = to


acts = st.lists(
    st.tuples(
        st.sampled_from(["step", "step", "step", "branch", "switch"]),
        st.integers(0, 50),
        st.integers(0, 50),
    ),
    max_size=40,
)


@given(acts)
def test_paths_equal_plain_lists(walk: list[tuple[str, int, int]]) -> None:
    plain = Plain()
    for act, first, second in walk:
        branch = first % len(plain.paths)
        match act:
            case "step":
                plain.step()
            case "branch":
                plain.branch(branch, second % (len(plain.paths[branch]) + 1))
            case _:
                plain.switch(branch)
    columns = fold(*plain.log)
    assert (columns.strays, columns.branch) == (0, plain.now)
    assert columns.place.branch == plain.now or not plain.paths[plain.now]
    for branch, path in plain.paths.items():
        rows = columns.path(branch)
        assert list(rows.ids) == [token for token, _ in path]
        assert [rows.piece(step) for step in range(len(rows))] == [piece for _, piece in path]
        assert list(rows.position) == [3 + step for step in range(len(path))]
    assert list(columns.ids) == [token for token, _ in plain.paths[plain.now]]
    for info in columns.branches():
        assert (info.parent, info.step) == plain.left[info.id]
        assert info.length == len(plain.paths[info.id]) - info.step
    assert columns.next_branch == len(plain.paths)


def story() -> list[e.Event]:
    """Three steps on branch 0 and one pending, then a branch at 1, and back."""
    return [
        *START,
        *(predicted(0), stepped(0, token=65), predicted(1), stepped(1, token=66)),
        *(predicted(2), stopped(2)),
        commanded("force"),
        branched(1, 0, 1),
        e.SamplerSet(t_ns=1, wall_ns=2, branch=1, step=1, sampler=Sampler(seed=5), salt=3),
        *(predicted(1, branch=1), stepped(1, token=67, branch=1), predicted(2, branch=1)),
        e.Stopped(t_ns=1, wall_ns=2, branch=1, step=2, reason="goal", pending=True),
    ]


def test_each_branch_keeps_its_end() -> None:
    columns = fold(*story())
    assert (columns.sampler.seed, columns.salt, columns.last_salt) == (5, 3, 3)
    assert columns.place.branch == 1
    turned = columns.turned
    columns.fold(columns.next, switched(0, 2))
    assert columns.turned > turned
    assert (columns.sampler.seed, columns.salt, columns.last_salt) == (0, 0, 3)
    assert columns.pending is not None
    assert (columns.pending.branch, columns.pending.step) == (0, 2)
    assert columns.stop is not None
    assert columns.stop.branch == 0
    assert columns.status == "paused"


def test_events_of_a_branch_that_is_not_stood_on_are_strays() -> None:
    columns = fold(*story(), predicted(2))
    assert columns.strays == 1
    for event in (branched(1, 0, 0), branched(9, 8, 0), switched(7, 0), branched(9, 0, 99)):
        columns.fold(columns.next, event)
    assert columns.strays == 5


def test_a_run_tells_of_branch_0_only_and_an_export_of_all() -> None:
    for only, told in ((0, [(0, 0), (0, 1)]), (None, [(0, 0), (0, 1), (1, 1)])):
        lines = JsonLines(only)
        made = []
        for seq, event in enumerate(story()):
            made += lines.feed(seq, event)
        steps = [(line["branch"], line["step"]) for line in made if line["event"] == "step"]
        assert steps == told
        pending, done = lines.pending_line(), lines.done_line("user", True)
        assert pending is not None
        assert pending["branch"] == done["branch"] == (0 if only == 0 else 1)
        assert done["ids"] == ([65, 66] if only == 0 else [65, 67])


def test_a_snapshot_of_columns_is_not_needed_to_go_on() -> None:
    """A viewer that joins anywhere folds the same log to the same columns."""
    whole, parts = fold(*story()), Columns()
    log = packed(story())
    for seq, payload in enumerate(log):
        parts.apply(seq, payload)
    assert list(parts.ids) == list(whole.ids)
    assert parts.branches() == whole.branches()
