"""How the threads of torch's products wait for work; read by OpenMP when torch is imported.

Knows environment variables, no torch.
"""

import os
from typing import Final

SPINS: Final = "6000"
"""How often a thread looks for work before it sleeps: some 80 µs, more than lies between two
products of one step; waking a thread takes longer than most products. The library's own default is
milliseconds: beside other busy processes the threads then use up their time waiting for one that is
not running, and a step takes ten times as long."""
_OWN: Final = ("OMP_WAIT", "GOMP_SPIN")


def sleep_when_idle() -> None:
    """Set it before torch is imported, unless the user has set how threads wait."""
    if not any(name.startswith(_OWN) for name in os.environ):
        os.environ["GOMP_SPINCOUNT"] = SPINS
