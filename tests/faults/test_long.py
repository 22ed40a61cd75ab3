"""Long sessions: memory that stays flat over hours of events, and a context of 100,000 tokens."""

import time
from collections.abc import Callable

import psutil
import pytest

from engine_daemon.client import DaemonClient
from engine_daemon.paths import Paths
from tests.bench.table import percentile
from tests.daemons import running_daemon
from tests.end_to_end.command import Place
from tests.end_to_end.terminal import Terminal
from tests.faults.load import MB, check_complete, crowds, open_running, pause, sampled

Record = Callable[[str, object], None]
HOURS = 8
OF_8_HOURS = HOURS * 3600 * 50
STEP_BYTES = 100
"""What a step may cost in columns: that is the session's own, and no leak."""
BUDGET_MB = {"hub": HOURS * 1.0, "viewer": HOURS * 2.0}
LARGE = [3_000, pytest.param(100_000, marks=[pytest.mark.soak, pytest.mark.timeout(900)])]


@pytest.mark.fault("L9")
@pytest.mark.parametrize(
    "events",
    [20_000, pytest.param(OF_8_HOURS, marks=[pytest.mark.soak, pytest.mark.timeout(1800)])],
)
async def test_memory_stays_flat(events: int, record_property: Record) -> None:
    """As many events as 8 hours at 50 a second have, as fast as they go."""
    with running_daemon("scripted:rate=0,context=100000000") as daemon:
        session = await open_running(daemon, candidates=20)
        hub = psutil.Process(daemon.pid)
        with crowds(session, (1, 1, 1, 1, 1), "fold") as viewers:
            await _head(daemon.paths, session, events // 10)
            before = [hub.memory_info().rss, *(v.process.memory_info().rss for v in viewers)]
            from_head = await _head(daemon.paths, session, 0)
            with sampled(daemon.pid) as seen:
                await _head(daemon.paths, session, events)
            head = await pause(daemon, session)
            after = [hub.memory_info().rss, *(v.process.memory_info().rss for v in viewers)]
            told = [one for crowd in viewers for one in crowd.finish(head)]
        check_complete(told, head)
        assert [one["links_lost"] for one in told] == [0] * 5
        own = (head - from_head) / 2 * STEP_BYTES / MB
        grown = [(now - then) / MB for then, now in zip(before, after, strict=True)]
        beyond = [one - own for one in grown]
        record_property(
            "figure",
            f"{head} events: hub {max(seen.rss) / MB:.0f} MB, "
            f"{grown[0] * MB * 2 / (head - from_head):.0f} B a step; beyond {STEP_BYTES} B a step "
            f"hub {beyond[0]:+.1f} MB, worst viewer {max(beyond[1:]):+.1f} MB; no heartbeat missed",
        )
        if events == OF_8_HOURS:
            assert max(seen.rss) <= 200 * MB
            assert beyond[0] <= BUDGET_MB["hub"]
            assert max(beyond[1:]) <= BUDGET_MB["viewer"]


async def _head(paths: Paths, session: str, least: int) -> int:
    """Wait until the log is so long; how long it is."""
    async with DaemonClient(paths, client="test") as client:
        async for _ in client.updates():
            found = next(s for s in client.state.sessions if s.session == session)
            if found.head >= least:
                return found.head
    raise AssertionError("the daemon went away")


@pytest.mark.terminal
@pytest.mark.fault("L8")
@pytest.mark.parametrize("tokens", LARGE)
def test_a_screen_on_a_long_context(tokens: int, place: Place, record_property: Record) -> None:
    """A prompt of so many tokens, on a real terminal: each step is a key, and a picture."""
    words = b" ".join(b"%d" % (k % 10) for k in range(tokens // 2))
    prompt = place.cwd / "prompt"
    prompt.write_bytes(words)
    model = f"scripted:rate=0,context={tokens * 2}"
    place.run("daemon", "start", "--engine", "scripted", "--model", model)
    opened = place.run("run", "--prompt-file", str(prompt), "--steps", "0", "--keep", "--json")
    held = len(next(line for line in opened.lines if line["event"] == "prompt")["tokens"])
    assert held >= tokens - 1
    with place.terminal("attach") as screen:
        screen.until("step 0 pending")
        steps = 30 if tokens == 100_000 else 5
        paints = [_key_to_paint(screen, "s", f"step {k} pending") for k in range(1, steps + 1)]
        moves = [_key_to_paint(screen, "S", f"TOKEN · step {steps - k} ") for k in range(1, steps)]
        rss = psutil.Process(screen.process.pid).memory_info().rss
        screen.press("q")
        screen.finish()
    p99 = percentile([*paints, *moves], 0.99)
    record_property(
        "figure",
        f"{held} tokens: key to paint p99 {p99 * 1000:.0f} ms; viewer {rss / MB:.0f} MB",
    )
    if tokens == 100_000:
        assert p99 < 0.2
        assert rss < 400 * MB


def _key_to_paint(screen: Terminal, key: str, wanted: str) -> float:
    began = time.monotonic()
    screen.press(key)
    screen.until(wanted)
    return time.monotonic() - began
