"""Can a model be shared out to N ranks? Asked before anything of it is loaded.

Knows the sizes in a configuration; no torch.
"""

from typing import Any

from engine_daemon.shares import why_not
from engine_daemon.worker.checkpoint import refuse


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
    wrong = why_not(lambda name: getattr(config, name, None), ranks)
    if wrong is not None:
        refuse(*wrong)
