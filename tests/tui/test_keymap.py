"""The action table: complete, without clashes, and the only place of a key."""

from collections import Counter

import pytest
from textual.dom import DOMNode
from textual.keys import Keys

from tui.keymap import ACTIONS, SCOPES, Scope, bindings, in_scope
from tui.panes import PANES
from tui.screens.branches import BranchesScreen
from tui.screens.breakpoints import BreakpointsScreen
from tui.screens.engine import EngineScreen
from tui.screens.force_text import ForceTextScreen
from tui.screens.main import MainScreen
from tui.screens.note import NoteScreen
from tui.screens.notes import NotesScreen
from tui.screens.prompt import PromptScreen
from tui.screens.replay import ReplayScreen
from tui.screens.sampler import SamplerScreen
from tui.screens.sessions import SessionsScreen
from tui.screens.viewers import ViewersScreen

OWNERS: dict[Scope, type[DOMNode]] = {
    "main": MainScreen,
    "breakpoints": BreakpointsScreen,
    "prompt": PromptScreen,
    "sampler": SamplerScreen,
    "sessions": SessionsScreen,
    "branches": BranchesScreen,
    "text": ForceTextScreen,
    "replay": ReplayScreen,
    "viewers": ViewersScreen,
    "engine": EngineScreen,
    "note": NoteScreen,
    "notes": NotesScreen,
}
OWNERS.update({pane.SCOPE: pane for pane in PANES.values() if pane.SCOPE is not None})
NAMED = {key.value for key in Keys} | {"space", "question_mark", "colon", "apostrophe"}
NAMED |= {"left_square_bracket", "right_square_bracket", "left_curly_bracket"}
NAMED |= {"right_curly_bracket", "less_than_sign", "greater_than_sign"}


def test_every_scope_has_an_owner_and_a_title() -> None:
    assert set(OWNERS) == set(SCOPES) == {action.scope for action in ACTIONS}


@pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.id)
def test_every_action_is_whole(action: object) -> None:
    from tui.keymap import Action

    assert isinstance(action, Action)
    assert callable(getattr(OWNERS[action.scope], f"action_{action.name}", None))
    assert action.label
    assert action.help
    for key in action.keys:
        plain = key.split("+")[-1]
        assert len(plain) == 1 or key in NAMED or plain in NAMED, key


@pytest.mark.parametrize("scope", SCOPES)
def test_no_key_twice_in_a_scope(scope: Scope) -> None:
    keys = Counter(key for action in in_scope(scope) for key in action.keys)
    assert [key for key, times in keys.items() if times > 1] == []


@pytest.mark.parametrize("scope", ["sequence", "tokens", "next", "cost"])
def test_panes_shadow_only_movement(scope: Scope) -> None:
    """A pane may take a key of the screen only where the screen has none: but for enter, which
    leads to the candidates first and forces there."""
    main = {key for action in in_scope("main") for key in action.keys} - {"enter"}
    assert main & {key for action in in_scope(scope) for key in action.keys} == set()


def test_ids_are_unique() -> None:
    ids = [action.id for action in ACTIONS]
    assert len(ids) == len(set(ids))
    for scope in SCOPES:
        names = [getattr(binding, "id", None) for binding in bindings(scope)]
        assert None not in names
        assert len(names) == len(set(names))


def test_hjkl_work_beside_the_arrows() -> None:
    for arrow, letter in (("left", "h"), ("right", "l"), ("up", "k"), ("down", "j")):
        for action in ACTIONS:
            if action.scope in ("prompt", "sampler"):  # letters are typed there
                assert letter not in action.keys
                continue
            assert (arrow in action.keys) == (letter in action.keys)
