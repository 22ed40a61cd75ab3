"""Can a model be shared out to N ranks? Asked before anything of it is loaded.

Knows the sizes in a configuration; no torch.
"""

from typing import Any, Final

from engine_daemon.worker.checkpoint import refuse

_SIZES: Final = {
    "num_attention_heads": "attention heads",
    "num_key_value_heads": "key/value heads",
    "linear_num_key_heads": "key heads of linear attention",
    "linear_num_value_heads": "value heads of linear attention",
    "intermediate_size": "units between the layers",
    "moe_intermediate_size": "units of an expert",
    "shared_expert_intermediate_size": "units of the shared expert",
    "num_experts": "experts",
    "num_local_experts": "experts",
}
"""What every rank gets the same share of, by its name in a text configuration."""
_MOST: Final = 64


def check_divides(config: Any, ranks: int) -> None:
    """InspectError (exit 3) with the numbers when the heads, units or experts of this text
    configuration do not divide by `ranks`, or nobody has said how to share its layers out."""
    if ranks == 1:
        return
    if not getattr(config, "base_model_tp_plan", None):
        refuse(
            f"{config.model_type} has no tensor-parallel plan: it runs on one rank only",
            "Use --tp 1 and one device",
        )
    sizes = {what: getattr(config, name, None) for name, what in _SIZES.items()}
    known = {what: size for what, size in sizes.items() if isinstance(size, int) and size > 0}
    bad = [f"{size} {what}" for what, size in known.items() if size % ranks]
    if bad:
        fits = [n for n in range(1, _MOST) if all(size % n == 0 for size in known.values())]
        *rest, last = [str(n) for n in fits]
        words = f"{', '.join(rest)} or {last}" if rest else last
        refuse(f"{', '.join(bad)} do not divide by {ranks} ranks", f"Use --tp {words}")
