"""A recording as its text: the prompt and what was generated, byte for byte.

Of several branches the one the session stands on. Knows columns; a terminal is its caller's matter.
"""

from collections.abc import Iterator

from engine_daemon.recording.reader import Recording


def chunks(recording: Recording) -> Iterator[bytes]:
    """The bytes that the model read and wrote."""
    columns = recording.columns()
    if columns.prompt is not None:
        yield columns.prompt.text
    yield columns.text()
