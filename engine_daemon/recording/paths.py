"""The tree of a session's branches, of which one path is laid out as rows.

Whoever asks by step sees the branch the session stands on. The other branches keep their own rows
aside; going to one moves rows, copies no events and computes nothing. Knows no events' order.
"""

from dataclasses import dataclass, field
from typing import Final

from engine_daemon.protocol.events import How, Predicted, StepStop, Stopped
from engine_daemon.protocol.image import BranchImage, EndImage, TreeImage
from engine_daemon.protocol.values import Sampler
from engine_daemon.recording.rows import NO_SEQ, Flag, Rows

ROOT: Final = 0
_END: Final = ("pending", "seq_pending", "last_stop", "stop", "sampler", "salt")


@dataclass(frozen=True, slots=True)
class End:
    """What stands at the end of a branch."""

    pending: Predicted | None = None
    seq_pending: int | None = None
    last_stop: StepStop | None = None
    stop: Stopped | None = None
    sampler: Sampler = field(default_factory=Sampler)
    salt: int = 0


@dataclass(slots=True)
class _Branch:
    """`rest`: own rows that are not on the path laid out; `end` counts while it is not stood on."""

    parent: int | None
    step: int
    rest: Rows = field(compare=False)
    end: End


@dataclass(frozen=True, slots=True)
class BranchInfo:
    """A line of the table of branches. `length`: own steps; `piece` and `how` of the first."""

    id: int
    parent: int | None
    step: int
    length: int
    piece: bytes
    how: How | None


class Paths(Rows):
    """Rows of the path that is stood on, and the branches beside it.

    Attributes:
        branch: the one stood on.
        turned: grows whenever the path becomes another one; what was made from rows is then old.
        pending, seq_pending, last_stop, stop, sampler, salt: at the end of this branch.
        last_salt: the highest one used on any branch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.branch = ROOT
        self.turned = 0
        self.pending: Predicted | None = None
        self.seq_pending: int | None = None
        self.last_stop: StepStop | None = None
        self.stop: Stopped | None = None
        self._stood: Stopped | None = None
        self.sampler = Sampler()
        self.salt = 0
        self.last_salt = 0
        self._branches = {ROOT: _Branch(None, 0, Rows(), End())}

    # The tree ---------------------------------------------------------------------------------

    @property
    def next_branch(self) -> int:
        """The number of the next one."""
        return max(self._branches) + 1

    def has_branch(self, branch: int) -> bool:
        """True when there is one of this number."""
        return branch in self._branches

    def start(self, branch: int) -> int:
        """The step at which it left its parent."""
        return self._branches[branch].step

    def branches(self) -> list[BranchInfo]:
        """All of them, by number."""
        return [self._info(branch) for branch in sorted(self._branches)]

    def end_of(self, branch: int) -> End:
        """What stands at its end."""
        return self._end() if branch == self.branch else self._branches[branch].end

    def seq_left(self) -> int | None:
        """The event that predicted the step at which this branch left its parent; None when it has
        steps of its own, or that event is lost."""
        found = self._branches[self.branch]
        if found.parent is None or len(self) > found.step:
            return None
        seqs = self._branches[found.parent].rest.seq_predicted
        return seqs[0] if seqs and seqs[0] != NO_SEQ else None

    def owner(self, branch: int, step: int) -> int:
        """The branch on the path of `branch` that a new one leaving at `step` is a child of."""
        while step <= self._branches[branch].step:
            parent = self._branches[branch].parent
            if parent is None:
                break
            branch = parent
        return branch

    def path(self, branch: int) -> Rows:
        """The rows of the path that ends in `branch`; not to be changed."""
        if branch == self.branch:
            return self
        made, at = Rows(), 0
        chain = self._chain(branch)
        for place, name in enumerate(chain):
            last = place + 1 == len(chain)
            end = None if last else self._branches[chain[place + 1]].step
            at = self._add_own(made, name, at, end)
        return made

    def _chain(self, branch: int) -> list[int]:
        """From the root to `branch`."""
        chain, at = [branch], self._branches[branch].parent
        while at is not None:
            chain.append(at)
            at = self._branches[at].parent
        return chain[::-1]

    def _add_own(self, made: Rows, branch: int, at: int, end: int | None) -> int:
        """Append rows [at, end) of one branch: some lie on the path, the others aside."""
        low, high = self._laid_out(branch)
        stop = high if end is None else min(end, high)
        if low <= at < stop:
            made.append_rows(self, at, stop)
            at = stop
        aside = self._branches[branch].rest
        first = high if high > low else self._branches[branch].step
        upto = first + len(aside) if end is None else min(end, first + len(aside))
        if first <= at < upto:
            made.append_rows(aside, at - first, upto - first)
            at = upto
        return at

    def on_path(self, branch: int, step: int) -> bool:
        """True when this step of this branch is one of the path that is stood on, its end too."""
        low, high = self._laid_out(branch)
        return low <= step < high + (branch == self.branch)

    def _laid_out(self, branch: int) -> tuple[int, int]:
        """Steps of `branch` that are on the path; an empty range when it is not part of it."""
        chain = self._chain(self.branch)
        start = self._branches[branch].step
        if branch not in chain:
            return start, start
        place = chain.index(branch)
        last = place + 1 == len(chain)
        return start, len(self) if last else self._branches[chain[place + 1]].step

    def _info(self, branch: int) -> BranchInfo:
        found = self._branches[branch]
        low, high = self._laid_out(branch)
        length = high - low + len(found.rest)
        rows, at = (self, low) if high > low else (found.rest, 0)
        if not length:
            return BranchInfo(branch, found.parent, found.step, 0, b"", None)
        return BranchInfo(
            branch, found.parent, found.step, length, rows.piece(at), how_of(rows.flags[at])
        )

    # Image ------------------------------------------------------------------------------------

    def tree(self) -> TreeImage:
        """All branches, packed."""
        return TreeImage(
            branch=self.branch,
            path=self.rows_image(),
            end=_end_image(End(**{name: getattr(self, name) for name in _END})),
            stood=self._stood,
            last_salt=self.last_salt,
            branches=[
                BranchImage(
                    id=name,
                    parent=one.parent,
                    step=one.step,
                    rest=one.rest.rows_image(),
                    end=_end_image(one.end),
                )
                for name, one in self._branches.items()
            ],
        )

    def grow(self, tree: TreeImage) -> None:
        """Take over the branches of an image; ValueError when they are no tree."""
        self.load(tree.path)
        self.branch, self.last_salt, self._stood = tree.branch, tree.last_salt, tree.stood
        for name in _END:
            setattr(self, name, getattr(tree.end, name))
        self._branches = {}
        for one in tree.branches:
            rest = Rows()
            rest.load(one.rest)
            end = End(**{name: getattr(one.end, name) for name in _END})
            self._branches[one.id] = _Branch(one.parent, one.step, rest, end)
        known = all(one.parent is None or one.parent < one.id for one in tree.branches)
        parents = {one.parent for one in tree.branches} | {tree.branch, ROOT}
        if not known or not parents <= {*self._branches, None}:
            raise ValueError("the branches are no tree")

    # Moving -----------------------------------------------------------------------------------

    def go_to(self, branch: int) -> None:
        """Lay out the path of another branch."""
        if branch == self.branch:
            return
        chain, there = self._chain(self.branch), self._chain(branch)
        self._branches[self.branch].end = self._end()
        common = 0
        while common < min(len(chain), len(there)) and chain[common] == there[common]:
            common += 1
        for name in reversed(chain[common:]):
            self._leave(name)
        for name in there[common:]:
            self._enter(name)
        self.branch = branch
        self._stand(self._branches[branch].end)
        self.turned += 1

    def begin(self, branch: int, step: int) -> None:
        """A new branch leaves the one stood on at `step`; it inherits the sampler."""
        self._branches[self.branch].end = self._end()
        end = End(sampler=self.sampler, salt=self.salt)
        self._branches[branch] = _Branch(self.branch, step, Rows(), end)
        self._enter(branch)
        self.branch = branch
        self._stand(end)
        self.turned += 1

    def _leave(self, branch: int) -> None:
        """Take the rows of the last branch of the path off it, and lay its parent's out."""
        found = self._branches[branch]
        assert found.parent is not None
        own = self.cut(found.step)
        own.append_rows(found.rest)
        found.rest = own
        parent = self._branches[found.parent]
        self.append_rows(parent.rest)
        parent.rest = Rows()

    def _enter(self, branch: int) -> None:
        """Lay the rows of a child of the last branch of the path out."""
        found = self._branches[branch]
        assert found.parent is not None
        self._branches[found.parent].rest = self.cut(found.step)
        self.append_rows(found.rest)
        found.rest = Rows()

    def _end(self) -> End:
        # The command that leaves a branch has set it in motion: it stands as it stood before.
        stop = self.stop or self._stood
        return End(self.pending, self.seq_pending, self.last_stop, stop, self.sampler, self.salt)

    def _stand(self, end: End) -> None:
        self.pending, self.seq_pending = end.pending, end.seq_pending
        self.last_stop, self.stop, self._stood = end.last_stop, end.stop, None
        self.sampler, self.salt = end.sampler, end.salt


def how_of(flags: int) -> How:
    """How a token was picked, by its row's flags."""
    if flags & Flag.FORCED:
        return "forced"
    return "sampled" if flags & Flag.SAMPLED else "greedy"


def _end_image(end: End) -> EndImage:
    return EndImage(**{name: getattr(end, name) for name in _END})
