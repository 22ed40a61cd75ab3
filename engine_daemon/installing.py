"""How the engine is installed, as every hint and the README say it."""

from typing import Final

INSTALL_ENGINE: Final = "pip install -c constraints.txt '.[engine]'"
"""In the folder of a clone: the versions that were tested."""
IN_A_CLONE: Final = f"In a clone: {INSTALL_ENGINE}"
"""The hint where a part of the engine is missing."""
