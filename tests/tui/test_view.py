"""The store of the screen: where the cursor is, what is shown, what has to be asked for."""

from engine_daemon.recording.rows import Flag
from tests.tui.story import SESSION, Story, paused, state
from tui.view import View


def view_of(story: Story) -> View:
    view = View()
    view.show(SESSION, view.columns)
    events = list(enumerate(story.log))
    view.columns.extend(events)
    view.keep(events)
    return view


def test_nothing_yet() -> None:
    view = View()
    assert (view.head, view.at, view.length, view.shown) == (0, 0, 0, None)
    assert view.speed() is None
    assert view.engine is None
    assert view.info is None


def test_paused_head_is_the_pending_step() -> None:
    view = view_of(paused())
    assert (view.head, view.at, view.on_pending) == (3, 3, True)
    shown = view.shown
    assert shown is not None
    assert shown.stepped is None


def test_running_head_is_the_last_token() -> None:
    story = Story().predict().stop().command("run_to", None).tokens((b"a", 0.5), (b"b", 0.5))
    view = view_of(story)
    assert view.running
    assert view.head == 1
    story = Story(pause=False).predict()
    assert view_of(story).head == 0


def test_cursor_stays_where_it_is_put_and_follows_at_the_head() -> None:
    view = view_of(paused())
    view.move(1)
    assert (view.at, view.at_head, view.on_pending) == (1, False, False)
    view.move(-5)
    assert view.at == 0
    view.move(99)
    assert view.cursor is None


def test_a_step_joins_its_two_events() -> None:
    view = view_of(paused())
    detail = view.detail(2)
    assert detail is not None
    assert detail.stepped is not None
    assert detail.stepped.piece == b"etes"
    assert detail.predicted.position == 10
    assert view.wanted == []


def test_what_is_not_here_is_wanted() -> None:
    view = view_of(paused())
    view._packed.clear()
    assert view.detail(0) is None
    assert view.wanted == [view.columns.seq_predicted[0], view.columns.seq_stepped[0]]
    story = paused()
    view.keep((seq, story.log[seq]) for seq in view.wanted)
    assert view.detail(0) is not None


def test_only_so_much_is_kept() -> None:
    view = View()
    view.keep((seq, bytes(1024 * 1024)) for seq in range(100))
    assert len(view._packed) <= 32
    assert 99 in view._packed


def test_the_sequence_has_prompt_and_continuation() -> None:
    view = view_of(paused())
    assert view.length == 11
    assert view.token(0) == (b"Kub", False)
    assert view.token(10) == (b"etes", False)
    assert view.text() == b"Kubernetes pods are scheduled by the Kubernetes"


def test_speed_is_over_decode_steps() -> None:
    view = view_of(paused())
    speed = view.speed()
    assert speed is not None
    assert abs(speed - 1000 / 14) < 0.1


def test_a_step_whose_row_was_kept_says_nothing_of_the_speed() -> None:
    view = view_of(paused())
    before = view.speed()
    step = len(view.columns) - 1
    view.columns.flags[step] |= int(Flag.RESTORED)
    view.columns.total_ms[step] = 0.06
    after = view.speed()
    assert before is not None
    assert after is not None
    assert after < before * 1.5


def test_info_of_this_session() -> None:
    view = view_of(paused())
    view.state = state()
    info = view.info
    assert info is not None
    assert info.session == SESSION
