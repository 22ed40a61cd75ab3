"""What a model directory says of its tokenizer beside tokenizer.json.

Reads tokenizer_config.json, chat_template.jinja and config.json; knows no tokenizer library.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from engine_daemon.errors import Exit, InspectError

_CONTEXT_KEYS: Final = (
    "max_position_embeddings",
    "n_positions",
    "max_sequence_length",
    "seq_length",
    "n_ctx",
)
"""Names that model families give their number of positions."""


_MEDIA_KEYS: Final = tuple(
    f"{kind}_token_{what}" for kind in ("image", "video", "audio") for what in ("id", "index")
)
"""Where config.json names the tokens in whose place a model would put what it sees or hears."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`specials`: special tokens by role (`bos_token` …); `template`: source of the chat template;
    `media`: ids that stand for an image, a video or a sound.

    `add_bos_token` and its like are not read: beside a tokenizer.json, transformers ignores them.
    """

    specials: dict[str, str]
    template: str | None
    context_length: int | None
    media: frozenset[int] = frozenset()


def read_settings(model_dir: Path) -> Settings:
    """The settings in `model_dir`; InspectError (exit 3) for a file that cannot be used."""
    config = _read_json(model_dir / "tokenizer_config.json")
    model = _read_json(model_dir / "config.json")
    return Settings(
        specials=_specials(config),
        template=_template(model_dir / "chat_template.jinja", config),
        context_length=_context_length(model),
        media=frozenset(x for key in _MEDIA_KEYS if isinstance(x := model.get(key), int)),
    )


def unusable(path: Path, reason: object) -> InspectError:
    """The error for a file of the model that cannot be used."""
    return InspectError(
        f"cannot use {path}: {' '.join(str(reason).split())[:200]}",
        "Download the model again, or choose another one with --model",
        exit_code=Exit.MODEL,
        code="bad_tokenizer",
    )


def _read_json(path: Path) -> dict[str, object]:
    """The object in a file; empty when there is no such file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, object])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise unusable(path, error) from error


def _specials(config: dict[str, object]) -> dict[str, str]:
    extra = config.get("extra_special_tokens")
    named = config | (extra if isinstance(extra, dict) else {})
    contents = {key: _content(value) for key, value in named.items() if key.endswith("_token")}
    return {key: content for key, content in contents.items() if content is not None}


def _content(token: object) -> str | None:
    """A token's text: plain, or the `content` of an object."""
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def _template(path: Path, config: dict[str, object]) -> str | None:
    """The file if there is one, else the configuration's: one, or one of several by name."""
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise unusable(path, error) from error
    template = config.get("chat_template")
    if isinstance(template, list):
        named = [each for each in template if isinstance(each, dict)]
        template = {each.get("name"): each.get("template") for each in named}
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None


def _context_length(config: dict[str, object]) -> int | None:
    inner = (config.get("text_config"), config.get("llm_config"))
    for part in (config, *(each for each in inner if isinstance(each, dict))):
        for key in _CONTEXT_KEYS:
            value = part.get(key)
            if isinstance(value, int) and value > 0:
                return value
    return None
