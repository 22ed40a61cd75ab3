"""GGUF to safetensors: dequantised to bf16 once, with tokenizer and chat template.

Knows how a converted folder is filled and named; where it comes from is the caller's matter.
"""

import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from engine_daemon.errors import Exit, InspectError
from engine_daemon.model_store import MANIFEST, models_folder
from engine_daemon.outside import parse_json
from engine_daemon.worker.backends.base import ProgressFn
from engine_daemon.worker.building import build_once, check_room
from engine_daemon.worker.checkpoint import refuse
from engine_daemon.worker.counting import counted_header, counted_tensors
from engine_daemon.worker.watching import watch

LAYOUT: Final = 1
"""Raised when the way of converting changes: older conversions are then made anew."""
_TYPES: Final = "gguf-types.json"
"""In the folder: what the tensors were, where it was converted by a version that noted it."""
_FLOATS: Final = ("F32", "F16", "BF16", "F64")
_A_NUMBER: Final = 12
"""Bytes a number of the tensor that is just converted takes: in fp32, in bf16, and what is in
between."""
_SAMPLES: Final = 64
_SAMPLE_BYTES: Final = 64 * 1024


def convert_file(source: Path, cache_dir: str, progress: ProgressFn) -> Path:
    """The converted folder of a `.gguf` file; made now if it is not in the cache."""
    try:
        mark = fingerprint(source)
    except OSError as error:
        refuse(f"cannot read {source}: {error.strerror or error}")
    folder = models_folder(cache_dir) / f"{source.stem}-{mark[:8]}"
    return build_once(
        folder,
        lambda part: fill_from_gguf(source, part, progress),
        manifest("gguf", source.name, mark),
        lambda: progress("wait for another conversion", 0, 0),
    )


def manifest(kind: str, name: str, sha256: str) -> bytes:
    """What the folder was made from, as the file that marks it complete."""
    content = {"layout": LAYOUT, "kind": kind, "name": name, "sha256": sha256}
    return json.dumps(content, indent=1).encode() + b"\n"


def fingerprint(path: Path) -> str:
    """SHA-256 over the size and evenly spread samples: a file of many gigabytes is told apart from
    another without reading it whole at each start."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        digest = hashlib.sha256(str(size).encode())
        for i in range(_SAMPLES):
            file.seek(max(0, size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
            digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()


def fill_from_gguf(source: Path, folder: Path, progress: ProgressFn) -> None:
    """Write safetensors, configuration, tokenizer and chat template into `folder`."""
    progress("import", 0, 0)
    size, tensors = _whole(source)
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    from engine_daemon.worker.fitting import Need, check_memory
    from engine_daemon.worker.loading import loading_progress
    from engine_daemon.worker.placement import Place

    numbers = [math.prod(it.shape) for it in tensors]
    need = Need(2 * sum(numbers), _A_NUMBER * max(numbers, default=0))
    check_memory("bf16", {"bf16": need}, Place((torch.device("cpu"),)))
    onward = _only_onward(progress)
    try:
        with loading_progress(onward, {}, "convert", size):
            with counted_header(progress, "read header"), counted_tensors(onward, "convert", size):
                model = AutoModelForCausalLM.from_pretrained(
                    str(source.parent),
                    gguf_file=source.name,
                    quantization_config=GgufConfig(dequantize=True),
                    dtype=torch.bfloat16,
                    local_files_only=True,
                )
            with counted_header(progress, "tokenizer"):
                tokenizer = AutoTokenizer.from_pretrained(
                    str(source.parent), gguf_file=source.name, local_files_only=True
                )
            _write(model, folder, progress)
            tokenizer.save_pretrained(folder)
            (folder / _TYPES).write_text(json.dumps(_types(tensors)))
    except (InspectError, OSError):
        raise
    except Exception as error:  # tokenizers raises bare ones
        check_room(str(error))
        raise InspectError(
            f"{source.name} cannot be converted: {_first_line(error)}",
            "Use a GGUF of an architecture transformers can read, or a safetensors checkpoint",
            exit_code=Exit.MODEL,
            code="model",
        ) from error


def _write(model: Any, folder: Path, progress: ProgressFn) -> None:
    """Save it, and tell how the folder grows."""
    total = model.num_parameters() * 2
    progress("write", 0, total)
    with ThreadPoolExecutor(1) as pool:
        saving = pool.submit(model.save_pretrained, folder)
        watch(lambda seconds: bool(wait([saving], seconds).done), folder, "write", total, progress)
        saving.result()


def _only_onward(progress: ProgressFn) -> ProgressFn:
    """Some architectures are walked over twice, some once: the bytes shown never go back."""
    furthest = -1

    def onward(stage: str, done: int, total: int) -> None:
        nonlocal furthest
        if done > furthest:
            furthest = done
            progress(stage, done, total)

    return onward


def _whole(source: Path) -> tuple[int, Sequence[Any]]:
    """The file's size, when all of it is there, and what it says of each tensor."""
    from transformers.integrations.gguf.reader import GgufHeader

    size = source.stat().st_size
    try:
        header = GgufHeader.from_file(str(source))
        end = max((x.offset + x.nbytes for x in header.tensors), default=0) + header.data_start
    except Exception as error:  # noqa: BLE001  a damaged file breaks the reader in any way
        refuse(f"{source} is truncated or no GGUF: {_first_line(error)}", "Download it again")
    if end > size:
        refuse(f"{source} is truncated: it should hold {end} bytes and holds {size}")
    return size, header.tensors


def _types(tensors: Sequence[Any]) -> dict[str, int]:
    """How many tensors there are of each type, by GGUF's own names."""
    from gguf import GGMLQuantizationType

    return dict(Counter(GGMLQuantizationType(it.ggml_type).name for it in tensors).most_common())


def converted_note(folder: Path) -> list[str]:
    """What to know of a model that was converted: a sentence, or none where it was not."""
    source = ""
    types: dict[str, int] = {}
    with suppress(FileNotFoundError, KeyError, ValueError, TypeError):
        made = parse_json((folder / MANIFEST).read_bytes())
        source = str(made["name"]).rpartition(" ")[2]
        types = parse_json((folder / _TYPES).read_bytes())
    if not source.endswith(".gguf"):
        return []
    blocks = [name for name in types if name not in _FLOATS]
    if types and not blocks:
        return [f"{source} is a GGUF in {' and '.join(types)}: its weights are converted to bf16"]
    kinds = f" ({', '.join(blocks)})" if blocks else ""
    return [f"{source} is a GGUF: its weights{kinds} are dequantised to bf16"]


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
