"""What is known of the parameters in memory: as they were loaded, or as last summed.

Plain functions. Knows no sockets.
"""

import logging
import time

from engine_daemon.protocol.state import EngineState, WeightsCheck
from engine_daemon.protocol.worker import WeightsSummed

_log = logging.getLogger(__name__)


def as_loaded(checksum: str | None) -> WeightsCheck | None:
    """Right after loading; None where this backend has none."""
    if checksum is None:
        return None
    return WeightsCheck(checksum=checksum, same=True, wall_ns=time.time_ns(), ms=0.0)


def compared(engine: EngineState, summed: WeightsSummed) -> WeightsCheck | None:
    """Summed again: are they as they were loaded? None when there is nothing to compare."""
    if engine.model is None or summed.checksum is None:
        return None
    same = summed.checksum == engine.model.weights_checksum
    if not same:
        _log.error("the weights in memory changed since they were loaded")
    return WeightsCheck(checksum=summed.checksum, same=same, wall_ns=time.time_ns(), ms=summed.ms)
