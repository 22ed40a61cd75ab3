"""The `hf` backend: a transformers causal language model, one forward at a time, on one device.

With several ranks this is one rank's part; `ranks` keeps them together.

Knows ids and tensors. Knows no sessions, sampling rules or sockets.
"""

import hashlib
import inspect
import logging
import time
from collections import Counter
from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from transformers.cache_utils import get_layer_types_and_kwargs

from engine_daemon.errors import Exit, InspectError
from engine_daemon.protocol.pieces import ProbeText
from engine_daemon.protocol.values import ModelInfo, WeightsFile, Work
from engine_daemon.protocol.worker import EngineOptions
from engine_daemon.worker import models
from engine_daemon.worker.backends.base import (
    Forward,
    Loaded,
    NoMemoryError,
    ProgressFn,
    Scored,
    SessionCache,
)
from engine_daemon.worker.caches import HfCache, build_layers
from engine_daemon.worker.checkpoint import Checkpoint, check_folder, refuse
from engine_daemon.worker.convert import converted_note
from engine_daemon.worker.costs import Costs, costs_of
from engine_daemon.worker.fast.direct import DirectStep
from engine_daemon.worker.fast.engine import PLAIN, direct_step, speed_up
from engine_daemon.worker.fast.graphs import PATH as GRAPHS
from engine_daemon.worker.fast.graphs import Graphs, graphs_of
from engine_daemon.worker.fast.linear import named_weights
from engine_daemon.worker.forward_thread import ForwardThread, of_onednn
from engine_daemon.worker.fp8 import dequantised
from engine_daemon.worker.loading import check_model, dtype_word, load_model
from engine_daemon.worker.memory import free_bytes, is_short, told_short, tried_bytes
from engine_daemon.worker.order import Desk
from engine_daemon.worker.placement import Place, choose_place, device_bytes
from engine_daemon.worker.probe import RowDistribution
from engine_daemon.worker.scores import score_rows
from engine_daemon.worker.sizes import extra_scratch
from engine_daemon.worker.tokenizer_check import check_tokenizer
from engine_daemon.worker.verify import verified_files
from engine_daemon.worker.weights_sum import checksum, local_part

_log = logging.getLogger(__name__)

_LOST: tuple[type[Exception], ...] = tuple(
    filter(None, [getattr(torch, "AcceleratorError", None)])  # not in every torch
)
"""What is raised when a GPU's own work failed."""


class HfBackend:
    """See `backends.base.Backend`."""

    name = "hf"
    synthetic = False

    def __init__(self) -> None:
        self._model: Any = None
        self._folder = Path()
        self._device = torch.device("cpu")
        self.place = Place((self._device,))
        self._vocabulary = 0
        self._limit: int | None = None
        self._costs: Costs | None = None
        self._desk: Desk | None = None
        self._thread = ForwardThread()
        self._parameters = self._weights_bytes = 0
        self._path = PLAIN
        self._direct: DirectStep | None = None
        self._graphs: Graphs | None = None
        self._last_only: dict[str, int] = {}
        self._snapshot_every: int | None = None
        self._checksum = ""
        self._notes: list[str] = []

    # Loading -----------------------------------------------------------------------------------

    def load(self, options: EngineOptions, model_dir: str, progress: ProgressFn) -> Loaded:
        """Load the checkpoint in `model_dir` and run it once. Raises InspectError (exit 3)."""
        started = time.monotonic()
        checkpoint = check_folder(Path(model_dir))
        files = (
            verified_files(checkpoint, progress) if options.verify else checkpoint.weights_files()
        )
        place = choose_place(options)
        check_model(checkpoint, options, place)
        self.fill(checkpoint, options, place, progress)
        self._checksum = self.sum_weights(progress)
        progress("warm up", 0, 0)
        self._warm_up()
        return Loaded(
            model=self._describe(files, options, time.monotonic() - started),
            weights_id=checkpoint.weights_id(),
            eos_ids=self._eos_ids(),
            notes=self._notes,
        )

    def fill(
        self, checkpoint: Checkpoint, options: EngineOptions, place: Place, progress: ProgressFn
    ) -> None:
        """Load this rank's part of a checkpoint that was checked. Raises InspectError (exit 3)."""
        self._folder, self.place = checkpoint.folder, place
        self._device = place.device
        self._snapshot_every = options.snapshot_every
        self._model = load_model(checkpoint, options, place, progress)
        self._notes = converted_note(checkpoint.folder)
        if dequantised(checkpoint, self._model):
            dtype = dtype_word(self._model.dtype)
            self._notes += [
                f"no FP8 kernels for {place}: the FP8 weights are dequantised to {dtype}"
            ]
        self._read_shape(options)
        if not options.plain_engine and place.world == 1:
            progress("pack", 0, 0)
            self._speed_up()

    def check_probe(self, probe: Sequence[ProbeText]) -> None:
        """Compare the tokens process's ids with transformers'. Raises InspectError (exit 3)."""
        check_tokenizer(self._folder, probe)

    def _read_shape(self, options: EngineOptions) -> None:
        arguments = inspect.signature(self._model.forward).parameters
        if "cache" not in arguments:
            refuse(
                f"{type(self._model).__name__} keeps its state in a way that is not supported",
                "Use an attention or hybrid language model",
            )
        self._last_only = {"logits_to_keep": 1} if "logits_to_keep" in arguments else {}
        self._vocabulary = int(self._model.get_input_embeddings().weight.shape[0])
        self._limit = options.max_context or self._context_length() or None
        self._costs = costs_of(self._model, self._layer_kinds())
        self._parameters = sum(x.numel() for x in self._model.parameters())
        self._weights_bytes = sum(x.nbytes for x in self._model.parameters())
        self._desk = None

    def _speed_up(self) -> None:
        done = [speed_up(self._model, free_bytes(self._device))]
        self._direct, more = direct_step(self._model, self._weights_bytes, free_bytes(self._device))
        self._graphs = graphs_of(self._model)
        more += [GRAPHS] if self._graphs is not None else []
        self._path = "+".join([*(part for part in done if part != PLAIN), *more]) or PLAIN
        _log.info("engine path: %s", self._path)

    def _warm_up(self) -> None:
        """The first forwards pay for kernels and buffers; no step of a session shall."""
        cache = self.new_cache("kv")
        self.forward([0, 0], cache)
        self.forward([0], cache)
        cache.free()

    @property
    def _text_config(self) -> Any:
        return self._model.config.get_text_config(decoder=True)

    def _layer_kinds(self) -> list[str]:
        kinds: list[str] = get_layer_types_and_kwargs(self._text_config)[0]
        return kinds

    def _context_length(self) -> int:
        return int(getattr(self._text_config, "max_position_embeddings", None) or 0)

    def _eos_ids(self) -> list[int]:
        """The generation settings' end tokens, else the configuration's."""
        for source in (self._model.generation_config, self._model.config, self._text_config):
            found = getattr(source, "eos_token_id", None)
            if found is not None:
                return [int(x) for x in (found if isinstance(found, list) else [found])]
        return []

    def sum_weights(self, progress: ProgressFn) -> str:
        """A checksum of the bytes of all weights that are computed with, as they lie in memory."""
        named = ((name, local_part(tensor)) for name, tensor in named_weights(self._model))
        summed = checksum(sorted(named, key=itemgetter(0)), progress)
        if self._direct is None or not self._checksum:
            return summed
        if not self._direct.is_as_loaded(lambda: progress("checksum", 0, 0)):
            return hashlib.sha256(f"{summed}, and copies that differ".encode()).hexdigest()
        return summed

    def _describe(
        self, files: list[WeightsFile], options: EngineOptions, load_s: float
    ) -> ModelInfo:
        kinds = self._layer_kinds()
        return ModelInfo(
            name=models.display_name(options.model),
            architecture=type(self._model).__name__,
            parameters=self._parameters,
            dtype=dtype_word(self._model.dtype),
            device=str(self.place),
            ranks=self.place.world,
            layers=len(kinds),
            layer_kinds=dict(Counter(kinds)),
            vocabulary=self._vocabulary,
            context_length=self._context_length(),
            weights_bytes=self._weights_bytes,
            weights_files=files,
            load_s=round(load_s, 3),
            weights_checksum=self._checksum,
            engine_path=self._path,
        )

    # Decoding ----------------------------------------------------------------------------------

    def new_cache(self, mode: Literal["kv", "none"]) -> HfCache:
        """An empty cache."""
        return HfCache(mode, **self._cache_parts())

    def _cache_parts(self) -> dict[str, Any]:
        """What caches of this model are made of; bytes are those of this rank."""
        whole = self._costs.position_bytes if self._costs is not None else 0
        counted = self._device.type != "cpu"
        return {
            "make_layers": partial(build_layers, self._model.config, self._limit),
            "snapshot_every": self._snapshot_every,
            "position_bytes": whole // self.place.world,
            "device_bytes": partial(device_bytes, self._device) if counted else None,
        }

    def forward(self, ids: Sequence[int], cache: SessionCache) -> Forward:
        """Read `ids` after what the cache holds. Raises InspectError (`no_memory`, `engine`,
        `bad_arg`, `context_full`); the cache then is as it was, or says it is lost."""
        return self.read(ids, cache, None).forward

    def score(self, ids: Sequence[int], cache: SessionCache, targets: Sequence[int]) -> Scored:
        """As `forward`, with how likely each of `targets` was after the id at its place."""
        return self.read(ids, cache, list(targets))

    def read(self, ids: Sequence[int], cache: SessionCache, targets: list[int] | None) -> Scored:
        """Both of them: `targets` None is `forward`, and only the last row is computed."""
        if not isinstance(cache, HfCache):
            raise TypeError("a cache of another backend")
        cache.check()
        self._check_ids(ids, cache.tokens)
        read = [*cache.ids, *ids] if cache.mode == "none" else list(ids)
        if len(ids) == 1:
            cache.before_step()
        self._synchronise()
        started = time.perf_counter_ns()
        try:
            last_only = targets is None
            rows = self._thread.run(lambda: self._logits(read, cache, last_only=last_only))
            self._synchronise()
            ms = (time.perf_counter_ns() - started) / 1e6
            logprobs, ranks = score_rows(rows, targets) if targets else ([], [])
            # A view of many rows would keep all of them alive.
            row = rows[-1] if len(rows) == 1 else rows[-1].clone()
        except (RuntimeError, IndexError, MemoryError) as error:
            if isinstance(error, _LOST) and not is_short(error):
                # Nothing runs on a device after it: the hub starts the engine anew.
                raise SystemExit(f"the device is lost: {error}") from error
            cache.roll_back()
            raise _failed(error, self._device) from error
        except InspectError:
            cache.roll_back()
            raise
        cache.tokens += len(ids)
        cache.ids.extend(ids)
        if self._desk is None and row.device.type == "cpu":
            self._desk = Desk(row.numel())
        return Scored(Forward(RowDistribution(row, self._desk), ms, len(read)), logprobs, ranks)

    def _logits(self, read: list[int], cache: HfCache, *, last_only: bool) -> Tensor:
        """Logits of the last position, or of all that were read, a row each."""
        keep = self._last_only if last_only else {}
        direct, graphs, held = self._direct, self._graphs, cache.layers
        with torch.inference_mode():
            if len(read) == 1 and direct is not None and direct.takes(held.layers):
                held.reserve(cache.tokens + 1)
                return direct.logits(read[0], held.layers)
            if len(read) == 1 and graphs is not None and graphs.takes(held.layers):
                held.reserve(cache.tokens + 1)
                made = graphs.logits(read[0], held.layers, cache.tokens)
                if made is not None:
                    return made
            tensor = torch.tensor([read], dtype=torch.long, device=self._device)
            if cache.mode == "none":
                out = self._model(input_ids=tensor, use_cache=False, **keep)
            else:
                # Room first: running out of memory here leaves every layer as it was.
                held.reserve(cache.tokens + len(read))
                out = self._model(input_ids=tensor, cache=held, use_cache=True, **keep)
            rows: Tensor = out.logits[0]
            return rows

    def _check_ids(self, ids: Sequence[int], held: int) -> None:
        if not ids or min(ids) < 0 or max(ids) >= self._vocabulary:
            raise InspectError(
                f"ids must be 0 to {self._vocabulary - 1}, at least one",
                exit_code=Exit.ENGINE,
                code="bad_arg",
            )
        if self._limit is not None and held + len(ids) > self._limit:
            raise InspectError(
                f"{held + len(ids)} positions are more than the context of {self._limit}",
                "Use a shorter prompt, or a larger --max-context",
                exit_code=Exit.ENGINE,
                code="context_full",
            )

    def _synchronise(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)

    def work(self, processed: int, position: int) -> Work:
        """Derived costs of a forward, see `costs.Costs.work`."""
        if self._costs is None:
            raise RuntimeError("no model is loaded")
        return self._costs.work(processed, position)

    def free_bytes(self) -> int | None:
        """Memory that this rank can have."""
        return self.place.free_bytes()

    def scratch_bytes(self, positions: int, rows: int) -> int:
        """See `budget.KnowsScratch`."""
        return extra_scratch(self._text_config, self._model.dtype.itemsize, positions, rows)

    def close(self) -> None:
        """Free everything."""
        self._thread.close()
        self._model = self._desk = self._costs = self._direct = self._graphs = None
        if self._device.type == "cuda":
            torch.cuda.empty_cache()


def _failed(error: Exception, device: torch.device) -> InspectError:
    """What a failed forward means to a person."""
    if is_short(error):
        said = f"{told_short(error, device)}; close other sessions, or use a smaller --max-context"
        return NoMemoryError(said, tried_bytes(error), free_bytes(device))
    line = (str(error).strip() or type(error).__name__).splitlines()[0][:300]
    if of_onednn(error):
        line = f"oneDNN {line}, as where memory runs out; it may work the next time"
    return InspectError(f"the forward failed: {line}", exit_code=Exit.ENGINE, code="engine")
