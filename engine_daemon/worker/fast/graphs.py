"""One decode step on a GPU as a graph that is recorded once and replayed: no launch is paid again.

`StaticStep` is the step as a function of buffers that stay where they are, the same on every
device; `Recorded` is it in a graph. A graph belongs to the buffers of one cache at one capacity.
Knows models by their forward, and our cache layers; no sessions.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer, LinearAttentionLayer

from engine_daemon.worker.caches import GrowingLayer, build_layers, state_tensors
from engine_daemon.worker.fast.direct import TOLERANCE, TRIED

PATH: Final = "graphs"
"""In the engine path."""
_MOST: Final = 8
"""Graphs that are kept, of the caches that were used last."""
_WARM_UPS: Final = 2
"""Runs before recording: libraries choose kernels and allocate on the first."""

_log: Final = logging.getLogger(__name__)


class _FixedLayer(DynamicLayer):  # type: ignore[misc]  # transformers is untyped
    """The buffers of a growing layer: new states go to `position`, and all of it is handed out."""

    def __init__(self, layer: GrowingLayer, position: Tensor) -> None:
        super().__init__()
        self.keys, self.values = layer.buffers()
        self.is_initialized = True
        self._position = position

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        """Write one position; both buffers, whole."""
        self.keys.index_copy_(2, self._position, key_states)
        self.values.index_copy_(2, self._position, value_states)
        return self.keys, self.values


class StaticStep:
    """The forward of one id over the buffers that `layers` have now.

    `token` and `position`, one number each, are set before it; logits are of the whole buffers,
    positions beyond `position` masked.
    """

    def __init__(self, model: Any, layers: Sequence[Any]) -> None:
        self._model = model
        growing = [layer for layer in layers if isinstance(layer, GrowingLayer)]
        device = growing[0].keys.device
        self.token = torch.zeros(1, 1, dtype=torch.long, device=device)
        self.position = torch.zeros(1, dtype=torch.long, device=device)
        self._places = torch.arange(growing[0].capacity, device=device)
        self._hybrid = len(growing) < len(layers)
        self._states = [state for layer in layers for state in state_tensors(layer)]
        self._cache = Cache(
            layers=[
                _FixedLayer(layer, self.position) if isinstance(layer, GrowingLayer) else layer
                for layer in layers
            ]
        )

    def compute(self) -> Tensor:
        """`[1, vocabulary]`; keys, values and states are those after it then."""
        mask: Any = (self._places <= self.position).view(1, 1, 1, -1)
        if self._hybrid:
            mask = {"full_attention": mask, "linear_attention": None}
        out = self._model(
            input_ids=self.token,
            position_ids=self.position.view(1, 1),
            attention_mask=mask,
            cache=self._cache,
            use_cache=True,
        )
        logits: Tensor = out.logits[0]
        return logits

    def states(self) -> list[Tensor]:
        """Copies of what a run changes beside the one position."""
        return [state.clone() for state in self._states]

    def put_states(self, copies: Sequence[Tensor]) -> None:
        """Have them as they were."""
        for state, copy in zip(self._states, copies, strict=True):
            state.copy_(copy)


class Replayed(Protocol):
    """A step that was made ready: it gives the logits of one id at one position."""

    def run(self, token_id: int, position: int) -> Tensor:
        """`[1, vocabulary]`, nobody else's."""
        ...


class Recorded:
    """A step in a CUDA graph. It holds no buffers of the cache: who replays it must have those."""

    def __init__(self, step: StaticStep, token_id: int, position: int) -> None:
        self._token, self._position = step.token, step.position
        self._device = step.token.device
        with torch.cuda.device(self._device):
            self._set(token_id, position)
            states = step.states()
            try:
                self._warm_up(step)
                self._graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
                    self._logits = step.compute()
            finally:
                step.put_states(states)

    def _warm_up(self, step: StaticStep) -> None:
        """On a stream of its own, as recording wants it."""
        beside: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]  # torch leaves it so
        beside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(beside):
            for _ in range(_WARM_UPS):
                step.compute()
        torch.cuda.current_stream().wait_stream(beside)

    def run(self, token_id: int, position: int) -> Tensor:
        """See `Replayed`."""
        with torch.cuda.device(self._device):
            self._set(token_id, position)
            self._graph.replay()
            return self._logits.clone()

    def _set(self, token_id: int, position: int) -> None:
        self._token.fill_(token_id)
        self._position.fill_(position)


Record = Callable[[StaticStep, int, int], Replayed]


class Graphs:
    """The graphs of all caches; `record` makes one."""

    def __init__(self, model: Any, record: Record = Recorded) -> None:
        self._model = model
        self._record = record
        self._made: OrderedDict[tuple[int, ...], Replayed] = OrderedDict()
        self._failed = False

    def takes(self, layers: Sequence[Any]) -> bool:
        """True when all of a cache's layers hold something that stays where it is."""
        if self._failed or not any(isinstance(layer, GrowingLayer) for layer in layers):
            return False
        return all(_stays(layer) for layer in layers)

    def logits(self, token_id: int, layers: Sequence[Any], position: int) -> Tensor | None:
        """`[1, vocabulary]` after one more id; None when it could not be recorded, and the cache is
        as it was. The layers are such as it `takes`, and have room."""
        key = _key(layers)
        made = self._made.get(key)
        if made is None:
            try:
                made = self._record(StaticStep(self._model, layers), token_id, position)
            except RuntimeError as error:
                _log.warning("steps are not recorded as graphs any more: %s", error)
                self._failed = True
                self.forget()
                return None
            self._made[key] = made
            while len(self._made) > _MOST:
                self._made.popitem(last=False)
        self._made.move_to_end(key)
        logits = made.run(token_id, position)
        for layer in layers:
            if isinstance(layer, GrowingLayer):
                layer.length = position + 1
        return logits

    def forget(self) -> None:
        """Drop all of them."""
        self._made.clear()


def _stays(layer: Any) -> bool:
    if type(layer) is GrowingLayer:
        return bool(layer.length > 0)
    states = list(state_tensors(layer))
    return type(layer) is LinearAttentionLayer and len(states) == 2 * layer.number_of_states


def _key(layers: Sequence[Any]) -> tuple[int, ...]:
    """Where the buffers lie, and how large they are."""
    places: list[int] = []
    for layer in layers:
        if isinstance(layer, GrowingLayer):
            places += (layer.capacity, layer.keys.data_ptr(), layer.values.data_ptr())
        else:
            places += (state.data_ptr() for state in state_tensors(layer))
    return tuple(places)


def graphs_of(model: Any) -> Graphs | None:
    """Graphs of a model on one GPU; None where steps cannot be recorded, or where a few of them do
    not give what the model's own forward gives."""
    config = model.config.get_text_config(decoder=True)
    on_gpu = all(parameter.device.type == "cuda" for parameter in model.parameters())
    if not on_gpu or config._attn_implementation != "sdpa":
        return None
    graphs = Graphs(model)
    try:
        same = agrees(graphs, model)
    except RuntimeError as error:
        _log.warning("steps are not recorded as graphs: %s", error)
        return None
    if not same:
        _log.warning("steps are not recorded as graphs: their numbers differ, or they cannot be")
        return None
    graphs.forget()
    return graphs


def agrees(graphs: Graphs, model: Any) -> bool:
    """True when some steps give the numbers of the model's own forward."""
    device = model.get_input_embeddings().weight.device
    with torch.inference_mode():
        ours, theirs = (build_layers(model.config, None) for _ in range(2))
        for at, ids in enumerate((*TRIED, *TRIED[1:])):
            tensor = torch.tensor([ids], device=device)
            expected = model(input_ids=tensor, cache=theirs, use_cache=True).logits[0, -1:]
            if at == 0:
                model(input_ids=tensor, cache=ours, use_cache=True)
                continue
            if not graphs.takes(ours.layers):
                return False
            ours.reserve(ours.get_seq_length() + 1)
            made = graphs.logits(ids[0], ours.layers, theirs.get_seq_length() - 1)
            if made is None:
                return False
            spread = expected.float() - expected.float().mean()
            apart = (made.float() - expected.float()).norm()
            if not bool(apart <= TOLERANCE.get(made.dtype, 0.1) * spread.norm()):
                return False
    return True
