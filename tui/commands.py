"""The command palette, made from the action table, and the themes.

Knows names of actions; the main screen runs them.
"""

from functools import partial

from textual.command import DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from tui.keymap import ACTIONS, Scope, in_scope, key_name
from tui.theming import offered


class ActionProvider(Provider):
    """Every action that the palette may offer, with its help line and key."""

    def _entries(self) -> list[tuple[str, str, str]]:
        """(what is shown, action, help) of the main screen and of the focused pane's scope."""
        screen = self.screen
        scopes: list[Scope] = getattr(screen, "SCOPES", ["main"])
        unusable: frozenset[str] = getattr(screen, "unusable", frozenset())
        focused = None if screen.focused is None else getattr(screen.focused, "SCOPE", None)
        entries = [
            (f"{a.label}  ({key_name(a.keys[0])})", _target(a.scope, a.name), a.help)
            for a in ACTIONS
            if a.palette and a.scope in (*scopes, focused) and a.id not in unusable
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
        """Those whose name or help matches."""
        matcher = self.matcher(query)
        for name, action, help_line in self._entries():
            score = max(matcher.match(name), matcher.match(help_line) * 0.5)
            if score > 0:
                yield Hit(
                    score, matcher.highlight(name), partial(self._run, action), name, help_line
                )

    async def _run(self, action: str) -> None:
        target = self.screen.focused if action.startswith("focused.") else self.screen
        await self.app.run_action(action.removeprefix("focused."), default_namespace=target)


def _target(scope: str, name: str) -> str:
    return name if scope in ("main", "replay") else f"focused.{name}"
