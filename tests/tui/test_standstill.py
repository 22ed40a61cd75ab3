"""Which keys are those that were pressed while the process stood still."""

from tui.standstill import GRACE_S, STOOD_S, Standstill


class Clocks:
    """One for the process, one for keys; they need not agree."""

    def __init__(self) -> None:
        self.boot, self.keys, self.emptied = 5000.0, 100.0, 0
        self.unread = False
        self.still = Standstill(self.empty, lambda: self.boot, lambda: self.keys)

    def empty(self) -> bool:
        self.emptied += 1
        return self.unread

    def run(self, seconds: float) -> None:
        """The process runs."""
        for _ in range(int(seconds * 2)):
            self.boot += 0.5
            self.keys += 0.5
            self.still.look()

    def stand(self, seconds: float, *, asleep: bool = False) -> None:
        """It does not; asleep, the clock of the keys does not run either."""
        self.boot += seconds
        self.keys += 0.0 if asleep else seconds


def test_keys_of_a_process_that_runs_are_taken() -> None:
    clocks = Clocks()
    clocks.run(60)
    assert not clocks.still.drops(clocks.keys)
    clocks.stand(STOOD_S - 1)  # a slow machine
    assert not clocks.still.drops(clocks.keys)
    assert clocks.emptied == 0


def test_keys_pressed_meanwhile_are_dropped_whoever_looks_first() -> None:
    for timer_first in (False, True):
        for asleep in (False, True):
            clocks = Clocks()
            clocks.run(3)
            clocks.stand(14, asleep=asleep)
            if timer_first:
                clocks.still.look()
            assert clocks.still.drops(clocks.keys)
            assert clocks.still.drops(clocks.keys + GRACE_S / 2)
            assert (clocks.emptied, round(clocks.still.stood_s)) == (1, 14)


def test_the_next_key_counts_again() -> None:
    clocks = Clocks()
    clocks.stand(14)
    assert clocks.still.drops(clocks.keys)
    clocks.run(1)
    assert not clocks.still.drops(clocks.keys)


def test_it_is_said_once_when_anything_was_dropped() -> None:
    clocks = Clocks()
    clocks.stand(14)
    clocks.still.look()
    assert not clocks.still.unsaid
    clocks.unread = True
    clocks.stand(14)
    clocks.still.look()
    assert clocks.still.unsaid
