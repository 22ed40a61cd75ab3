"""The command palette, made from the action table, and the themes.

Knows names of actions; the main screen runs them.
"""

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from tui.keymap import ACTIONS, PANE_SCOPES, Action, Scope, in_scope, key_name, lone
from tui.theming import offered


class ActionProvider(Provider):
    """Every action that the palette may offer, with its help line and key."""

    def _entries(self) -> list[tuple[str, str, str]]:
        """(what is shown, action, help) of the main screen and of the focused pane's scope; and of
        other panes what works wherever the focus is."""
        screen = self.screen
        scopes: list[Scope] = getattr(screen, "SCOPES", ["main"])
        unusable: frozenset[str] = getattr(screen, "unusable", frozenset())
        focused = None if screen.focused is None else getattr(screen.focused, "SCOPE", None)
        panes = PANE_SCOPES if "main" in scopes else ()
        entries = [
            (f"{a.label}  ({key_name(a.keys[0])})", _target(a), a.help)
            for a in ACTIONS
            if a.palette and a.id not in unusable
            if a.scope in (*scopes, focused) or (a.scope in panes and lone(a.keys[0]) is a)
            # What another scope does on the same name comes instead.
            if a.scope == scopes[0] or a.name not in {b.name for b in in_scope(scopes[0])}
        ]
        return entries + [
            (f"theme: {name}", f"app.use_theme('{name}')", "Use this theme")
            for name in offered(self.app.available_themes)
        ]

    async def discover(self) -> Hits:
        """All of them, in the table's order."""
        for name, action, help_line in self._entries():
            yield DiscoveryHit(Content(name), partial(self._run, action), text=name, help=help_line)

    async def search(self, query: str) -> Hits:
        """Those that have every word of it: enter runs the first one, which must not be another
        than was meant. Best is a name that begins with it."""
        for name, action, help_line in self._entries():
            score = closeness(query, name, help_line)
            if score > 0:
                shown = Content(name)
                for start, end in _places(query, name):
                    shown = shown.stylize(self.match_style or "reverse", start, end)
                yield Hit(score, shown, partial(self._run, action), name, help_line)

    async def _run(self, action: str) -> None:
        target = self.screen.focused if action.startswith("focused.") else self.screen
        await self.app.run_action(action.removeprefix("focused."), default_namespace=target)


def closeness(query: str, name: str, help_line: str) -> float:
    """How well an action fits what was typed, 0 to 1; 0 where a word of it is in neither text."""
    typed, title = query.lower().split(), name.lower()
    if not typed or not all(word in title or word in help_line.lower() for word in typed):
        return 0.0
    if title.startswith(" ".join(typed)):
        return 1.0
    return 0.75 if all(word in title for word in typed) else 0.5


def _places(query: str, name: str) -> list[tuple[int, int]]:
    """Where the words stand in a name."""
    found = ((name.lower().find(word), len(word)) for word in query.lower().split())
    return [(start, start + size) for start, size in found if start >= 0]


def _target(action: Action) -> str:
    if action.scope in ("main", "replay"):
        return action.name
    if lone(action.keys[0]) is action:
        return f"in_pane('{action.scope}', '{action.name}')"
    return f"focused.{action.name}"
