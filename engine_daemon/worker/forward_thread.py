"""Where forwards run: in the caller's thread until oneDNN failed there, then in a new one.

The assembler inside oneDNN keeps its first error for the rest of a thread's life: once it had no
memory for a kernel it makes none any more in that thread, however much memory there is. Kernels
that exist are found from every thread. Knows no models.
"""

import _thread
import logging
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, TypeVar

from engine_daemon.worker import host_memory

T = TypeVar("T")
ENOUGH_BYTES: Final = 512 << 20
"""Nothing of oneDNN's, and no thread, is sure to be made with less."""
_FAILED: Final = "could not create a"
_STARTING_S: Final = 5.0

_log: Final = logging.getLogger(__name__)


def of_onednn(error: BaseException) -> bool:
    """All that oneDNN says, whatever it could not make and for whatever reason."""
    return str(error).startswith(_FAILED)


class ForwardThread:
    """One forward at a time; the caller waits."""

    def __init__(self) -> None:
        self._other: _Other | None = None
        self._spent = False

    def run(self, act: Callable[[], T]) -> T:
        """What `act` returns or raises. After an error of oneDNN's the next one runs in a new
        thread, as soon as there is memory for it; until then kernels that exist still work."""
        if self._spent and _enough():
            self._renew()
        try:
            return act() if self._other is None else self._other.run(act)
        except RuntimeError as error:
            self._spent = self._spent or of_onednn(error)
            raise

    def _renew(self) -> None:
        try:
            other = _Other()
        except (RuntimeError, MemoryError) as error:
            _log.warning("no new thread for forwards: %s", error)
            return
        self.close()
        self._other = other

    def close(self) -> None:
        """End the thread, if there is one."""
        if self._other is not None:
            self._other.close()
        self._other, self._spent = None, False


def _enough() -> bool:
    left = host_memory.present()
    return left is None or left.bytes >= ENOUGH_BYTES


class _Other:
    """A thread that is known to run: `threading.Thread` waits for ever for one that has no memory
    to begin with. MemoryError or RuntimeError when it does not start."""

    def __init__(self) -> None:
        self._acts: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._over: SimpleQueue[BaseException | None] = SimpleQueue()
        _thread.start_new_thread(self._serve, ())
        try:
            self._over.get(timeout=_STARTING_S)
        except Empty:
            self.close()
            raise MemoryError("it does not start") from None

    def run(self, act: Callable[[], T]) -> T:
        """Here what `act` does there."""
        made: list[T] = []
        self._acts.put(lambda: made.append(act()))
        if (error := self._over.get()) is not None:
            raise error
        return made[0]

    def close(self) -> None:
        """It ends when it has nothing under way."""
        self._acts.put(None)

    def _serve(self) -> None:
        threading.current_thread().name = "forward"  # for who asks for stacks
        self._over.put(None)
        while (act := self._acts.get()) is not None:
            try:
                act()
            except BaseException as error:  # noqa: BLE001  it is raised where it was asked for
                self._over.put(error)
            else:
                self._over.put(None)
            del act
