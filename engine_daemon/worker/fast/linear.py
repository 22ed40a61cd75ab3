"""Linear layers whose bf16 weights are laid out once for the CPU's matrix kernels (oneDNN).

The plain layer has its weights rearranged at every call; the numbers are the same, bit for bit.
Layers that read the same input are computed in one go. Knows modules; no model, no devices.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import torch
from torch import Tensor, nn

SMALLEST: Final = 16 * 16 * 16
"""Weights up to this size torch multiplies by one row without oneDNN, in another order of sums."""


def supported() -> bool:
    """True when this torch on this CPU can lay bf16 weights out."""
    ops: Any = torch.ops.mkldnn
    known = all(hasattr(ops, name) for name in ("_reorder_linear_weight", "_linear_pointwise"))
    return bool(torch._C._has_mkldnn and known and ops._is_mkldnn_bf16_supported())


def packable(module: nn.Module | None) -> bool:
    """A plain linear layer in bf16 on the CPU, not tiny; subclasses are other kinds of layer."""
    if type(module) is not nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return False
    weight = module.weight
    fits = weight.dtype is torch.bfloat16 and weight.device.type == "cpu"
    return fits and weight.numel() > SMALLEST


class Joined:
    """One or more linear layers as one product. `parts`: rows of each, in order."""

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        self.parts = [layer.out_features for layer in layers]
        weights = [layer.weight.detach() for layer in layers]
        joined = weights[0] if len(weights) == 1 else torch.cat(weights)
        self._packed = torch.ops.mkldnn._reorder_linear_weight(joined.contiguous())
        self._multiply: Any = torch.ops.mkldnn._linear_pointwise.default
        self._bias = _joined_bias(layers)
        self._input: Tensor | None = None
        self._outputs: list[Tensor | None] = []

    def compute(self, given: Tensor) -> Tensor:
        """All parts, side by side."""
        made: Tensor = self._multiply(given, self._packed, self._bias, "none", [], "")
        return made

    def take(self, number: int, given: Tensor) -> Tensor:
        """One part. What was computed for the same tensor is given out once for each part."""
        if self._input is given:
            made = self._outputs[number]
            if made is not None:
                self._outputs[number] = None
                if not any(x is not None for x in self._outputs):
                    self.forget()
                return made
        outputs: list[Tensor | None] = list(torch.split(self.compute(given), self.parts, -1))
        made, outputs[number] = outputs[number], None
        assert made is not None
        self._input, self._outputs = given, outputs
        return made

    def forget(self) -> None:
        """Let the last input and what was computed for it go."""
        self._input, self._outputs = None, []

    def weights(self) -> list[Tensor]:
        """The weights of each part as they were before, from what is computed with."""
        return list(torch.split(self._packed.to_dense(), self.parts))

    def biases(self) -> list[Tensor | None]:
        """The bias of each part."""
        if self._bias is None:
            return [None] * len(self.parts)
        return list(torch.split(self._bias, self.parts))


def _joined_bias(layers: Sequence[nn.Linear]) -> Tensor | None:
    found = [layer.bias.detach() for layer in layers if layer.bias is not None]
    return torch.cat(found) if found else None


class PackedLinear(nn.Module):
    """In the place of a linear layer; part `number` of what it is joined with."""

    def __init__(self, joined: Joined, number: int, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features = layer.in_features
        self.out_features = layer.out_features
        self._joined = joined
        self._number = number
        self.training = layer.training
        self._take = joined.compute if len(joined.parts) == 1 else self._part

    def forward(self, given: Tensor) -> Tensor:
        """As the layer it replaces."""
        return self._take(given)

    def _part(self, given: Tensor) -> Tensor:
        return self._joined.take(self._number, given)

    def together_with(self, others: "Sequence[nn.Module]") -> Joined | None:
        """The product of which this and `others` are all the parts, in order, if there is one."""
        parts = [self, *others]
        if len(parts) != len(self._joined.parts):
            return None
        fit = (
            isinstance(part, PackedLinear) and (part._joined, part._number) == (self._joined, at)
            for at, part in enumerate(parts)
        )
        return self._joined if all(fit) else None

    @property
    def weight(self) -> Tensor:
        """The weight in its plain layout, made anew."""
        return self._joined.weights()[self._number]

    @property
    def bias(self) -> Tensor | None:
        """The bias, if there is one."""
        return self._joined.biases()[self._number]

    def forget(self) -> None:
        """Hold nothing of the last forward."""
        self._joined.forget()


def pack(parent: nn.Module, names: Sequence[str]) -> None:
    """Replace these children of `parent`, which are `packable`, by one joined product."""
    layers = [getattr(parent, name) for name in names]
    joined = Joined(layers)
    for number, (name, layer) in enumerate(zip(names, layers, strict=True)):
        setattr(parent, name, PackedLinear(joined, number, layer))


def joinable(layers: Sequence[nn.Module | None]) -> bool:
    """They can be one product: all packable, of one input width, and alike in having a bias."""
    if not all(packable(layer) for layer in layers):
        return False
    known = [layer for layer in layers if isinstance(layer, nn.Linear)]
    widths = {layer.in_features for layer in known}
    return len(widths) == 1 and len({layer.bias is None for layer in known}) == 1


def named_weights(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors as the model's own `named_parameters` had them before it was packed, though
    in another order; packed ones from what is computed with."""
    yield from model.named_parameters()
    for name, module in model.named_modules():
        if isinstance(module, PackedLinear):
            yield f"{name}.weight", module.weight
            bias = module.bias
            if bias is not None:
                yield f"{name}.bias", bias
