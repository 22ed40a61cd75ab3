"""The main screen: what each key does to the view and sends to the daemon."""

import msgspec
import pytest

from engine_daemon.errors import InspectError, not_sent
from engine_daemon.protocol.commands import At, Force, Pause, RunTo
from engine_daemon.protocol.events import EngineLost
from engine_daemon.protocol.reads import AskEvents
from tests.tui.pilot import keys, rows, said, screen, until
from tests.tui.source import FakeSource
from tests.tui.story import SESSION, Story, paused, state
from tui.screens.keys import KeysBar


def running() -> Story:
    story = Story().predict().stop().command("run_to", None)
    return story.tokens(*[(b" word", 0.5)] * 30)


async def test_the_pending_distribution_is_there_before_the_pick() -> None:
    async with screen() as (_, app, _source):
        shown = "\n".join(rows(app, "next-token"))
        assert "␣scheduler" in shown
        assert "35.4 %" in shown
        assert app.view.on_pending
        assert "PAUSED" in rows(app, "status")[0]


async def test_what_the_engine_does_not_hold_is_marked_recorded() -> None:
    known = state()
    away = msgspec.structs.replace(known.sessions[0], resident=False)
    source = FakeSource(paused(), first=msgspec.structs.replace(known, sessions=[away]))
    async with screen(source=source) as (_, app, _source):
        rows(app, "next-token")
        assert "step 3 pending, recorded" in str(app.main.query_one("#next-token").border_title)


async def test_a_lost_engine_is_named_until_another_one_is_there() -> None:
    why = "the engine was killed by SIGKILL"
    story = paused().command("run_to", None)
    story.add(EngineLost(t_ns=1, wall_ns=1, step=3, engine=1, rank=0, signal="KILL", message=why))
    story.stop("engine_lost", message=why)
    async with screen(story) as (pilot, app, source):
        assert "PAUSED  engine lost" in rows(app, "status")[0]
        for word in ("busy", "ready"):
            source.set_state(state(engine=2, word=word))
            await until(pilot, lambda: "PAUSED  the engine had ended" in rows(app, "status")[0])
            source.set_state(state())
            await until(pilot, lambda: "PAUSED  engine lost" in rows(app, "status")[0])


async def test_step_commits_one_with_goal_and_guard() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("s")
        await until(pilot, lambda: app.view.columns.place.step == 4)
        assert source.sent == [(RunTo(step=4), SESSION, At(branch=0, step=3))]


async def test_a_count_commits_that_many() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("1", "0")
        assert "10×" in app.main.query_one(KeysBar).render_line(0).text
        await pilot.press("s")
        await until(pilot, lambda: app.view.columns.place.step == 13)
        assert source.sent[0][0] == RunTo(step=13)
        assert "×" not in app.main.query_one(KeysBar).render_line(0).text


async def test_keys_pressed_during_a_step_are_added_up() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("s", "s", "s")
        await until(pilot, lambda: app.view.columns.place.step == 6)
        assert source.sent[0][0] == RunTo(step=4)
        assert all(isinstance(do, RunTo) for do, _, _ in source.sent)


async def test_escape_forgets_a_count() -> None:
    async with screen() as (pilot, _app, source):
        await pilot.press("5", "escape", "s")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0][0] == RunTo(step=4)


async def test_back_and_on_never_reach_the_engine() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("S", "S")
        assert app.view.at == 1
        assert "step 1" in str(app.main.query_one("#next-token").border_title)
        await pilot.press("s")
        assert app.view.at == 2
        await pilot.press("9", "s")
        assert app.view.at == 3
        await pilot.press("h", "left")
        assert app.view.at == 1
        await pilot.press("l", "right", "right", "right")
        assert app.view.at == 3
        assert source.sent == []


async def test_first_last_follow() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("g")
        assert (app.view.at, app.view.cursor) == (0, 0)
        await pilot.press("G")
        assert (app.view.at, app.view.cursor) == (3, None)
        await pilot.press("f")
        assert app.view.cursor == 3
        await pilot.press("f")
        assert app.view.cursor is None


async def test_space_runs_and_pauses() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("space")
        await until(pilot, lambda: app.view.running)
        assert source.sent[0] == (RunTo(step=None), SESSION, At(branch=0, step=3))
        assert "LIVE" in rows(app, "status")[0]
        await pilot.press("space")
        await until(pilot, lambda: not app.view.running)
        assert source.sent[1][0] == Pause()


async def test_step_while_running_is_refused_in_words() -> None:
    async with screen(running()) as (pilot, app, source):
        await pilot.press("s")
        await until(pilot, lambda: "it is running" in said(app))
        assert source.sent == []


async def test_ctrl_c_pauses_what_runs_else_says_how_to_leave() -> None:
    async with screen(running()) as (pilot, app, source):
        await pilot.press("ctrl+c")
        await until(pilot, lambda: not app.view.running)
        assert source.sent[0][0] == Pause()
        await pilot.press("ctrl+c")
        assert "q leaves" in said(app)
        assert len(source.sent) == 1


async def test_keys_are_not_kept_waiting_for_a_step_that_is_over() -> None:
    """After a step the run of somebody (here: space) has another goal; the screen says PAUSED."""
    async with screen() as (pilot, app, source):
        await pilot.press("s")
        await until(pilot, lambda: app.view.columns.place.step == 4)
        await pilot.press("space")
        await until(pilot, lambda: app.view.running)
        await pilot.press("space")
        await until(pilot, lambda: not app.view.running)
        assert "PAUSED" in rows(app, "status")[0]
        sent = len(source.sent)
        await pilot.press("s")
        await until(pilot, lambda: app.view.columns.place.step == 5)
        await pilot.press("tab", "enter")
        await until(pilot, lambda: app.view.columns.place.step == 6)
        assert [do for do, _, _ in source.sent[sent:]] == [RunTo(step=5), Force(id=17472)]
        assert "running" not in said(app)


async def test_an_old_step_is_asked_for_and_a_dash_meanwhile() -> None:
    source = FakeSource(paused())
    async with screen(source=source) as (pilot, app, _):
        app.view._packed.clear()
        source.hold_answers()
        await pilot.press("g")
        await until(pilot, lambda: bool(source.asked))
        assert app.view.at == 0
        assert "– asking for step 0" in "\n".join(rows(app, "next-token"))
        source.let_answers_go()
        await until(pilot, lambda: "● " in "\n".join(rows(app, "next-token")))
        seqs = [app.view.columns.seq_predicted[0], app.view.columns.seq_stepped[0]]
        assert source.asked == [AskEvents(seqs=seqs)]


async def test_copy_goes_through_the_terminal() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("y")
        assert app.clipboard == "Kubernetes pods are scheduled by the Kubernetes"


async def test_tab_goes_round_and_brings_panes_forward() -> None:
    async with screen(size=(80, 24)) as (pilot, app, _source):
        order = []
        for _ in range(6):
            focused = app.focused
            assert focused is not None
            assert focused.display
            order.append(focused.id)
            await pilot.press("tab")
        assert order == ["sequence", "next-token", "tokens", "cost", "cache", "sequence"]
        await pilot.press("shift+tab", "shift+tab")
        assert app.focused is not None
        assert app.focused.id == "cache"
        assert not app.main.query_one("#tokens").display


async def test_zoom_and_back() -> None:
    async with screen() as (pilot, app, _source):
        await pilot.press("z")
        assert app.main.maximized is app.main.query_one("#sequence")
        await pilot.press("z")
        assert app.main.maximized is None
        await pilot.press("z", "escape")
        assert app.main.maximized is None


async def test_themes_go_round() -> None:
    async with screen() as (pilot, app, _source):
        seen = set()
        for _ in range(4):
            seen.add(app.theme)
            await pilot.press("T")
            assert said(app).endswith(f"theme {app.theme}")
        assert {"ink", "paper", "ansi-dark", "ansi-light"} == seen


async def test_lines_in_sequence_and_tokens() -> None:
    async with screen(running()) as (pilot, app, _source):
        await pilot.press("up", "k")
        at = app.view.at
        assert at < app.view.head
        await pilot.press("down")
        assert app.view.at > at
        await pilot.press("pageup")
        await pilot.press("pagedown", "j")
        assert app.view.at == app.view.head
        await pilot.press("tab", "tab", "up", "k")
        assert app.view.at == app.view.head - 2
        await pilot.press("down", "j", "pageup")
        assert app.view.at < app.view.head - 3
        await pilot.press("pagedown")
        assert app.view.at == app.view.head


async def test_a_lost_link_shows_and_nothing_is_sent() -> None:
    async with screen() as (pilot, app, source):
        source.lose_link()
        await until(pilot, lambda: not app.view.link)
        assert "LINK LOST" in rows(app, "status")[0]
        await pilot.press("s")
        await until(pilot, lambda: "not sent" in said(app))
        assert source.sent == []
        for key in ("space", "s", "space", "s"):
            await pilot.press(key)
        await until(pilot, lambda: not any(one.group == "commands" for one in app.workers))
        assert source.sent == []
        error = not_sent()
        assert said(app) == f"{error.message} · {error.hint}"
        await pilot.press("S")
        assert app.view.at == 2
        assert said(app) == ""


async def test_a_refusal_is_said() -> None:
    async with screen() as (pilot, app, source):
        source.refuse = InspectError("session is busy", "wait [/b] for it", code="busy")
        await pilot.press("s")
        await until(pilot, lambda: keys(app) == "session is busy · wait [/b] for it")
        source.refuse = None
        await pilot.press("s")
        await until(pilot, lambda: app.view.columns.place.step == 4)


async def test_an_observer_commands_nothing() -> None:
    async with screen(observe=True) as (pilot, app, source):
        await pilot.press("s")
        await until(pilot, lambda: "only observes" in keys(app))
        assert source.sent == []


async def test_no_session_is_an_empty_state() -> None:
    none = state()
    source = FakeSource(Story(), first=type(none)(engine=none.engine, sessions=[], viewers=[]))
    async with screen(source=source, ready=False) as (pilot, app, _):
        await until(pilot, lambda: app.main.feed is not None)
        assert "open one on a prompt" in "\n".join(rows(app, "sequence"))
        await pilot.press("s", "space", "t")
        await pilot.pause()
        assert source.sent == []


@pytest.mark.parametrize(
    ("engine", "words"),
    [
        ({"word": "loading", "stage": "load", "done": 1 << 27, "total": 1 << 28, "model": None},
         ("weights", "134 MB of 268 MB")),
        ({"word": "dead", "message": "no such model: x", "hint": "llm-inspect models list"},
         ("ENGINE DEAD", "no such model: x · llm-inspect models list")),
        ({"word": "ready", "synthetic": True}, ("SYNTHETIC",)),
    ],
)  # fmt: skip
async def test_status_of_the_engine(engine: dict[str, object], words: tuple[str, ...]) -> None:
    source = FakeSource(paused(), first=state(**engine))
    async with screen(source=source) as (_, app, _source):
        line = rows(app, "status")[0]
        for word in words:
            assert word in line


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_loading_is_told_in_words_and_bytes(size: tuple[int, int]) -> None:
    first = state(word="loading", stage="load 2/4", done=134_000_000, total=269_000_000)
    async with screen(source=FakeSource(paused(), first=first), size=size) as (_, app, _source):
        line = rows(app, "status")[0]
        assert "loading the weights, file 2/4" in line
        assert "134 MB of 269 MB" in line
        assert "━" in line or size[0] == 80


@pytest.mark.parametrize(
    ("size", "rest"), [((120, 40), "trying again"), ((80, 24), "brings it back")]
)
async def test_a_lost_link_names_what_brings_it_back(size: tuple[int, int], rest: str) -> None:
    async with screen(size=size) as (pilot, app, source):
        source.lose_link()
        await until(pilot, lambda: not app.view.link)
        line = rows(app, "status")[0]
        assert "LINK LOST  the daemon is gone · llm-inspect daemon start brings it back" in line
        assert rest in line
        assert "…" not in line


@pytest.mark.parametrize("size", [(120, 40), (80, 24)])
async def test_another_daemon_than_the_usual_one_is_named(size: tuple[int, int]) -> None:
    async with screen(size=size) as (pilot, app, _source):
        app.view.where = "me@gpubox/big"
        app.main.paint()
        await until(pilot, lambda: " me@gpubox/big " in rows(app, "status")[0])


async def test_ended_shows_the_eos_step_and_goes_on() -> None:
    story = Story().predict().stop().command("run_to", None)
    story.pick(2, b"<|im_end|>", 0.9, special=True, stop="eos").stop("eos", pending=False)
    async with screen(story) as (pilot, app, source):
        assert "ENDED" in rows(app, "status")[0]
        assert "●" in "\n".join(rows(app, "next-token"))
        await pilot.press("s")
        await until(pilot, lambda: bool(source.sent))
        assert source.sent[0] == (RunTo(step=1), SESSION, At(branch=0, step=1))


async def test_ended_by_its_limit_says_so_once_and_how_to_go_on() -> None:
    story = Story().add_limit(2).predict().stop().command("run_to", None)
    story.tokens((b" one", 0.5)).predict().pick(9, b" two", 0.5, stop="length")
    story.stop("length", pending=False)
    async with screen(story) as (pilot, app, source):
        line = rows(app, "status")[0]
        assert "ENDED  length · 2 of 2 steps · s or space goes on" in line
        assert line.count("length") == 1
        await pilot.press("s")
        await until(pilot, lambda: "step 2 is pending; s again picks it" in said(app))
        assert source.sent[0][0] == RunTo(step=2)


@pytest.mark.parametrize("size", [(20, 5), (1, 1), (59, 40), (200, 12), (60, 16), (300, 90)])
async def test_any_size_draws(size: tuple[int, int]) -> None:
    async with screen(size=size) as (pilot, app, _source):
        await pilot.press("S", "s")
        await pilot.resize_terminal(120, 40)
        await pilot.resize_terminal(*size)
        await pilot.pause()
        if size == (20, 5):
            assert rows(app, "glance")[0].startswith("paused · step 3")
            assert "35.4 %" in rows(app, "glance")[2]


async def test_q_leaves_at_once() -> None:
    async with screen() as (pilot, app, source):
        await pilot.press("q")
        await pilot.pause()
        assert app.return_code == 0
        assert source.sent == []
