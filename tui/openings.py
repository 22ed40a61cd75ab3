"""What a new prompt starts from: the session on screen, as far as its log tells.

Knows commands and the view; no widgets.
"""

from engine_daemon.protocol.commands import Open
from engine_daemon.protocol.values import PromptSpec
from tui.view import View


class Openings:
    """The commands that opened sessions here, by session; the last one for want of another."""

    def __init__(self) -> None:
        self._commands: dict[str, Open] = {}
        self._last = Open(prompt=PromptSpec(text=b""))

    def remember(self, session: str, command: Open) -> None:
        """This opened that."""
        self._commands[session] = self._last = command

    def next(self, view: View) -> Open:
        """The command that would open the session on screen again.

        A log has no message apart from its template: of somebody else's chat it is the whole text.
        """
        columns, limits = view.columns, view.columns.limits
        if columns.prompt is None or limits is None:
            return self._last
        ours = self._commands.get(view.session or "")
        return Open(
            prompt=PromptSpec(text=columns.prompt.text) if ours is None else ours.prompt,
            sampler=columns.sampler,
            candidates=limits.candidates,
            cache_mode=limits.cache_mode,
            max_steps=limits.max_steps,
            limit_tokens=limits.limit_tokens,
        )
