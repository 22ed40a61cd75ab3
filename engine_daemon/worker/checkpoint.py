"""Is this folder a checkpoint we may and can load? Read before torch touches a byte of it.

Reads JSON and safetensors headers only. Knows no model classes and no devices.
"""

import hashlib
import json
import math
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from engine_daemon.errors import Exit, InspectError
from engine_daemon.outside import parse_json
from engine_daemon.protocol.values import WeightsFile

_HEADER_LIMIT: Final = 100_000_000
"""The safetensors format's own limit."""
_INDEX: Final = "model.safetensors.index.json"
_PICKLES: Final = ("*.bin", "*.pt", "*.pth", "*.ckpt", "*.pkl")
_BITS: Final = {
    "F4": 4, "F8_E8M0": 8, "F8_E4M3": 8, "F8_E5M2": 8, "BOOL": 8, "U8": 8, "I8": 8,
    "F16": 16, "BF16": 16, "U16": 16, "I16": 16, "F32": 32, "U32": 32, "I32": 32,
    "F64": 64, "U64": 64, "I64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class ShardHeader:
    """What a safetensors file says of itself: `raw` header, bytes of each tensor by name."""

    file: str
    size: int
    raw: bytes
    tensors: dict[str, int]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder that passed the checks: its configuration and its weights files, in order."""

    folder: Path
    config: dict[str, object]
    shards: list[ShardHeader]

    @property
    def size(self) -> int:
        """Bytes of all weights files."""
        return sum(shard.size for shard in self.shards)

    def weights_files(self) -> list[WeightsFile]:
        """As `ready.model` lists them."""
        return [WeightsFile(file=x.file, bytes=x.size) for x in self.shards]

    def weights_id(self) -> str:
        """SHA-256 over each file's name, size and header: cheap, and different for different
        checkpoints of other shape; it does not read the weights."""
        digest = hashlib.sha256()
        for shard in self.shards:
            digest.update(f"{shard.file}\0{shard.size}\0".encode())
            digest.update(shard.raw)
        return digest.hexdigest()


_WHOLE: Final = ("I8", "U8", "I16", "U16", "I32", "U32", "I64", "U64")
_COUNTS: Final = (
    *("vocab_size", "hidden_size", "num_hidden_layers"),
    *("num_attention_heads", "max_position_embeddings"),
)
"""Entries of a configuration that every architecture spelling them so counts with."""


def refuse(message: str, hint: str = "") -> NoReturn:
    """Raise the error of a model that cannot be had or loaded."""
    raise InspectError(message, hint, exit_code=Exit.MODEL, code="model")


def check_folder(folder: Path) -> Checkpoint:
    """The checkpoint in `folder`; InspectError (exit 3) says why it cannot be loaded."""
    if (folder / "adapter_config.json").is_file():
        whole = (folder / "config.json").is_file()
        refuse(
            f"{folder} holds an adapter{' beside its weights' * whole}, which is not supported",
            "Merge it into its base model and give that folder"
            f"{', or move adapter_config.json away' * whole}",
        )
    config = check_config(_json(folder / "config.json", "no configuration"), str(folder))
    shards = [read_header(path) for path in _weights(folder)]
    if not (folder / "tokenizer.json").is_file():
        refuse(
            f"{folder} has no tokenizer.json",
            "Only fast tokenizers are supported: save it once with "
            "AutoTokenizer.from_pretrained(...).save_pretrained(...)",
        )
    if config.get("quantization_config") is None:
        _check_numbers(folder, shards)
    return Checkpoint(folder, config, shards)


def _check_numbers(folder: Path, shards: list[ShardHeader]) -> None:
    """Whole numbers as weights mean a quantisation; without its name they would be taken as they
    are."""
    for shard in shards:
        if not any(f'"{dtype}"'.encode() in shard.raw for dtype in _WHOLE):
            continue
        for name, entry in parse_json(shard.raw).items():
            if name.endswith(".weight") and entry["dtype"] in _WHOLE:
                refuse(
                    f"{folder} stores {name} as {entry['dtype']} and its config.json names no "
                    "quantisation",
                    "Get the checkpoint again, or one that is not quantised",
                )


def check_config(config: dict[str, object], where: str) -> dict[str, object]:
    """The configuration, when it describes a model that may be loaded at all."""
    if "auto_map" in config:
        refuse(
            f"{where} needs code of its own (auto_map), which is never run",
            "Use a checkpoint whose architecture transformers itself has",
        )
    if config.get("is_encoder_decoder"):
        refuse(
            f"{where} is an encoder-decoder model, which is not supported",
            "Use a decoder-only language model",
        )
    if not isinstance(config.get("model_type"), str):
        refuse(f"{where}: config.json names no model_type", "Get the checkpoint again")
    text = config.get("text_config")
    for part in (config, text if isinstance(text, dict) else {}):
        for key in _COUNTS:
            value = part.get(key)
            if value is not None and not (type(value) is int and value > 0):
                refuse(
                    f"{where}: config.json says {key} = {json.dumps(value)[:40]}",
                    "It must be a whole number, 1 or more: get the checkpoint again",
                )
    return config


def _json(path: Path, missing: str) -> dict[str, object]:
    try:
        content = parse_json(path.read_bytes())
    except FileNotFoundError:
        refuse(f"{path.parent} holds {missing} ({path.name})", "Give a folder with a whole model")
    except (OSError, ValueError) as error:
        refuse(f"cannot read {path}: {error}", "Get the checkpoint again")
    if not isinstance(content, dict):
        refuse(f"{path} is no JSON object", "Get the checkpoint again")
    return content


def _weights(folder: Path) -> list[Path]:
    """The weights files, in name order, every one of them present."""
    single = folder / "model.safetensors"
    if single.is_file():
        return [single]
    if (folder / _INDEX).is_file():
        return _indexed(folder)
    found = sorted(x.name for x in folder.glob("*.safetensors"))
    if found:
        refuse(
            f"{folder} has {found[0]} but neither model.safetensors nor {_INDEX}",
            "Get the whole checkpoint",
        )
    pickles = sorted(x.name for pattern in _PICKLES for x in folder.glob(pattern))
    if pickles:
        refuse(
            f"{folder} holds pickle weights only ({pickles[0]}), which can run code: never loaded",
            "Use a checkpoint with safetensors, or convert it elsewhere",
        )
    quantised = sorted(folder.glob("*.gguf"))
    hint = f"Give the file: {quantised[0]}" if quantised else "Give a folder with a whole model"
    refuse(f"{folder} holds no weights (*.safetensors)", hint)


def _indexed(folder: Path) -> list[Path]:
    weight_map = _json(folder / _INDEX, "no index").get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        refuse(f"{folder / _INDEX} has no weight_map", "Get the checkpoint again")
    names = sorted({str(name) for name in weight_map.values()})
    outside = [name for name in names if os.path.basename(name) != name]
    missing = [name for name in names if not (folder / name).is_file()]
    if outside:
        refuse(f"{folder / _INDEX} points outside its folder: {outside[0]}")
    if missing:
        refuse(
            f"{folder} lacks {len(missing)} of {len(names)} weights files, first {missing[0]}",
            "Download the rest",
        )
    return [folder / name for name in names]


def read_header(path: Path) -> ShardHeader:
    """Header of one safetensors file, checked against the file's size: a truncated download is
    found here and not by a bus error in the middle of a step."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = struct.unpack("<Q", file.read(8))[0] if size >= 8 else 0
            if not 2 <= length <= min(_HEADER_LIMIT, size - 8):
                _broken(path, f"{size} bytes with a header of {length}")
            raw = file.read(length)
            header = parse_json(raw)
    except (OSError, ValueError) as error:
        _broken(path, str(error))
    if not isinstance(header, dict):
        _broken(path, "its header is no JSON object")
    header.pop("__metadata__", None)
    try:
        places = {name: _place(entry) for name, entry in header.items()}
    except (KeyError, TypeError, ValueError):
        _broken(path, "its header lists a tensor without dtype, shape or place")
    end = _end_of_data(path, places)
    if end != size - 8 - length:
        _broken(path, f"it should hold {8 + length + end} bytes and holds {size}")
    return ShardHeader(path.name, size, raw, {n: b - a for n, (a, b) in places.items()})


def _end_of_data(path: Path, places: dict[str, tuple[int, int]]) -> int:
    """Where the data must end; the tensors have to follow each other without a gap."""
    end = 0
    for name, (first, last) in sorted(places.items(), key=lambda item: item[1]):
        if first != end:
            _broken(path, f"tensor {name} does not follow the one before")
        end = last
    return end


def _place(entry: dict[str, Any]) -> tuple[int, int]:
    """First and last byte of a tensor; ValueError when its shape does not fill it."""
    first, last = (int(x) for x in entry["data_offsets"])
    bits = _BITS.get(entry["dtype"])
    filled = bits is None or bits * math.prod(entry["shape"]) == 8 * (last - first)
    if not (filled and 0 <= first <= last):
        raise ValueError("shape and place disagree")
    return first, last


def _broken(path: Path, why: str) -> NoReturn:
    refuse(f"{path} is truncated or damaged: {why}", "Download it again")
