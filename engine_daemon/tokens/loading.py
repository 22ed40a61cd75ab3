"""Model directory → tokenizer. Imports the library that reads it only when one is asked for.

Knows which files a tokenizer is made of, not what is in them.
"""

from pathlib import Path

from engine_daemon.errors import Exit, InspectError
from engine_daemon.installing import IN_A_CLONE
from engine_daemon.tokens.builtin import BuiltinTokenizer
from engine_daemon.tokens.settings import read_settings, unusable
from engine_daemon.tokens.tokenizer import Tokenizer


def load_tokenizer(model_dir: str) -> Tokenizer:
    """The tokenizer in `model_dir`, or the built-in one for "". InspectError (exit 3) otherwise."""
    if not model_dir:
        return BuiltinTokenizer()
    path = Path(model_dir) / "tokenizer.json"
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        raise InspectError(
            f"{model_dir} has no tokenizer.json",
            "Make it once with transformers: "
            "AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR)",
            exit_code=Exit.MODEL,
            code="no_tokenizer",
        ) from None
    except OSError as error:
        raise unusable(path, error) from error
    try:
        from engine_daemon.tokens.hf import HfTokenizer
    except ImportError as error:
        raise InspectError(
            f"a real model's tokenizer needs the engine packages: {error}",
            IN_A_CLONE,
            exit_code=Exit.MODEL,
            code="no_engine_packages",
        ) from error
    try:
        return HfTokenizer(raw, read_settings(path.parent))
    except ValueError as error:
        raise unusable(path, error) from error
