"""Load a checked checkpoint with transformers: dtype, ranks, progress, and errors in plain words.

Knows nothing of sessions and caches, nor where the checkpoint came from.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
import transformers
from safetensors import SafetensorError
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.cache_utils import get_layer_types_and_kwargs
from transformers.distributed import DistributedConfig
from transformers.quantizers.auto import AUTO_QUANTIZATION_CONFIG_MAPPING
from transformers.utils import logging as hf_logging

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker.backends.base import ProgressFn
from engine_daemon.worker.checkpoint import Checkpoint, refuse
from engine_daemon.worker.dividing import check_divides
from engine_daemon.worker.fitting import Need, check_memory
from engine_daemon.worker.fp8 import (
    Shapes,
    check_blocks,
    dequantised_bytes,
    shapes_in,
    stored_fp8,
    why_dequantise,
)
from engine_daemon.worker.memory import is_short, told_short
from engine_daemon.worker.placement import Place
from engine_daemon.worker.sizes import beside_weights

DTYPES: Final = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
_LAYER: Final = re.compile(r"(.*?)\.(\d+)\.")
"""A weight's name up to its layer, and the layer's number."""
_ELSEWHERE: Final = re.compile(r"[^.!?]*\b(?:above|below)\b[^.!?]*[.!?]?")
_HOST: Final = torch.device("cpu")
_CAUSAL: Final = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def dtype_word(dtype: torch.dtype) -> str:
    """`bf16`, `fp16`, `fp32`, else torch's own name."""
    return next((word for word, x in DTYPES.items() if x is dtype), str(dtype).split(".")[-1])


def check_model(checkpoint: Checkpoint, options: EngineOptions, place: Place) -> Any:
    """The configuration, once the model is known to fit in `place`. Raises InspectError (exit 3)
    before a byte of the weights is read."""
    config = _config(checkpoint)
    check_divides(config.get_text_config(decoder=True), place.world)
    shapes = _loaded_shapes(checkpoint, config)
    block = stored_fp8(checkpoint.config)
    if block is not None and (place.world > 1 or why_dequantise(place.device, options.dtype)):
        check_blocks(shapes, block, place.world)
    check_memory(
        dtype_word(_target_dtype(options, config)),
        needs_of(checkpoint, config, options, place, shapes),
        place,
        lambda ranks: _divides(config, ranks),
    )
    return config


def load_model(
    checkpoint: Checkpoint, options: EngineOptions, place: Place, progress: ProgressFn
) -> Any:
    """The model, or this rank's part of it, on the device of `place`; frozen and in inference
    mode. With several ranks they must have met, see `ranks.meeting`. Raises InspectError (exit 3).
    """
    config = _config(checkpoint)
    if stored_fp8(checkpoint.config) is not None:
        why = why_dequantise(place.device, options.dtype)
        config.quantization_config = {**config.quantization_config, "dequantize": bool(why)}
    progress("load", 0, checkpoint.size)
    sizes = {name: size for shard in checkpoint.shards for name, size in shard.tensors.items()}
    progress_of = loading_progress(
        progress, sizes, "load", checkpoint.size, shard_stages(checkpoint)
    )
    with _plain_errors(checkpoint, place.device), progress_of:
        model, info = AutoModelForCausalLM.from_pretrained(
            str(checkpoint.folder),
            config=config,
            dtype=_target_dtype(options, config),
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            **_where(place),
        )
    _check_complete(checkpoint, info)
    _check_depth(checkpoint, model, info)
    progress("load", checkpoint.size, checkpoint.size)
    return model.eval().requires_grad_(False)


def _where(place: Place) -> dict[str, Any]:
    """The arguments that say where: shared out to the ranks, or on one device."""
    if place.world > 1:
        return {"distributed_config": DistributedConfig(tp_size=place.world)}
    return {"device_map": None if place.device.type == "cpu" else {"": place.device}}


def _config(checkpoint: Checkpoint) -> Any:
    """The configuration as transformers reads it, of an architecture it can run."""
    with _plain_errors(checkpoint):
        config = AutoConfig.from_pretrained(
            str(checkpoint.folder), local_files_only=True, trust_remote_code=False
        )
    architectures = [str(x) for x in config.architectures or []]
    writes = not architectures or any(x.endswith(_CAUSAL) for x in architectures)
    if not writes or type(config) not in AutoModelForCausalLM._model_mapping:
        refuse(
            f"architecture {', '.join(architectures) or config.model_type} is not supported",
            "Use a decoder-only language model that transformers has a class for",
        )
    settings = getattr(config, "quantization_config", None)
    if settings is not None:
        _check_quantisation(checkpoint, settings)
    return config


def _check_quantisation(checkpoint: Checkpoint, settings: Any) -> None:
    """Of a method that transformers does not know the weights would be taken as they are."""
    method = settings.get("quant_method") if isinstance(settings, dict) else settings.quant_method
    if str(getattr(method, "value", method)) not in AUTO_QUANTIZATION_CONFIG_MAPPING:
        refuse(
            f"{checkpoint.folder} is quantised by {method!r}, which is not supported",
            "Use another form of this model",
        )


def _target_dtype(options: EngineOptions, config: Any) -> torch.dtype:
    """The dtype asked for; `auto` is the checkpoint's."""
    if options.dtype != "auto":
        return DTYPES[options.dtype]
    return _stored_dtype(config)


def _stored_dtype(config: Any) -> torch.dtype:
    named = config.dtype or config.get_text_config(decoder=True).dtype
    return named if isinstance(named, torch.dtype) else torch.float32


def _loaded_shapes(checkpoint: Checkpoint, config: Any) -> Shapes:
    """The tensors that the model's class takes: a vision tower is not there for text."""
    kind = AutoModelForCausalLM._model_mapping[type(config)]
    kinds = kind if isinstance(kind, tuple) else (kind,)
    left = [re.compile(p) for k in kinds for p in k._keys_to_ignore_on_load_unexpected or []]
    shapes = shapes_in(checkpoint)
    return {n: found for n, found in shapes.items() if not any(p.search(n) for p in left)}


def needs_of(
    checkpoint: Checkpoint, config: Any, options: EngineOptions, place: Place, shapes: Shapes
) -> dict[str, Need]:
    """What the model needs by dtype: the one it is to be loaded in, then the others."""
    text = config.get_text_config(decoder=True)
    kinds = get_layer_types_and_kwargs(text)[0]
    stored, target = _stored_dtype(config), _target_dtype(options, config)
    size = sum(x.tensors[n] for x in checkpoint.shards for n in x.tensors if n in shapes)
    fp8 = stored_fp8(checkpoint.config) is not None
    needs: dict[str, Need] = {}
    for word, dtype in ((dtype_word(target), target), *DTYPES.items()):
        asked = options.dtype if dtype is target else word
        weights = size * dtype.itemsize // max(1, stored.itemsize)
        if fp8:
            stays = not why_dequantise(place.device, asked)
            weights = size if stays else dequantised_bytes(shapes, dtype.itemsize)
        needs.setdefault(word, Need(weights, beside_weights(text, kinds, dtype.itemsize)))
    return needs


def _divides(config: Any, ranks: int) -> bool:
    try:
        check_divides(config.get_text_config(decoder=True), ranks)
    except InspectError:
        return False
    return True


def _check_complete(checkpoint: Checkpoint, info: dict[str, Any]) -> None:
    """Weights that were not in the files would be random numbers: refuse."""
    missing = sorted(str(x) for x in info["missing_keys"])
    mismatched = sorted(str(x[0]) for x in info["mismatched_keys"])
    if missing or mismatched:
        what = "lacks" if missing else "has another shape for"
        names = missing or mismatched
        refuse(
            f"{checkpoint.folder} {what} {len(names)} of the model's tensors, first {names[0]}",
            "The configuration does not belong to these weights: get the checkpoint again",
        )


def _check_depth(checkpoint: Checkpoint, model: Any, info: dict[str, Any]) -> None:
    """Weights of layers that the configuration does not have would be left out without a word.

    Layers that an architecture leaves out by design (those for predicting several tokens at once)
    are not among the unexpected keys, or are counted in the configuration.
    """
    config = model.config.get_text_config(decoder=True)
    beside = getattr(config, "num_nextn_predict_layers", None) or 0
    stacks = {found[1] for name in model.state_dict() if (found := _LAYER.match(name))}
    unread = [found for key in info["unexpected_keys"] if (found := _LAYER.match(str(key)))]
    layers = 1 + max((int(found[2]) for found in unread if found[1] in stacks), default=-1)
    if layers > config.num_hidden_layers + beside:
        refuse(
            f"{checkpoint.folder} holds {layers} layers, its config.json says "
            f"{config.num_hidden_layers}",
            "The configuration does not belong to these weights: get the checkpoint again",
        )


def _in_a_line(error: Exception) -> str:
    """What a library says, without pointing at what only its log shows."""
    said = (str(error).strip() or type(error).__name__).splitlines()[0]
    if "ignore_mismatched_sizes" in said:
        return "the weights do not have the shapes that config.json says"
    return _ELSEWHERE.sub("", said).strip()[:300] or type(error).__name__


@contextmanager
def _plain_errors(checkpoint: Checkpoint, device: torch.device = _HOST) -> Iterator[None]:
    """What the libraries raise while loading to `device`, as errors of ours."""
    try:
        yield
    except (
        *(ValueError, KeyError, OSError, RuntimeError, ImportError, TypeError, MemoryError),
        SafetensorError,
    ) as error:
        if is_short(error):
            raise InspectError(
                f"memory ran out while the model was loaded: {told_short(error, device)}",
                "Use another device, a smaller --dtype or a smaller model",
                exit_code=Exit.MODEL,
                code="no_memory",
            ) from error
        raise InspectError(
            f"{checkpoint.folder} cannot be loaded: {_in_a_line(error)}",
            f"Check that transformers {transformers.__version__}, which is installed, supports it",
            exit_code=Exit.MODEL,
            code="model",
        ) from error


@contextmanager
def loading_progress(
    progress: ProgressFn,
    sizes: dict[str, int],
    stage: str,
    total: int,
    stages: dict[str, str] | None = None,
) -> Iterator[None]:
    """Within, transformers' own walk over the parameters is reported as bytes of `total`.

    `sizes` are bytes by tensor name; where names do not match, each counts an equal share.
    `stages` the stage to name instead while a tensor is loaded, by its name.
    """

    def hook(factory: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if kwargs.get("desc") == "Loading weights" and args:
            return _counted(list(args[0]), progress, sizes, stage, total, stages or {})
        return factory(*args, **kwargs)

    bars = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    previous = hf_logging.set_tqdm_hook(hook)
    try:
        yield
    finally:
        hf_logging.set_tqdm_hook(previous)
        if bars:
            hf_logging.enable_progress_bar()


def _counted(
    items: list[tuple[str, Any]],
    progress: ProgressFn,
    sizes: dict[str, int],
    stage: str,
    total: int,
    stages: dict[str, str],
) -> Iterator[tuple[str, Any]]:
    share = total // max(1, len(items))
    done = said = 0
    for item in items:
        yield item
        done = min(total, done + sizes.get(item[0], share))
        before, stage = stage, stages.get(item[0], stage)
        if done - said >= total // 100 or stage != before:
            progress(stage, done, total)
            said = done


def shard_stages(checkpoint: Checkpoint) -> dict[str, str]:
    """What the stage is called while a tensor is loaded: which of several files it lies in."""
    count = len(checkpoint.shards)
    if count < 2:
        return {}
    return {
        name: f"load {number}/{count}"
        for number, shard in enumerate(checkpoint.shards, 1)
        for name in shard.tensors
    }
