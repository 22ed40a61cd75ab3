"""A list to choose from, that stands on a terminal without a line for it.

Knows nothing of what is chosen.
"""

from textual.widgets import OptionList


class Choices(OptionList):
    """Textual's list, where a page of no height is no page: Textual looks up a line that it has
    not laid out."""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """No page where there is no line."""
        if action in ("page_up", "page_down") and not has_room(self):
            return False
        return super().check_action(action, parameters)


def has_room(choices: OptionList) -> bool:
    """There is a cell for the list, so that it knows its lines."""
    return bool(choices.scrollable_content_region)
