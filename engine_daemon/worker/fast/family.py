"""Which loaded models are of the family whose single step `direct` computes, and their parts.

A model is of it when each of its modules is exactly of a known class, holds what that class makes
and nothing else, and nothing watches or replaces its forward. Knows modules; computes nothing.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.activations import SiLUActivation
from transformers.cache_utils import get_layer_types_and_kwargs

from engine_daemon.worker.fast.linear import PackedLinear
from engine_daemon.worker.fast.streamed import Streamed

_FAMILIES: Final = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3"}
"""Transformers' modules of models that are the same but for biases and norms of heads."""
_CHILDREN: Final = {
    "ForCausalLM": {"model", "lm_head"},
    "Model": {"embed_tokens", "layers", "norm", "rotary_emb"},
    "DecoderLayer": {"self_attn", "mlp", "input_layernorm", "post_attention_layernorm"},
    "Attention": {"q_proj", "k_proj", "v_proj", "o_proj"},
    "MLP": {"gate_proj", "up_proj", "down_proj", "act_fn"},
    "RMSNorm": set[str](),
    "RotaryEmbedding": set[str](),
}
_HEAD_NORMS: Final = {"q_norm", "k_norm"}
_OWN: Final = {"RMSNorm": {"weight"}, "Embedding": {"weight"}, "Linear": {"weight", "bias"}}
"""Parameters of a module itself; the others have none."""
_FIXED_ROPE: Final = ("default", "linear", "llama3", "yarn")
"""Rotations that depend on nothing but the position."""
_DTYPES: Final = (torch.bfloat16, torch.float32)

Compute = Callable[[Tensor], Tensor]
"""One or more linear layers of the same input, their outputs side by side; fp32 to fp32."""


class Unknown(Exception):
    """The model is not of the family; the message says what is not known."""


@dataclass(frozen=True, slots=True)
class Product:
    """Linear layers of the same input. `shrink`, a power of two, is to be multiplied with: the
    input of what follows a norm, the output of what is added."""

    compute: Compute
    streamed: Streamed | None = None

    @property
    def shrink(self) -> float:
        """1 unless it is streamed; known once that is packed."""
        return 1.0 if self.streamed is None else self.streamed.shrink


@dataclass(frozen=True, slots=True)
class Norm:
    """A root-mean-square norm; `weight` in fp32."""

    weight: Tensor
    eps: float


@dataclass(frozen=True, slots=True)
class Layer:
    """One decoder layer. `heads`, `groups`: of queries, and of keys and values; `head_norm` has a
    row for each head of queries, then of keys."""

    before: Norm
    qkv: Product
    head_norm: Norm | None
    out: Product
    between: Norm
    gate_up: Product
    down: Product
    heads: int
    groups: int
    size: int
    scaling: float


@dataclass(frozen=True, slots=True)
class Parts:
    """A whole model. `rotary`: (any tensor of the dtype, positions) to cosines and sines;
    `streamed`: products that are not packed yet."""

    embedding: Tensor
    layers: tuple[Layer, ...]
    last: Norm
    head: Product
    rotary: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
    streamed: tuple[Streamed, ...]


def parts_of(model: Any, *, stream: bool = False) -> Parts:
    """The parts of `model`, which is loaded and frozen. `stream`: with weights laid out once more.
    Raises Unknown."""
    family = type(model).__module__.removeprefix("transformers.models.").partition(".")[0]
    if family not in _FAMILIES:
        raise Unknown(type(model).__name__)
    known = _Known(model, _FAMILIES[family], stream)
    body, config = model.model, model.config
    known.check(model, "ForCausalLM")
    known.check(body, "Model")
    known.check(body.rotary_emb, "RotaryEmbedding")
    _check_config(model)
    embedding = body.embed_tokens
    _check_plain(embedding, nn.Embedding)
    if embedding.max_norm is not None:
        raise Unknown("an embedding that is renormalised")
    if len(body.layers) != config.num_hidden_layers:
        raise Unknown("layers that are not run")
    parts = Parts(
        embedding=embedding.weight.detach(),
        layers=tuple(_layer(known, layer) for layer in body.layers),
        last=_norm(known, body.norm),
        head=known.product(model.lm_head),
        rotary=body.rotary_emb,
        streamed=tuple(known.streamed),
    )
    dtypes = {tensor.dtype for tensor in model.parameters()}
    if len(dtypes) != 1 or dtypes & set(_DTYPES) == set():
        raise Unknown(f"weights in {', '.join(sorted(map(str, dtypes)))}")
    return parts


class _Known:
    """The classes of one family, and how products are made."""

    def __init__(self, model: Any, prefix: str, stream: bool) -> None:
        self._home, self._dtype = sys.modules[type(model).__module__], model.dtype
        self._prefix, self._stream = prefix, stream
        self.streamed: list[Streamed] = []

    def check(self, module: Any, part: str) -> None:
        """Raises Unknown when `module` is not exactly the family's `part`."""
        _check_plain(module, getattr(self._home, self._prefix + part, None))
        expected = set(_CHILDREN[part])
        if part == "Attention" and self._prefix == "Qwen3":
            expected |= _HEAD_NORMS
        found = {name for name, _ in module.named_children()}
        if found != expected:
            raise Unknown(f"{type(module).__name__} with {', '.join(sorted(found ^ expected))}")

    def product(self, *layers: Any, added: bool = False) -> Product:
        """`added`: its output is added to something, where `shrink` can be applied."""
        for layer in layers:
            _check_plain(layer, PackedLinear if isinstance(layer, PackedLinear) else nn.Linear)
        biases = [_bias(layer) for layer in layers]
        if self._stream and len({bias is None for bias in biases}) == 1:
            made = Streamed(partial(_weights, layers), biases, scaled_bias=added)
            self.streamed.append(made)
            return Product(made.compute, made)
        return Product(_computing(layers, self._dtype))


def _check_plain(module: Any, expected: type[nn.Module] | None) -> None:
    """Exactly of this class, with no hook, no forward of its own and no parameter of its own that
    the class does not make."""
    name = type(module).__name__
    if expected is None or type(module) is not expected:
        raise Unknown(name)
    hooks = (module._forward_hooks, module._forward_pre_hooks)
    if any(hooks) or "forward" in vars(module) or module.training:
        raise Unknown(f"{name} that is watched, replaced or in training")
    own = next((names for part, names in _OWN.items() if name.endswith(part)), set())
    strange = set(module._parameters) - own
    if strange:
        raise Unknown(f"{name} with {', '.join(sorted(strange))}")


def _check_config(model: Any) -> None:
    kinds = set(get_layer_types_and_kwargs(model.config)[0])
    if kinds != {"full_attention"}:
        raise Unknown(f"layers of {', '.join(sorted(kinds - {'full_attention'}))}")
    rope = model.model.rotary_emb.rope_type
    if rope not in _FIXED_ROPE:
        raise Unknown(f"{rope} rotation")


def _layer(known: _Known, layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    known.check(layer, "DecoderLayer")
    known.check(attention, "Attention")
    known.check(mlp, "MLP")
    if type(mlp.act_fn) not in (SiLUActivation, nn.SiLU):
        raise Unknown(type(mlp.act_fn).__name__)
    if getattr(attention, "sliding_window", None) is not None:
        raise Unknown("a sliding window")
    size = attention.head_dim
    heads, groups = (x.out_features // size for x in (attention.q_proj, attention.k_proj))
    if attention.num_key_value_groups * groups != heads:
        raise Unknown("heads that do not share keys evenly")
    return Layer(
        before=_norm(known, layer.input_layernorm),
        qkv=known.product(attention.q_proj, attention.k_proj, attention.v_proj),
        head_norm=_head_norm(known, attention, heads, groups),
        out=known.product(attention.o_proj, added=True),
        between=_norm(known, layer.post_attention_layernorm),
        gate_up=known.product(mlp.gate_proj, mlp.up_proj),
        down=known.product(mlp.down_proj, added=True),
        heads=heads,
        groups=groups,
        size=size,
        scaling=float(attention.scaling),
    )


def _norm(known: _Known, module: Any) -> Norm:
    known.check(module, "RMSNorm")
    if not module.variance_epsilon > 0:
        raise Unknown("a norm without epsilon")
    return Norm(module.weight.detach().float(), float(module.variance_epsilon))


def _head_norm(known: _Known, attention: Any, heads: int, groups: int) -> Norm | None:
    if "q_norm" not in attention._modules:
        return None
    query, key = _norm(known, attention.q_norm), _norm(known, attention.k_norm)
    if query.eps != key.eps:
        raise Unknown("norms of heads that differ")
    rows = [query.weight.expand(heads, -1), key.weight.expand(groups, -1)]
    return Norm(torch.cat(rows).contiguous(), query.eps)


def _computing(layers: tuple[Any, ...], dtype: torch.dtype) -> Compute:
    """The layers as they are, packed or plain."""
    first = layers[0]
    joined = first.together_with(layers[1:]) if isinstance(first, PackedLinear) else None
    single: list[Compute] = [joined.compute] if joined is not None else list(map(_single, layers))
    if dtype is torch.float32:
        return single[0] if len(single) == 1 else partial(_side_by_side, single)
    return partial(_side_by_side_in, dtype, single)


def _weights(layers: tuple[Any, ...]) -> list[Tensor]:
    first = layers[0]
    joined = first.together_with(layers[1:]) if isinstance(first, PackedLinear) else None
    if joined is not None:
        return joined.weights()
    return [layer.weight.detach() for layer in layers]


def _single(layer: Any) -> Compute:
    if isinstance(layer, PackedLinear):
        return layer.forward
    return partial(functional.linear, weight=layer.weight.detach(), bias=_bias(layer))


def _bias(layer: Any) -> Tensor | None:
    return None if layer.bias is None else layer.bias.detach()


def _side_by_side(single: list[Compute], given: Tensor) -> Tensor:
    return torch.cat([compute(given) for compute in single], -1)


def _side_by_side_in(dtype: torch.dtype, single: list[Compute], given: Tensor) -> Tensor:
    return _side_by_side(single, given.to(dtype)).float()
