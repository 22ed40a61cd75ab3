"""Themes: complete, readable, and never the only bearer of a meaning."""

from pathlib import Path

import pytest
from textual.theme import BUILTIN_THEMES

from engine_daemon.errors import InspectError
from engine_daemon.theme_names import theme_names
from tui.theming import (
    DEFAULT_THEME,
    ROLES,
    TERMINAL_ROLES,
    TEXT_ROLES,
    contrast,
    offered,
    palette,
    read_theme,
    read_themes,
)

THEMES = read_themes()


def test_one_dark_and_one_light() -> None:
    assert DEFAULT_THEME in THEMES
    assert {theme.dark for theme in THEMES.values()} == {True, False}


@pytest.mark.parametrize("name", THEMES)
def test_text_can_be_read(name: str) -> None:
    theme = THEMES[name]
    ground = str(theme.background)
    for role in TEXT_ROLES:
        assert contrast(theme.variables[role], ground) >= 4.5, role
    for value in (theme.foreground, theme.error, theme.warning, theme.success, theme.accent):
        assert contrast(str(value), ground) >= 4.5, value
    for shade in ("shade-high", "shade-mid", "shade-low", "token-prompt-alt"):
        assert contrast(str(theme.foreground), theme.variables[shade]) >= 4.5, shade
    assert contrast(theme.variables["token-prompt"], theme.variables["token-prompt-alt"]) >= 4.5
    for filled in ("cursor-step", "stage-lit", "muted", "plot-mark"):
        assert contrast(theme.variables["badge-text"], theme.variables[filled]) >= 4.5, filled
    for value in (theme.primary, theme.error):
        assert contrast(theme.variables["badge-text"], str(value)) >= 4.5
    assert contrast(str(theme.accent), str(theme.panel)) >= 4.5


def test_the_configuration_knows_the_themes_that_are_offered(tmp_path: Path) -> None:
    assert theme_names(tmp_path) == offered({**BUILTIN_THEMES, **THEMES})


def test_terminal_themes_know_every_role() -> None:
    assert set(TERMINAL_ROLES) == set(ROLES)
    assert {"ansi-dark", "ansi-light"} <= set(offered({**BUILTIN_THEMES, **THEMES}))
    assert "textual-dark" not in offered(BUILTIN_THEMES)


@pytest.mark.parametrize("theme", [*THEMES.values(), BUILTIN_THEMES["ansi-dark"]])
def test_meaning_is_not_in_the_hue_alone(theme: object) -> None:
    from textual.theme import Theme

    assert isinstance(theme, Theme)
    colours = palette({**theme.to_color_system().generate(), **theme.variables})
    assert colours.shaded(0.01).underline
    assert not colours.shaded(0.9).underline
    assert colours.forced.bold
    assert colours.special.reverse
    assert colours.chosen.bold


@pytest.mark.parametrize("name", [*THEMES, "ansi-dark", "ansi-light"])
def test_every_badge_can_be_read_everywhere(name: str) -> None:
    theme = {**BUILTIN_THEMES, **THEMES}[name]
    colours = palette({**theme.to_color_system().generate(), **theme.variables})
    badges = ("badge", "badge_quiet", "alarm", "mark_badge", "lit", "cursor", "row")
    for badge in badges:
        style = getattr(colours, badge)
        assert style.reverse, badge
        if theme.ansi:
            assert style.bgcolor is None or style.bgcolor.is_default, badge


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_text('name = "x"\ndark = true\n')
    with pytest.raises(InspectError, match=r"x\.toml"):
        read_theme(path)


def test_a_users_broken_theme_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "themes").mkdir()
    (tmp_path / "themes" / "bad.toml").write_text("not toml [")
    source = Path(__file__).parents[2] / "themes" / "ink.toml"
    text = source.read_text().replace('name = "ink"', 'name = "mine"')
    (tmp_path / "themes" / "mine.toml").write_text(text)
    assert set(read_themes(tmp_path)) == {*THEMES, "mine"}


def test_contrast_of_black_and_white() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
