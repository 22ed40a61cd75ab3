"""Forwards leave a thread in which oneDNN failed; for real in `tests/hub/test_memory.py`."""

import _thread
import threading
from collections.abc import Callable

import pytest

from engine_daemon.worker import forward_thread, host_memory
from engine_daemon.worker.forward_thread import ENOUGH_BYTES, ForwardThread
from engine_daemon.worker.host_memory import Present

where: Callable[[], int] = threading.get_ident


def failing() -> None:
    raise RuntimeError("could not create a primitive")


def failed(forwards: ForwardThread) -> ForwardThread:
    with pytest.raises(RuntimeError, match="could not create"):
        forwards.run(failing)
    return forwards


def test_a_thread_is_left_after_an_error_of_onednn_and_after_no_other() -> None:
    here, forwards = where(), ForwardThread()
    assert forwards.run(where) == here
    with pytest.raises(ZeroDivisionError):
        forwards.run(lambda: 1 // 0)
    assert forwards.run(where) == here
    first = failed(forwards).run(where)
    with pytest.raises(ZeroDivisionError):
        forwards.run(lambda: 1 // 0)
    assert here != first == forwards.run(where)
    assert [t.name for t in threading.enumerate() if t.ident == first] == ["forward"]
    assert failed(forwards).run(where) != here
    forwards.close()
    assert forwards.run(where) == here


def test_no_thread_is_started_before_there_is_memory_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    forwards = failed(ForwardThread())
    monkeypatch.setattr(host_memory, "present", lambda: Present(ENOUGH_BYTES - 1))
    assert forwards.run(where) == where()
    monkeypatch.undo()
    assert forwards.run(where) != where()
    forwards.close()


def test_a_thread_that_never_begins_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where there is no memory for its first frame."""
    forwards = failed(ForwardThread())
    monkeypatch.setattr(forward_thread, "_STARTING_S", 0.01)
    monkeypatch.setattr(_thread, "start_new_thread", lambda *_: 0)
    assert forwards.run(where) == where()
    monkeypatch.undo()
    assert forwards.run(where) != where()
    forwards.close()
