"""Themes as files and the styles that panes draw with. Colours exist in `themes/*.toml` only.

Knows roles and how they become styles; nothing of what is drawn with them.
"""

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.color import Color as RichColor
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from engine_daemon.errors import InspectError

DEFAULT_THEME: Final = "ink"
COLOURLESS_THEME: Final = "ansi-dark"
"""Where no colour may be sent: the terminal's own palette, of which nothing is then used."""
ROLES: Final = (
    "muted",
    "border-quiet",
    "border-focus",
    "prob-high",
    "prob-mid",
    "prob-low",
    "shade-high",
    "shade-mid",
    "shade-low",
    "entropy",
    "token-prompt",
    "token-prompt-alt",
    "token-special",
    "token-sampled",
    "token-forced",
    "cursor-step",
    "chosen",
    "dropped",
    "stage-lit",
    "plot-line",
    "plot-mark",
    "badge-text",
)
"""What a theme file has to name under `[roles]`."""
TEXT_ROLES: Final = tuple(
    role for role in ROLES if not role.startswith(("border-", "shade-", "badge-", "token-prompt-"))
)
"""Roles that colour text on `background`."""
_BASE: Final = (
    "primary",
    "secondary",
    "accent",
    "foreground",
    "background",
    "surface",
    "panel",
    "success",
    "warning",
    "error",
)
TERMINAL_ROLES: Final[Mapping[str, str]] = {
    "muted": "ansi_default",
    "border-quiet": "ansi_bright_black",
    "border-focus": "ansi_cyan",
    "prob-high": "ansi_blue",
    "prob-mid": "ansi_yellow",
    "prob-low": "ansi_red",
    "shade-high": "ansi_default",
    "shade-mid": "ansi_default",
    "shade-low": "ansi_default",
    "entropy": "ansi_magenta",
    "token-prompt": "ansi_default",
    "token-prompt-alt": "ansi_default",
    "token-special": "ansi_cyan",
    "token-sampled": "ansi_green",
    "token-forced": "ansi_yellow",
    "cursor-step": "ansi_yellow",
    "chosen": "ansi_green",
    "dropped": "ansi_default",
    "stage-lit": "ansi_yellow",
    "plot-line": "ansi_blue",
    "plot-mark": "ansi_yellow",
    "badge-text": "ansi_black",
}
"""Roles where a theme says nothing, and of the themes that use the terminal's own palette."""


def folders(config: Path | None = None) -> list[Path]:
    """Where theme files lie: in the package, in the repository, in the user's directory."""
    here = Path(__file__).resolve().parent
    found = [here / "themes", here.parent / "themes"]
    if config is not None:
        found.append(config / "themes")
    return [folder for folder in found if folder.is_dir()]


def read_theme(path: Path) -> Theme:
    """One theme file; InspectError when it is none."""
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
        roles = {role: str(table["roles"][role]) for role in ROLES}
        base = {name: str(table[name]) for name in _BASE}
        for value in (*roles.values(), *base.values()):
            Color.parse(value)
        return Theme(
            name=str(table["name"]),
            dark=bool(table["dark"]),
            **base,  # type: ignore[arg-type]  # every key of _BASE is a colour
            variables=roles | _chrome(base, roles),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InspectError(
            f"{path} is no theme: {error}", f"Compare it with themes/{DEFAULT_THEME}.toml"
        ) from None


def _chrome(base: Mapping[str, str], roles: Mapping[str, str]) -> dict[str, str]:
    """Textual's own variables, set from ours so that no widget brings a colour of its own."""
    return {
        "border": roles["border-focus"],
        "border-blurred": roles["border-quiet"],
        "footer-background": base["panel"],
        "footer-key-foreground": base["accent"],
        "footer-description-foreground": base["foreground"],
        "block-cursor-background": base["primary"],
        "block-cursor-foreground": roles["badge-text"],
        "scrollbar": roles["border-quiet"],
        "scrollbar-background": base["background"],
        "scrollbar-corner-color": base["background"],
    }


def read_themes(config: Path | None = None) -> dict[str, Theme]:
    """Every theme by name; a user's file replaces one of ours, a broken one is skipped."""
    themes: dict[str, Theme] = {}
    for folder in folders(config):
        for path in sorted(folder.glob("*.toml")):
            try:
                theme = read_theme(path)
            except InspectError:
                if config is not None and folder.parent == config:
                    continue
                raise
            themes[theme.name] = theme
    return themes


def offered(available: Mapping[str, Theme]) -> list[str]:
    """The themes to choose from: those with our roles, and the terminal's own palette."""
    return sorted(
        name for name, theme in available.items() if theme.ansi or "cursor-step" in theme.variables
    )


def contrast(one: str, other: str) -> float:
    """WCAG contrast ratio of two colours, 1 … 21."""
    lights = sorted(_luminance(Color.parse(colour)) for colour in (one, other))
    return (lights[1] + 0.05) / (lights[0] + 0.05)


def _luminance(colour: Color) -> float:
    parts = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (colour.r / 255, colour.g / 255, colour.b / 255)
    ]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def _rich(value: str) -> RichColor | None:
    """A theme variable as Rich's colour; None = the terminal's default."""
    colour = Color.parse(value)
    if colour.ansi is not None:
        return None if colour.ansi < 0 else RichColor.from_ansi(colour.ansi)
    return colour.rich_color


@dataclass(frozen=True, slots=True)
class Palette:
    """The styles of the theme in force. Each differs from its neighbours by more than its hue."""

    base: Style
    surface: Style
    muted: Style
    title: Style
    accent: Style
    success: Style
    warning: Style
    error: Style
    prompt: Style
    prompt_alt: Style
    special: Style
    forced: Style
    sampled: Style
    cursor: Style
    chosen: Style
    dropped: Style
    entropy: Style
    lit: Style
    plot: Style
    mark: Style
    badge: Style
    badge_quiet: Style
    alarm: Style
    mark_badge: Style
    key: Style
    bar: Style
    row: Style
    row_quiet: Style
    prob: tuple[Style, Style, Style]
    shade: tuple[Style, Style, Style, Style, Style]

    def by_prob(self, prob: float) -> Style:
        """Colour of a figure or bar of this probability."""
        return self.prob[0 if prob >= 0.5 else 1 if prob >= 0.1 else 2]

    def shaded(self, prob: float) -> Style:
        """A token of running text: the less probable, the stronger its ground."""
        steps = (0.75, 0.5, 0.25, 0.1)
        return self.shade[sum(prob < step for step in steps)]


def palette(variables: Mapping[str, str]) -> Palette:
    """The styles for an app's theme variables."""
    values = {**TERMINAL_ROLES, **variables}
    ground = _rich(values["background"])

    def on(role: str, bold: bool = False, reverse: bool = False) -> Style:
        return Style(color=_rich(values[role]), bgcolor=ground, bold=bold, reverse=reverse)

    def quiet(role: str) -> Style:
        """Less than plain text, also where the terminal's own colour is all there is."""
        return on(role) + Style(dim=True) if _rich(values[role]) is None else on(role)

    def filled(role: str) -> Style:
        """Reversed, so that it is a badge without colour too. In the terminal's own palette the
        text is its background: only that surely stands out from what its colours are read on."""
        own = Color.parse(values[role]).ansi is not None
        text = None if own else _rich(values["badge-text"])
        return Style(color=_rich(values[role]), bgcolor=text, bold=True, reverse=True)

    text = _rich(values["foreground"])
    plain = Style(color=text, bgcolor=ground)
    return Palette(
        base=plain,
        surface=Style(color=text, bgcolor=_rich(values["surface"])),
        muted=quiet("muted"),
        title=on("foreground", bold=True),
        accent=on("accent", bold=True),
        success=on("success", bold=True),
        warning=on("warning", bold=True),
        error=on("error", bold=True),
        prompt=quiet("token-prompt"),
        prompt_alt=Style(
            color=_rich(values["token-prompt"]), bgcolor=_rich(values["token-prompt-alt"])
        ),
        special=on("token-special", reverse=True),
        forced=on("token-forced", bold=True),
        sampled=on("token-sampled"),
        cursor=filled("cursor-step"),
        chosen=on("chosen", bold=True),
        dropped=quiet("dropped"),
        entropy=on("entropy"),
        lit=filled("stage-lit"),
        plot=on("plot-line", bold=True),
        mark=on("plot-mark"),
        badge=filled("primary"),
        badge_quiet=filled("muted"),
        alarm=filled("error"),
        mark_badge=filled("plot-mark"),
        key=Style(color=_rich(values["accent"]), bgcolor=_rich(values["panel"]), bold=True),
        bar=Style(color=text, bgcolor=_rich(values["panel"])),
        row=filled("primary"),
        row_quiet=Style(color=text, bgcolor=_rich(values["panel"]), bold=True),
        prob=(on("prob-high"), on("prob-mid"), on("prob-low")),
        shade=_shades(values, text),
    )


def _shades(
    values: Mapping[str, str], text: RichColor | None
) -> tuple[Style, Style, Style, Style, Style]:
    """Five grounds from probable to improbable; the lowest also underlined (no hue needed)."""
    high, mid, low = (Color.parse(values[f"shade-{name}"]) for name in ("high", "mid", "low"))
    if high.ansi is not None or mid.ansi is not None or low.ansi is not None:
        ink = [_rich(values[f"prob-{name}"]) for name in ("high", "mid", "low")]
        plain = Style(color=text)
        return (
            plain,
            plain,
            Style(color=ink[1]),
            Style(color=ink[1], underline=True),
            Style(color=ink[2], underline=True, bold=True),
        )
    grounds: Iterable[Color] = (high, high.blend(mid, 0.6), mid, mid.blend(low, 0.6), low)
    one, two, three, four, five = (Style(color=text, bgcolor=g.rich_color) for g in grounds)
    return one, two, three, four, five + Style(underline=True)
