"""Decoder state: one length, strict rollback, one owner, memory that never moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache

from mmspec.errors import MMSpecError, StaleHandleError, StateError
from mmspec.proposals import NgramDrafter
from mmspec.state import DecoderState, layers
from mmspec.state.layers import GrowingLayer
from tests.toys import PROMPT, ToyTarget, decode, open_session, perfect, toy_law

WIDTH = 3


def block(size: int, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    keys = torch.arange(size * WIDTH, dtype=torch.float32).view(1, 1, size, WIDTH) + offset
    return keys, -keys


def feed(state: DecoderState, size: int, offset: float = 0.0) -> tuple[Tensor, Tensor]:
    """A forward pass of `size` positions through every layer; the last layer's view."""
    with state.block(size):
        for layer in range(len(state._growing)):
            views = state.cache.update(*block(size, offset), layer)
    return views


def state_of(
    layers: int = 2, capacity: int = 8, cross_attention: bool = False, length: int = 0
) -> DecoderState:
    state = DecoderState(layers, capacity, cross_attention=cross_attention)
    if length:
        feed(state, length)
    return state


def test_a_forward_moves_the_length_and_sees_everything_before_it() -> None:
    state = state_of()
    feed(state, 3)
    keys, values = feed(state, 2, offset=100.0)
    assert state.length == 5
    expected = torch.cat([block(3)[0], block(2, 100.0)[0]], dim=2)
    torch.testing.assert_close(keys, expected)
    torch.testing.assert_close(values, -expected)
    assert state.cache.get_seq_length() == 5


def test_rollback_then_growth_overwrites() -> None:
    state = state_of(length=5)
    state.rollback(2)
    keys, _ = feed(state, 1, offset=50.0)
    assert state.length == 3
    torch.testing.assert_close(keys, torch.cat([block(2)[0], block(1, 50.0)[0]], dim=2))


@pytest.mark.parametrize("to", [6, 7, 100, -1])
def test_rollback_is_never_clamped(to: int) -> None:
    state = state_of(length=5)
    message = rf"can't roll back to position {to}: the state holds 5 positions, of which the first"
    with pytest.raises(StateError, match=message):
        state.rollback(to)
    assert state.length == 5


@pytest.mark.parametrize("move", ["rollback", "commit"])
def test_rollback_below_the_frozen_prefix_raises(move: str) -> None:
    state = state_of(length=4)
    state.freeze()
    feed(state, 2)
    with pytest.raises(StateError, match=r"holds 6 positions, of which the first 4 are frozen"):
        getattr(state, move)(3)
    assert state.length == 6
    getattr(state, move)(4)
    assert state.length == 4


def test_D9_a_block_past_the_capacity_raises_before_anything_is_written() -> None:
    state = state_of(length=7)
    with pytest.raises(StateError, match=r"block of 2 positions doesn't fit: 7 of 8"):
        feed(state, 2)
    with pytest.raises(StateError, match=r"block of 0 positions"):
        feed(state, 0)
    feed(state, 1)
    assert state.length == 8
    with pytest.raises(StateError, match=r"block of 1 positions doesn't fit: 8 of 8"):
        feed(state, 1)


def test_one_owner_at_a_time() -> None:
    state = state_of(length=2)
    with state.block(1):
        with pytest.raises(StateError, match=r"one owner at a time"), state.block(1):
            pass
        with pytest.raises(StateError, match=r"can't roll back inside a forward pass"):
            state.rollback(1)
    assert state.length == 3


@pytest.mark.parametrize("announced", [None, 1, 3])
def test_a_layer_writes_only_what_was_announced(announced: int | None) -> None:
    state = state_of(length=2)
    message = rf"a layer wrote 2 positions, but {announced} were announced"
    if announced is None:
        with pytest.raises(StateError, match=message):
            state.cache.update(*block(2), 0)
    else:
        with pytest.raises(StateError, match=message), state.block(announced):
            state.cache.update(*block(2), 0)
    assert state.length == 2


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_failed_forward_leaves_the_length_and_frees_the_state(
    error: type[BaseException],
) -> None:
    state = state_of(length=2)

    def forward() -> None:
        with state.block(3):
            state.cache.update(*block(3, 9.0), 0)  # the second layer is never reached
            raise error("half-way")

    with pytest.raises(error, match="half-way"):
        forward()
    assert state.length == 2
    keys, _ = feed(state, 1, offset=7.0)
    torch.testing.assert_close(keys, torch.cat([block(2)[0], block(1, 7.0)[0]], dim=2))


def test_a_mark_is_a_position_to_come_back_to() -> None:
    state = state_of(length=2)
    mark = state.mark()
    feed(state, 3)
    state.restore(mark)
    assert state.length == 2
    feed(state, 1)
    state.restore(mark)
    assert state.length == 2


def test_a_mark_is_stale_after_a_commit_and_says_what_the_usual_mistake_is() -> None:
    state = state_of(length=2)
    mark = state.mark()
    feed(state, 3)
    state.commit(4)
    with pytest.raises(StaleHandleError, match=r"The usual mistake is to keep one mark over"):
        state.restore(mark)
    assert state.length == 4


def test_a_mark_belongs_to_its_state() -> None:
    one, other = state_of(length=3), state_of(length=3)
    with pytest.raises(StaleHandleError, match=r"a stale mark \(position 3\)"):
        other.restore(one.mark())


USES: dict[str, Callable[[DecoderState], Any]] = {
    "cache": lambda state: state.cache,
    "block": lambda state: state.block(1).__enter__(),
    "rollback": lambda state: state.rollback(0),
    "commit": lambda state: state.commit(0),
    "freeze": lambda state: state.freeze(),
    "mark": lambda state: state.mark(),
    "lend": lambda state: state.lend(1),
    "enter": lambda state: state.__enter__(),
    "follow": lambda state: state.follow_lender(),
}


@pytest.mark.parametrize("use", USES)
def test_a_closed_state_raises_and_says_what_the_usual_mistake_is(use: str) -> None:
    state = state_of(length=1)
    with state:
        pass
    with pytest.raises(StaleHandleError, match=r"The usual mistake is to keep a target or"):
        USES[use](state)
    state.close()  # twice is harmless
    assert issubclass(StaleHandleError, MMSpecError)


def test_a_cache_kept_after_the_close_writes_nothing() -> None:
    state = state_of(length=1)
    cache = state.cache
    state.close()
    with pytest.raises(StaleHandleError, match=r"this decoder state is closed"):
        cache.layers[0].update(*block(1))


def test_the_state_is_closed_when_its_with_block_raises() -> None:
    state = state_of(length=1)
    with pytest.raises(ZeroDivisionError, match="division"), state:
        _ = 1 / 0
    with pytest.raises(StaleHandleError, match=r"closed"):
        state.mark()


def attention(keys: Tensor, values: Tensor) -> Tensor:
    query = torch.ones(1, 1, 1, WIDTH)
    return torch.nn.functional.scaled_dot_product_attention(query, keys, values)


def test_slots_past_the_length_are_poisoned_and_never_read() -> None:
    state, clean = state_of(), state_of()
    for size, back in ((3, 3), (4, 5), (1, 4), (2, 6)):
        state.poison_unused()
        poisoned, expected = feed(state, size, 3.0), feed(clean, size, 3.0)
        torch.testing.assert_close(attention(*poisoned), attention(*expected), rtol=0, atol=0)
        state.rollback(back)
        clean.rollback(back)
    assert bool(state._growing[0].keys.isnan().any()), "there was poison to be read"


def test_a_read_one_slot_too_far_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    real = GrowingLayer.update

    def one_too_far(self: Any, keys: Tensor, values: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
        keys, values = real(self, keys, values)
        end = keys.shape[2] + 1
        return self.keys[:, :, :end], self.values[:, :, :end]

    state = state_of(length=3)
    state.poison_unused()
    monkeypatch.setattr(GrowingLayer, "update", one_too_far)
    assert bool(attention(*feed(state, 1)).isnan().any())


def test_poisoned_slots_dont_reach_the_output_of_a_session() -> None:
    law = toy_law(0)
    run = open_session(law, perfect(law), 4)
    while run.session.finish_reason is None:
        run.target.state.poison_unused()
        run.session.round()
    assert run.session.prefix.emitted == decode(law).ids


def cross_block() -> tuple[Tensor, Tensor]:
    return torch.rand(1, 1, 5, WIDTH), torch.rand(1, 1, 5, WIDTH)


def conditioned(capacity: int = 32) -> DecoderState:
    state = state_of(capacity=capacity, cross_attention=True)
    with state.block(2):
        for layer in range(2):
            state.cache.self_attention_cache.update(*block(2), layer)
            state.cache.cross_attention_cache.update(*cross_block(), layer)
            state.cache.is_updated[layer] = True
    return state


def test_D6_D7_conditioning_is_written_once_and_never_cropped() -> None:
    state = conditioned()
    assert isinstance(state.cache, EncoderDecoderCache)
    layer = state.cache.cross_attention_cache.layers[0]
    with pytest.raises(StateError, match=r"conditioning is frozen: .* a second"):
        state.cache.cross_attention_cache.update(*cross_block(), 0)
    with pytest.raises(StateError, match=r"conditioning is frozen: it can't be cropped"):
        layer.crop(1)
    for touch in (layer.reset, lambda: layer.reorder_cache(torch.tensor([0]))):
        with pytest.raises(StateError, match=r"conditioning is frozen"):
            touch()
    state.rollback(0)
    assert layer.get_seq_length() == layer.get_max_length() == 5
    assert layer.get_mask_sizes(3) == (5, 0)


def test_a_growing_layer_is_moved_by_its_owner_only() -> None:
    state = state_of(length=3)
    layer = state.cache.layers[0]
    with pytest.raises(StateError, match=r"use DecoderState.rollback"):
        layer.crop(1)
    for touch in (layer.reset, lambda: layer.reorder_cache(torch.tensor([0]))):
        with pytest.raises(StateError, match=r"a layer can't be .* by itself"):
            touch()
    assert layer.get_seq_length() == 3
    assert layer.get_mask_sizes(2) == (5, 0)
    assert layer.get_max_length() == 8


def test_nothing_is_copied_or_reallocated_over_many_rounds() -> None:
    state = conditioned()
    cross = [(id(c.keys), c.keys.data_ptr(), id(c.values)) for c in state._conditioning]
    growing = [(g.keys.data_ptr(), g.values.data_ptr()) for g in state._growing]
    for round_number in range(12):
        with state.block(4):
            for layer in range(2):
                keys, _ = state.cache.self_attention_cache.update(*block(4), layer)
                assert keys.data_ptr() == growing[layer][0], "a view, not a copy"
        state.commit(3 + round_number)
    assert cross == [(id(c.keys), c.keys.data_ptr(), id(c.values)) for c in state._conditioning]
    assert growing == [(g.keys.data_ptr(), g.values.data_ptr()) for g in state._growing]


def test_conditioning_is_the_very_tensor_that_the_prefill_computed() -> None:
    state = state_of(cross_attention=True)
    keys, values = cross_block()
    kept = state.cache.cross_attention_cache.update(keys, values, 0)
    assert kept[0] is keys
    assert kept[1] is values
    assert state._conditioning[0].keys is keys


def test_a_lent_state_shares_memory_and_has_a_length_of_its_own() -> None:
    lender = conditioned()
    borrower = lender.lend(1)
    assert borrower.length == 2
    assert borrower._growing[0].keys.data_ptr() == lender._growing[0].keys.data_ptr()
    assert borrower._conditioning[0] is lender._conditioning[0]
    with borrower.block(3):
        keys, _ = borrower.cache.self_attention_cache.update(*block(3, 60.0), 0)
    assert (borrower.length, lender.length) == (5, 2)
    torch.testing.assert_close(keys[:, :, :2], block(2)[0])
    with lender.block(1):
        for layer in range(2):
            keys, _ = lender.cache.self_attention_cache.update(*block(1, 70.0), layer)
    torch.testing.assert_close(keys[:, :, 2:], block(1, 70.0)[0])
    borrower.follow_lender()
    assert borrower.length == 3
    assert borrower._growing[0].keys.data_ptr() == lender._growing[0].keys.data_ptr()
    torch.testing.assert_close(borrower._growing[0].keys[:, :, 2:3], block(1, 70.0)[0])
    borrower.close()
    assert lender.length == 3


def test_a_borrower_writes_nothing_that_the_lender_holds() -> None:
    """Whether it went back there, or the lender has gone on since."""
    lender = conditioned()
    borrower = lender.lend(1)
    borrower.rollback(1)
    held = lender._growing[0].keys[:, :, :2].clone()
    with pytest.raises(StateError, match=r"position 1 on.*lent.*filled 2"), borrower.block(1):
        borrower.cache.self_attention_cache.update(*block(1, 60.0), 0)
    borrower.follow_lender()
    with lender.block(3):
        for layer in range(2):
            lender.cache.self_attention_cache.update(*block(3, 70.0), layer)
    with pytest.raises(StateError, match=r"position 2 on.*lent.*filled 5"), borrower.block(3):
        borrower.cache.self_attention_cache.update(*block(3, 60.0), 0)
    lender.rollback(3)
    borrower.follow_lender()
    with borrower.block(3):
        borrower.cache.self_attention_cache.update(*block(3, 60.0), 0)
    lender.rollback(2)
    with lender.block(3):
        lender.cache.self_attention_cache.update(*block(3, 80.0), 0)
    with pytest.raises(StateError, match=r"position 3 on.*lent.*filled 5"):
        borrower.keep_path(3, (1,))
    assert torch.equal(lender._growing[0].keys[:, :, :2], held)


def test_memory_grows_to_a_capacity_that_nobody_means(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is there stays there, also for a borrower; a usual request is never copied."""
    monkeypatch.setattr(layers, "ROOM", 4)
    state = state_of(capacity=10**9)
    feed(state, 3)
    borrower = state.lend(1)
    before = state._growing[0].keys
    assert before.shape[2] == 7
    feed(state, 4, 50.0)
    assert state._growing[0].keys is before
    borrower.follow_lender()
    with borrower.block(2):
        keys, _ = borrower.cache.update(*block(2, 80.0), 0)
    want = torch.cat([block(3)[0], block(4, 50.0)[0], block(2, 80.0)[0]], dim=2)
    assert torch.equal(keys, want)
    assert state._growing[0].keys.shape[2] == 14
    views = feed(state, 30, 90.0)
    assert torch.equal(views[0][:, :, :7], want[:, :, :7])
    assert state._growing[0].keys.shape[2] == 37
    borrower.follow_lender()
    with borrower.block(1):
        keys, _ = borrower.cache.update(*block(1), 0)
    assert torch.equal(keys[:, :, 7:37], block(30, 90.0)[0])
    assert state_of(capacity=5, length=2)._growing[0].keys.shape[2] == 5


def test_lending_needs_something_to_lend() -> None:
    with pytest.raises(StateError, match=r"lent only once its prompt has been read"):
        state_of().lend(1)
    with pytest.raises(StateError, match=r"this state has no lender"):
        state_of(length=1).follow_lender()


def test_a_session_leaves_its_state_on_the_committed_prefix() -> None:
    law = toy_law(0)
    run = decode(law, NgramDrafter(3, 1), 6)
    assert run.target.held == tuple(run.session.prefix.ids)[:-1]
    target = ToyTarget(law)
    target.score(PROMPT, keep=1)
    assert target.held == PROMPT


class TestLayersOfConditioning:
    """Layers that hold conditioning among those that grow: one cache for both, as in Mllama."""

    def mixed(self, length: int = 2) -> DecoderState:
        state = DecoderState(3, 16, cross_attention=False, frozen_layers=[1])
        with state.block(length):
            for layer, written in enumerate((block(length), cross_block(), block(length, 50.0))):
                state.cache.update(*written, layer)
        return state

    def grow(self, state: DecoderState, size: int, offset: float) -> None:
        with state.block(size):
            for layer in (0, 2):
                state.cache.update(*block(size, offset), layer)

    def test_rolling_back_leaves_them_alone(self) -> None:
        state = self.mixed()
        layer = state.conditioning(1)
        keys, held = layer.keys, layer.keys.clone()
        for number in range(6):
            self.grow(state, 4, 10.0 * number)
            state.poison_unused()
            state.keep_path(2, (1, 3))
            state.rollback(2)
        assert state.conditioning(1).keys is keys
        assert torch.equal(keys, held)
        assert layer.get_seq_length() == 5
        assert state.cache.get_seq_length() == state.length == 2

    def test_a_path_is_kept_in_every_layer_that_grows(self) -> None:
        state = self.mixed()
        self.grow(state, 3, 0.0)
        state.keep_path(2, (0, 2))
        for layer, first in ((0, 0.0), (2, 50.0)):
            kept = state.growing(layer).keys[:, :, :4]
            want = torch.cat([block(2, first)[0], block(3)[0][:, :, [0, 2]]], dim=2)
            torch.testing.assert_close(kept, want)

    def test_poison_reaches_what_grows_only(self) -> None:
        state = self.mixed()
        state.poison_unused()
        assert bool(state.growing(2).keys.isnan().any())
        assert not bool(state.conditioning(1).keys.isnan().any())

    def test_they_are_lent_in_their_places(self) -> None:
        lender = self.mixed()
        borrower = lender.lend(2)
        assert borrower.conditioning(1) is lender.conditioning(1)
        assert borrower.growing(0).keys.data_ptr() == lender.growing(0).keys.data_ptr()
        assert len(borrower.cache.layers) == 2

    def test_a_state_beside_shares_them_and_grows_by_itself(self) -> None:
        state = self.mixed()
        other = state.fork()
        assert other.conditioning(1) is state.conditioning(1)
        self.grow(other, 1, 9.0)
        assert (other.length, state.length) == (1, 2)
        torch.testing.assert_close(state.growing(2).keys[:, :, :2], block(2, 50.0)[0])

    def test_each_kind_is_asked_for_by_its_name(self) -> None:
        state = self.mixed()
        with pytest.raises(StateError, match="layer 1 has no self-attention"):
            state.growing(1)
        with pytest.raises(StateError, match="layer 2 has no cross-attention"):
            state.conditioning(2)

    def test_the_first_layer_grows(self) -> None:
        with pytest.raises(StateError, match="layer 0 can't be frozen"):
            DecoderState(2, 8, cross_attention=False, frozen_layers=[0])


class TestKeepingAPath:
    """Of a tree's positions one path stays, side by side; nothing before it moves."""

    def filled(self, length: int = 4, tree: int = 6) -> DecoderState:
        state = DecoderState(2, 16, cross_attention=False)
        for start, size in ((0, length), (length, tree)):
            with state.block(size):
                for layer in range(2):
                    written = torch.arange(start, start + size).float() + 100 * layer
                    state.cache.update(written.view(1, 1, -1, 1), -written.view(1, 1, -1, 1), layer)
        return state

    def held(self, state: DecoderState, layer: int) -> list[int]:
        memory = state.growing(layer)
        assert torch.equal(memory.keys[:, :, : state.length], -memory.values[:, :, : state.length])
        return [int(x) - 100 * layer for x in memory.keys[0, 0, : state.length, 0].tolist()]

    @pytest.mark.parametrize("path", [(), (0,), (0, 1, 2), (3,), (1, 4), (0, 2, 5), (2, 3, 4, 5)])
    def test_the_path_is_kept_in_order(self, path: tuple[int, ...]) -> None:
        state = self.filled()
        state.keep_path(4, path)
        for layer in range(2):
            assert self.held(state, layer) == [0, 1, 2, 3, *(4 + node for node in path)]

    @pytest.mark.parametrize("path", [(1, 1), (2, 1)])
    def test_a_path_that_does_not_rise_is_refused(self, path: tuple[int, ...]) -> None:
        with pytest.raises(StateError, match="doesn't rise"):
            self.filled().keep_path(4, path)

    @pytest.mark.parametrize("path", [(6,), (-1,), (0, 9)])
    def test_a_path_outside_of_what_is_held_is_refused(self, path: tuple[int, ...]) -> None:
        with pytest.raises(StateError, match="leaves the 10 positions"):
            self.filled().keep_path(4, path)

    def test_frozen_positions_stay(self) -> None:
        state = DecoderState(1, 8, cross_attention=False)
        with state.block(2):
            state.cache.update(torch.zeros(1, 1, 2, 1), torch.zeros(1, 1, 2, 1), 0)
        state.freeze()
        with pytest.raises(StateError, match="frozen"):
            state.keep_path(0, (1,))
