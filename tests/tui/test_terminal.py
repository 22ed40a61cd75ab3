"""The terminal's signals, heard by the event loop."""

import asyncio
import signal

from tui.terminal import resize_in


async def test_resizes_are_heard_by_the_loop_again_after_a_suspension() -> None:
    """The driver puts its own handler back then; what the loop has already is left alone."""
    before, told = signal.getsignal(signal.SIGWINCH), asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        for suspended in (False, True, False):
            if suspended or not told.is_set():
                signal.signal(signal.SIGWINCH, lambda *_: told.set())
            resize_in(loop)
            told.clear()
            signal.raise_signal(signal.SIGWINCH)
            assert not told.is_set()  # not in the signal's own context
            await asyncio.wait_for(told.wait(), 60)
    finally:
        loop.remove_signal_handler(signal.SIGWINCH)
        signal.signal(signal.SIGWINCH, before)
