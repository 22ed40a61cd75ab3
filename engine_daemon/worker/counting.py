"""How far the libraries are that read a GGUF: they tell nobody, so what they call is stood in for.

Nearly all of the time of a small model goes into its header, which holds the tokenizer's tables
and is read token by token, several times. Knows those libraries; converts nothing.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from engine_daemon.worker.backends.base import ProgressFn

_OFTEN: Final = 5000
"""Entries between two words."""


@contextmanager
def counted_tensors(progress: ProgressFn, stage: str, total: int) -> Iterator[None]:
    """Report transformers' walk over the file's tensors, and that it looks for their names before.

    That module draws a bar of its own with no hook for it, so its `tqdm` is stood in for.
    """
    from transformers import modeling_gguf_pytorch_utils as reader

    def counted(tensors: Iterable[Any], **_: object) -> Iterator[Any]:
        done = 0
        progress(stage, 0, total)
        for tensor in tensors:
            yield tensor
            done = min(total, done + int(getattr(tensor, "n_bytes", 0)))
            progress(stage, done, total)

    def named(*args: Any, **options: Any) -> Any:
        reader.get_gguf_hf_weights_map = names  # it calls itself
        progress("match", 0, 0)
        return names(*args, **options)

    bar, names = reader.tqdm, reader.get_gguf_hf_weights_map
    reader.tqdm, reader.get_gguf_hf_weights_map = counted, named
    try:
        yield
    finally:
        reader.tqdm, reader.get_gguf_hf_weights_map = bar, names


@contextmanager
def counted_header(progress: ProgressFn, stage: str) -> Iterator[None]:
    """Report the bytes of the header that were read, all readings of it together."""
    from gguf import GGUFReader

    read: Any = getattr(GGUFReader, "_get_field_parts", None)
    entries = done = before = 0

    def counted(reader: Any, offset: int, *rest: Any) -> Any:
        nonlocal entries, done, before
        entries += 1
        if entries % _OFTEN == 0:
            done += max(0, int(offset) - before)  # a new reading begins at the front again
            before = int(offset)
            progress(stage, done, 0)
        return read(reader, offset, *rest)

    progress(stage, 0, 0)
    if read is None:  # another version of the library
        yield
        return
    GGUFReader._get_field_parts = counted
    try:
        yield
    finally:
        GGUFReader._get_field_parts = read
