"""What a session is called by machines. Knows nothing else."""

import os
from typing import Final

_CROCKFORD: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def new_session() -> str:
    """8 random characters of Crockford's base 32."""
    return "".join(_CROCKFORD[byte % 32] for byte in os.urandom(8))
