"""What makes a loaded model faster without changing it, each part where it can be done.

Knows transformers models by their modules. `--plain-engine` is: not this.
"""

import logging
from collections.abc import Iterator
from typing import Any, Final

import torch
from torch import Tensor, nn

from engine_daemon.worker.fast import attention, linear, streamed
from engine_daemon.worker.fast.direct import DirectStep, agrees
from engine_daemon.worker.fast.family import Unknown, parts_of

PLAIN: Final = "plain"
"""The engine path with none of it."""
_TOGETHER: Final = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("in_proj_qkv", "in_proj_z", "in_proj_b", "in_proj_a"),
)
"""Children of one module that read the same input, in models of the Llama and Qwen families."""
_TIED_SHARE: Final = 4
"""A tied output layer is kept twice, if that takes no more than one part in so many of what is
free."""
_log = logging.getLogger(__name__)


def speed_up(model: Any, free_bytes: int | None) -> str:
    """Change `model`, which is loaded and frozen; the engine path: what was done, joined by `+`.

    What cannot be done stays plain, and is named in the log.
    """
    if any(parameter.device.type != "cpu" for parameter in model.parameters()):
        return PLAIN
    done = _pack(model, free_bytes)
    if _attend(model):
        done.append("attention")
    return "+".join(done) or PLAIN


def direct_step(
    model: Any, weights_bytes: int, free_bytes: int | None
) -> tuple[DirectStep | None, list[str]]:
    """The way around the model's modules for one id at a time, and what to call it in the engine
    path; None where the model is not of a known family, or where the numbers are not those of its
    own forward."""
    parameters = list(model.parameters())
    if any(parameter.device.type != "cpu" for parameter in parameters):
        return None, []
    stream = model.dtype is torch.bfloat16 and streamed.affordable(weights_bytes, free_bytes)
    stream = stream and streamed.supported()
    try:
        parts = parts_of(model, stream=stream)
        streamed.pack_all(parts.streamed)
    except (Unknown, ValueError) as unknown:
        _log.info("steps go through the model's modules: not known: %s", unknown)
        return None, []
    direct = DirectStep(parts)
    if not agrees(direct, model):
        _log.warning("steps go through the model's modules: calling around them differs")
        return None, []
    return direct, ["direct", "streamed"][: 1 + bool(parts.streamed)]


def _attend(model: Any) -> bool:
    """Our attention in the place of the library's `sdpa`, which it falls back to."""
    config = model.config.get_text_config(decoder=True)
    if config._attn_implementation != "sdpa" or model.config._attn_implementation != "sdpa":
        _log.info("attention stays plain: it is %s", config._attn_implementation)
        return False
    attention.register()
    model.set_attn_implementation(attention.NAME)
    return bool(config._attn_implementation == attention.NAME)


def _pack(model: nn.Module, free_bytes: int | None) -> list[str]:
    if not linear.supported():
        _log.info("weights stay plain: no bf16 in this CPU or torch")
        return []
    shared = _shared(model, free_bytes)
    packed = joined = 0
    for name, parent in list(model.named_modules()):
        for children in _groups(parent):
            layers = [getattr(parent, child) for child in children]
            if any(id(layer.weight) in shared for layer in layers):
                _log.info("stays plain: %s.%s shares its weight", name, children[0])
                continue
            linear.pack(parent, children)
            packed += 1
            joined += len(children) > 1
    plain = {type(x).__name__ for x in model.modules() if isinstance(x, nn.Linear)}
    if plain:
        _log.info("linear layers that stay plain: %s", ", ".join(sorted(plain)))
    return ["packed"] * bool(packed) + ["joined"] * bool(joined)


def _groups(parent: nn.Module) -> Iterator[tuple[str, ...]]:
    """Its children that can be packed, those that go together in one group."""
    left = [name for name, child in parent.named_children() if linear.packable(child)]
    for names in _TOGETHER:
        found = tuple(name for name in names if name in left)
        if len(found) > 1 and linear.joinable([getattr(parent, name) for name in found]):
            left = [name for name in left if name not in found]
            yield found
    yield from ((name,) for name in left)


def _shared(model: Any, free_bytes: int | None) -> set[int]:
    """Weights that another module holds as well and that there is no room for twice."""
    inputs = model.get_input_embeddings()
    weight: Tensor | None = getattr(inputs, "weight", None)
    if weight is None or free_bytes is None or weight.nbytes * _TIED_SHARE <= free_bytes:
        return set()
    return {id(weight)}
