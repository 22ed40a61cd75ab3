"""Key/value buffers: what they hand out, how they grow, what they say of themselves."""

import pytest
import torch
from transformers import Gemma3TextConfig, LlamaConfig

from engine_daemon.errors import InspectError
from engine_daemon.worker.caches import (
    SMALLEST_CAPACITY,
    GrowingLayer,
    HfCache,
    TransformersCache,
    build_layers,
)
from engine_daemon.worker.tails import storage_bytes

pytestmark = pytest.mark.engine
HEADS, SIZE = 2, 4


def states(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(1, HEADS, n, SIZE, generator=generator),
        torch.randn(1, HEADS, n, SIZE, generator=generator),
    )


def test_hands_out_what_concatenation_would() -> None:
    layer = GrowingLayer()
    keys, values = [], []
    for seed, n in enumerate((3, 1, 1, SMALLEST_CAPACITY, 1, 700)):
        key, value = states(n, seed)
        keys.append(key)
        values.append(value)
        got = layer.update(key, value)
        assert torch.equal(got[0], torch.cat(keys, 2))
        assert torch.equal(got[1], torch.cat(values, 2))
        assert layer.get_seq_length() == got[0].shape[2]
        assert got[0].data_ptr() == layer.keys.data_ptr()
        assert layer.get_mask_sizes(5) == (layer.length + 5, 0)
    assert layer.capacity == 4 * SMALLEST_CAPACITY


def test_grows_by_doubling_and_not_in_between() -> None:
    layer = GrowingLayer()
    grown = 0
    pointer = 0
    for seed in range(3 * SMALLEST_CAPACITY):
        layer.update(*states(1, seed))
        grown += layer.keys.data_ptr() != pointer
        pointer = layer.keys.data_ptr()
    assert layer.capacity == 4 * SMALLEST_CAPACITY
    assert grown == 3


def test_limit_caps_the_buffer_but_not_what_is_needed() -> None:
    layer = GrowingLayer(limit=SMALLEST_CAPACITY + 10)
    layer.update(*states(SMALLEST_CAPACITY, 0))
    layer.update(*states(1, 1))
    assert layer.capacity == SMALLEST_CAPACITY + 10
    small = GrowingLayer(limit=8)
    small.update(*states(3, 0))
    assert small.capacity == 8
    small.update(*states(7, 1))
    assert small.capacity == 10


def test_crop_forgets_the_end() -> None:
    layer = GrowingLayer()
    first = states(6, 0)
    layer.update(*first)
    layer.crop(-2)
    again = states(1, 1)
    keys, _ = layer.update(*again)
    assert torch.equal(keys, torch.cat([first[0][:, :, :4], again[0]], 2))
    layer.crop(-100)
    assert layer.length == 0


def test_bytes_are_those_of_the_tensors() -> None:
    layer = GrowingLayer()
    assert layer.position_bytes * layer.length == 0
    layer.update(*states(5, 0))
    assert layer.position_bytes * layer.length == 5 * 2 * HEADS * SIZE * 4
    assert storage_bytes(layer.buffers()) == SMALLEST_CAPACITY * 2 * HEADS * SIZE * 4


def test_a_view_counts_as_the_storage_it_keeps_alive() -> None:
    whole = torch.zeros(100)
    assert storage_bytes([whole[:3], whole[50:]]) == 400


def test_full_attention_layers_are_ours_and_others_are_not() -> None:
    dense = build_layers(LlamaConfig(num_hidden_layers=2), None)
    assert [type(x) for x in dense.layers] == [GrowingLayer, GrowingLayer]
    kinds = ["sliding_attention", "full_attention"]
    mixed = build_layers(
        Gemma3TextConfig(num_hidden_layers=2, layer_types=kinds, sliding_window=4), None
    )
    assert [isinstance(x, GrowingLayer) for x in mixed.layers] == [False, True]


def test_reserve_makes_room_in_every_layer_at_once() -> None:
    layers = build_layers(LlamaConfig(num_hidden_layers=2), 1000)
    layers.reserve(900)  # nothing is known of their shape yet
    for i in range(2):
        layers.update(*states(2, i), i)
    layers.reserve(900)
    assert [x.capacity for x in layers.growing()] == [1000, 1000]
    assert [x.length for x in layers.growing()] == [2, 2]


def empty(kinds: list[str]) -> HfCache:
    config = Gemma3TextConfig(num_hidden_layers=len(kinds), layer_types=kinds, sliding_window=4)
    return HfCache("kv", lambda: build_layers(config, None))


def test_a_sliding_window_reports_what_it_holds() -> None:
    cache = empty(["sliding_attention", "full_attention"])
    for i in range(2):
        cache.layers.update(*states(9, i), i)
    cache.tokens = 9
    report = cache.report(64)
    position = 2 * HEADS * SIZE * 4
    assert report.growing_bytes == position * (9 + 3)  # a window of 4 keeps the last 3
    assert report.allocated_bytes is not None
    assert report.allocated_bytes >= position * (SMALLEST_CAPACITY + 3)
    assert (report.fixed_bytes, report.capacity_tokens) == (0, SMALLEST_CAPACITY)


def test_roll_back_crops_where_every_layer_can() -> None:
    cache = empty(["full_attention", "full_attention"])
    for i in range(2):
        cache.layers.update(*states(3, i), i)
    cache.tokens = 3
    cache.layers.update(*states(2, 5), 0)  # the forward failed before the second layer
    cache.roll_back()
    cache.check()
    assert [x.length for x in cache.layers.growing()] == [3, 3]


def test_roll_back_of_a_window_says_the_cache_is_lost() -> None:
    cache = empty(["sliding_attention", "full_attention"])
    cache.layers.update(*states(3, 0), 0)
    cache.roll_back()
    cache.check()  # nothing was held yet: an empty cache is as before
    assert cache.layers.get_seq_length() == 0
    cache.layers.update(*states(3, 0), 0)
    cache.tokens = 3
    cache.roll_back()
    with pytest.raises(InspectError, match="lost"):
        cache.check()


def test_free_gives_everything_back() -> None:
    cache = empty(["full_attention"])
    cache.layers.update(*states(3, 0), 0)
    cache.tokens = 3
    cache.free()
    assert isinstance(cache.layers, TransformersCache)
    report = cache.report(None)
    assert (report.tokens, report.growing_bytes, report.allocated_bytes) == (0, 0, 0)
    assert report.capacity_tokens == 0


def test_no_memory_for_the_second_buffer_leaves_the_first_as_it_was() -> None:
    layer = GrowingLayer()
    layer.update(torch.ones(1, 1, 3, 1), torch.ones(1, 1, 3, 10_000))
    with pytest.raises(RuntimeError, match="memory"):
        layer.reserve(10_000_000)  # 40 MB of keys, and 400 GB of values
    shapes = [buffer.shape[2] for buffer in layer.buffers()]
    assert shapes == [layer.capacity, layer.capacity] == [SMALLEST_CAPACITY, SMALLEST_CAPACITY]
