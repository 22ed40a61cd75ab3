"""What a forward costs by formula: floating-point operations and bytes moved. Never measured.

Knows the shapes of a loaded model, nothing of time.
"""

from dataclasses import dataclass
from typing import Any

from engine_daemon.protocol.values import Work
from engine_daemon.worker.sizes import position_bytes


@dataclass(frozen=True, slots=True)
class Costs:
    """The numbers of a model that the formula needs.

    `matrix` parameters multiplied for every position (of experts only those that take part),
    `head` those of the output layer, for one position; `weight_bytes` of all of these;
    `attention` = heads x head size summed over layers with full attention, `windows` the same by
    window length; `position_bytes` of keys and values in the growing layers, `window_bytes` the
    same in those with a window.
    """

    matrix: int
    head: int
    weight_bytes: int
    attention: int
    windows: tuple[tuple[int, int], ...]
    position_bytes: int
    window_bytes: int

    def work(self, processed: int, position: int) -> Work:
        """FLOPs = 2 x matrix x processed + 2 x head + 4 x attention x sum of context lengths.

        The context length of the i-th position read is the number of positions up to and including
        it, at most the window in sliding layers. Bytes moved = weights once + keys and values read
        once (`position`) and written (`processed`), of a window no more than it holds. Recurrent
        states, norms and activations are left out.
        """
        first = position - processed
        moved = self.weight_bytes + self.position_bytes * (position + processed)
        flops = 2 * self.matrix * processed + 2 * self.head
        flops += 4 * self.attention * _contexts(first, position, position)
        for width, heads in self.windows:
            flops += 4 * heads * _contexts(first, position, width)
            moved += self.window_bytes * (min(position, width) + min(processed, width))
        return Work(flops=flops, bytes_moved=moved)


def _contexts(first: int, last: int, width: int) -> int:
    """Sum of min(i, width) for i from `first` + 1 to `last`."""
    inside = min(last, max(first, width))
    triangle = (inside * (inside + 1) - first * (first + 1)) // 2
    return triangle + (last - inside) * width


def costs_of(model: Any, layer_kinds: list[str]) -> Costs:
    """Read the numbers off a loaded transformers model."""
    config = model.config.get_text_config(decoder=True)
    embedding = model.get_input_embeddings().weight
    head = model.get_output_embeddings().weight
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    active = (getattr(config, "num_experts_per_tok", None) or 1) / experts if experts else 1.0
    matrix = weight_bytes = 0
    for name, parameter in model.named_parameters():
        if parameter is embedding or parameter is head or parameter.dim() < 2:
            continue
        part = active if ".experts." in name else 1.0
        matrix += int(parameter.numel() * part)
        weight_bytes += int(parameter.nbytes * part)
    heads = config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // heads
    full = layer_kinds.count("full_attention")
    sliding = layer_kinds.count("sliding_attention")
    window = getattr(config, "sliding_window", None)
    return Costs(
        matrix=matrix,
        head=head.numel(),
        weight_bytes=weight_bytes + head.nbytes,
        attention=full * heads * size,
        windows=((int(window), sliding * heads * size),) if sliding and window else (),
        position_bytes=position_bytes(config, layer_kinds, embedding.itemsize),
        window_bytes=position_bytes(config, ["full_attention"] * sliding, embedding.itemsize),
    )
