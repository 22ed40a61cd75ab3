"""The fields of a sampler. Checks what was typed; knows nothing of sessions.

The neutral value of each field changes nothing; with greedy on, the five of the draw do not apply
and are dim; editing one of them switches greedy off.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from textual.app import ComposeResult
from textual.containers import Grid, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Label, Static

from engine_daemon.errors import InspectError
from engine_daemon.options import SAMPLER_RANGES
from engine_daemon.protocol.values import Sampler
from tui.text import SafeText
from tui.widgets.toggle import Toggle


@dataclass(frozen=True, slots=True)
class Field:
    """One number: its name in `Sampler`, what is typed for it, and which values it may have."""

    name: str
    label: str
    hint: str
    check: Callable[[float], bool]
    allowed: str
    whole: bool = False
    draw: bool = False


def _in_range(name: str) -> Callable[[float], bool]:
    least, most = SAMPLER_RANGES[name]
    return lambda value: least <= value <= most


def _range(name: str) -> str:
    return "from {:g} to {:g}".format(*SAMPLER_RANGES[name])


FIELDS: Final = (
    Field(
        "temperature",
        "temperature",
        "0 = greedy",
        lambda value: value == 0 or _in_range("temperature")(value),
        f"0 for greedy, or {_range('temperature')}",
        draw=True,
    ),
    Field(
        "top_k",
        "top-k",
        "0 = off",
        lambda v: 0 <= v < 2**31,
        "a whole number from 0 to 2147483647",
        whole=True,
        draw=True,
    ),
    Field(
        "top_p", "top-p", "0 – 1, 1 = off", lambda v: 0 < v <= 1, "above 0, at most 1", draw=True
    ),
    Field("min_p", "min-p", "0 – 1, 0 = off", lambda v: 0 <= v <= 1, "from 0 to 1", draw=True),
    Field(
        "seed",
        "seed",
        "empty = random",
        lambda v: 0 <= v < 2**64,
        "a whole number below 2^64, or nothing for a random one",
        whole=True,
        draw=True,
    ),
    *(
        Field(name, label, hint, _in_range(name), _range(name))
        for name, label, hint in (
            ("repetition_penalty", "repetition", "1 = off"),
            ("presence_penalty", "presence", "0 = off"),
            ("frequency_penalty", "frequency", "0 = off"),
        )
    ),
)


class SamplerForm(Vertical):
    """A toggle for greedy and one input a field."""

    class Changed(Message):
        """Something else is typed or chosen now."""

    def __init__(self, sampler: Sampler, form_id: str = "sampler-form") -> None:
        super().__init__(id=form_id)
        self._sampler = sampler
        self._texts: dict[str | None, str] = {}

    def compose(self) -> ComposeResult:
        """The toggle, then label, input and hint a field."""
        hint = SafeText("always the most probable token")
        yield Toggle(SafeText("greedy"), hint, self._sampler.greedy, "greedy")
        with Grid(id="fields"):
            for field in FIELDS:
                value = getattr(self._sampler, field.name)
                text = "" if field.name == "seed" and not value else f"{value:g}"
                text = str(value) if field.whole and text else text
                self._texts[f"field-{field.name}"] = text
                yield Label(Content(field.label), classes="field-label")
                yield Input(
                    text,
                    restrict=r"[0-9.\-]{0,20}",
                    id=f"field-{field.name}",
                    compact=True,
                    select_on_focus=True,
                    placeholder=field.hint if field.name == "seed" else "",
                )
                yield Static(Content(field.hint), classes="field-hint", id=f"hint-{field.name}")

    def on_mount(self) -> None:
        """Dim what does not apply."""
        self._dim(self._sampler.greedy)

    def on_toggle_changed(self, event: Toggle.Changed) -> None:
        """Greedy on or off."""
        event.stop()
        self._dim(event.toggle.value)
        self.post_message(self.Changed())

    def on_input_changed(self, event: Input.Changed) -> None:
        """Another number; one of the draw asks for a draw, so greedy goes."""
        event.stop()
        name = event.input.id
        if event.value == self._texts.get(name):  # what it began with is told, too
            return
        self._texts[name] = event.value
        if event.input.has_class("-idle"):
            self.query_one("#greedy", Toggle).value = False
            self._dim(False)
        self.post_message(self.Changed())

    def _dim(self, greedy: bool) -> None:
        for field in FIELDS:
            if field.draw:
                self.query_one(f"#field-{field.name}", Input).set_class(greedy, "-idle")

    def value(self) -> Sampler:
        """The sampler; InspectError that names the field when one is wrong.

        Temperature 0 is greedy, as on the command line.
        """
        greedy = self.query_one("#greedy", Toggle).value
        greedy = greedy or self._number(FIELDS[0]) == 0
        values = {
            field.name: self._number(field) for field in FIELDS if not (greedy and field.draw)
        }
        return Sampler(greedy=greedy, **values)  # type: ignore[arg-type]  # ints where ints belong

    def _number(self, field: Field) -> float | int:
        text = self.query_one(f"#field-{field.name}", Input).value.strip()
        if not text and field.name == "seed":
            return secrets.randbits(53)
        try:
            value = int(text) if field.whole else float(text)
        except ValueError:
            value = float("nan")
        if not field.check(value):
            raise InspectError(f"{field.label} cannot be {text or 'empty'}: {field.allowed}")
        return value
