"""Classic faults of models that look or listen, planted in production code and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from mmspec import generation
from mmspec.errors import StateError
from mmspec.modalities import adapter_for
from mmspec.modalities.base import batch as media
from mmspec.modalities.base import draft as drafting
from mmspec.modalities.base import prefix_decoder as prefixed
from mmspec.modalities.base.prefix_decoder import PrefixTarget, WindowedTarget
from mmspec.proposals import NgramDrafter
from mmspec.state import DecoderState
from tests.modalities.prefix_runs import (
    decoding,
    given,
    model_of,
    said,
    sibling_of,
    speculated,
    target_of,
    without_cache,
)
from tests.modalities.test_vlm_prefix import PADDINGS
from tests.modalities.tiny_prefix import MEDIA, inputs, tiny

from .catching import (
    Caught,
    Check,
    Mutant,
    Patch,
    expect,
)
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes

UNITS = [7, 40, 11, 60, 22, 35]


def close(rows: Tensor, others: Tensor) -> bool:
    return torch.allclose(rows, others, atol=1e-4, rtol=1e-4)


# The checks.


def blocks_are_scored_as_a_full_forward_does() -> None:
    for name in ("qwen2_vl", "paligemma"):
        prompt = given(name, "images")
        want = without_cache(name, prompt, UNITS)
        with target_of(name, prompt) as (target, first):
            rows = torch.cat([first, target.score(UNITS[:2], 2), target.score(UNITS[2:], 4)])
            expect(close(rows, want), f"a block of {name} was scored otherwise")


def interleaved_requests_do_not_meet() -> None:
    cases = ("images", "text")
    with ExitStack() as stack:
        sessions = [
            stack.enter_context(decoding("qwen2_vl", given("qwen2_vl", case)))[0] for case in cases
        ]
        while any(session.finish_reason is None for session in sessions):
            for session in sessions:
                session.round()
    for session, case in zip(sessions, cases, strict=True):
        same = session.prefix.emitted == list(said("qwen2_vl", case))
        expect(same, "a request's positions were another's")


def a_prefix_is_never_rolled_back() -> None:
    with target_of("llava", given("llava")) as (target, _):
        try:
            target.state.rollback(target.state.length - 1)
        except StateError:
            return
    raise Caught("the prefix was rolled back")


def the_last_unit_moves_no_earlier_row() -> None:
    with target_of("paligemma", given("paligemma")) as (target, _):
        start = target.state.length
        rows = target.score(UNITS, 6)
        target.state.rollback(start)
        others = target.score([*UNITS[:-1], 50], 6)
        expect(torch.equal(rows[:-1], others[:-1]), "a row depends on what is drafted behind it")


def trees_see_a_window() -> None:
    with target_of("gemma3", given("gemma3", "long")) as (target, _):
        start = target.state.length
        chain = target.score(UNITS, 6)
        target.state.rollback(start)
        tree = target.score(UNITS, 6, range(-1, 5))
        expect(close(tree, chain), "a tree sees further back than a chain")


def no_image_is_drafted() -> None:
    prompt = given("llava")
    ids = prompt["input_ids"]
    at = int((ids[0] == MEDIA).nonzero()[0])
    ids[0, -2:] = ids[0, at - 2 : at]
    with decoding("llava", prompt, drafting.NgramDraft) as (session, _):
        session.run()
    drafted = [token for done in session.tally.trace for token in done.proposal]
    expect(MEDIA not in drafted, "an image was drafted")


def images_go_to_their_rows() -> None:
    for name in ("internvl", "qwen2_vl"):
        cases = ("images", "image", "text", "long")
        batch = inputs(name, model_of(name), cases)
        family = adapter_for(model_of(name).config.model_type).FAMILY
        rows = family.rows(model_of(name), batch)
        for row, case in enumerate(cases):
            alone = given(name, case, seed=row)
            same = rows[row].keys() == alone.keys() and all(
                torch.equal(rows[row][key], alone[key]) for key in alone
            )
            expect(same, "a row of a batch isn't what it is alone")


def a_drafter_reads_what_it_has_no_embedding_for() -> None:
    draft = tiny("llava", seed=1, layers=1, vocab_size=MEDIA - 3)
    with decoding("llava", given("llava"), draft) as (session, _):
        session.run()
    expect(not session.tally.faults, "a drafter has failed at the image")
    expect(session.tally.proposed > 0, "a drafter has proposed nothing")


@contextmanager
def runs_of_towers(name: str, model: Any) -> Iterator[list[str]]:
    encoder_names, runs = adapter_for(model.config.model_type).FAMILY.encoders(model), list[str]()
    hooks = [
        encoder.register_forward_pre_hook(lambda *_: runs.append(name)) for encoder in encoder_names
    ]
    try:
        yield runs
    finally:
        for hook in hooks:
            hook.remove()


def towers_run_once() -> None:
    for name in ("llava", "qwen3_vl", "voxtral"):
        with runs_of_towers(name, model_of(name)) as runs:
            with decoding(name, given(name), sibling_of(name)) as (session, _):
                session.run()
            expect(session.tally.rounds > 2, "a request of a round or two shows nothing")
            expect(runs == [name], "a tower ran again")


def padding_anywhere_changes_nothing() -> None:
    for pad in ("left of all", "right", "over an image"):
        batch = PADDINGS[pad][0](inputs("llava", model_of("llava"), ("image", "middle")))
        want = model_of("llava").generate(**batch, max_new_tokens=5)
        try:
            made = speculated("llava", batch, max_new_tokens=5).sequences
        except (ValueError, IndexError) as error:
            raise Caught("a row can't be read") from error
        expect(made.shape == want.shape, "another width")
        expect(torch.equal(made, want), "other ids")


CHECKS: list[Check] = [
    padding_anywhere_changes_nothing,
    blocks_are_scored_as_a_full_forward_does,
    interleaved_requests_do_not_meet,
    a_prefix_is_never_rolled_back,
    the_last_unit_moves_no_earlier_row,
    trees_see_a_window,
    no_image_is_drafted,
    images_go_to_their_rows,
    a_drafter_reads_what_it_has_no_embedding_for,
    towers_run_once,
]


# The mutants.


def positions_are_places(patch: Patch) -> None:
    real = prefixed.prefill

    def mutant(prepared: Any, state: Any) -> tuple[Any, Tensor]:
        outputs, positions = real(prepared, state)
        return outputs, torch.arange(positions.shape[-1]).expand_as(positions)

    patch.setattr(prefixed, "prefill", mutant)


def positions_are_the_modules(patch: Patch) -> None:
    real = PrefixTarget._hidden

    def mutant(self: PrefixTarget, block: Tensor, parents: Any) -> Tensor:
        self._behind = self._prepared.model.model.rope_deltas[None]
        return real(self, block, parents)

    patch.setattr(PrefixTarget, "_hidden", mutant)


def prefix_not_frozen(patch: Patch) -> None:
    patch.setattr(DecoderState, "freeze", lambda self: None)


def blocks_read_both_ways(patch: Patch) -> None:
    real = PrefixTarget._additive

    def hidden(self: PrefixTarget, block: Tensor, parents: Any) -> Tensor:
        return shaped(self, block, range(-1, block.shape[1] - 1))

    shaped = PrefixTarget._hidden
    patch.setattr(PrefixTarget, "_hidden", hidden)
    patch.setattr(PrefixTarget, "_additive", lambda self, sees: real(self, torch.ones_like(sees)))


def one_mask_for_all_layers(patch: Patch) -> None:
    patch.setattr(WindowedTarget, "_mask", PrefixTarget._mask)


def placeholders_looked_up(patch: Patch) -> None:
    patch.setattr(drafting, "NgramDrafter", lambda never: NgramDrafter())


def images_dealt_out_by_number(patch: Patch) -> None:
    def mutant(family: Any, model: Any, ids: Tensor, given: Sequence[Any]) -> Any:
        return [list(given[row : row + 1]) for row in range(len(ids))]

    patch.setattr(media, "_dealt_out", mutant)


def padding_left_in(patch: Patch) -> None:
    real = media._part

    def mutant(name: str, value: Any, shape: Any, row: int, there: Tensor) -> Any:
        return real(name, value, shape, row, torch.ones_like(there))

    patch.setattr(media, "_part", mutant)


def ids_looked_up_as_they_are(patch: Patch) -> None:
    @contextmanager
    def mutant(embeddings: Any) -> Iterator[None]:
        yield

    patch.setattr(prefixed, "_within_vocabulary", mutant)


def prompt_read_in_every_round(patch: Patch) -> None:
    real = PrefixTarget.score

    def mutant(self: PrefixTarget, ids: Sequence[int], keep: int, parents: Any = None) -> Tensor:
        pixels: Mapping[str, Any] = given(self._prepared.model.config.model_type)
        with torch.no_grad():
            self._prepared.model(**pixels)
        return real(self, ids, keep, parents)

    patch.setattr(PrefixTarget, "score", mutant)


def all_padding_cut(patch: Patch) -> None:
    patch.setattr(media, "behind_padding", lambda mask, ids, stands: mask != 0)


def cut_unless_over_media(patch: Patch) -> None:
    def mutant(mask: Tensor, ids: Tensor, stands: Tensor) -> Tensor:
        there = mask != 0
        return there | torch.isin(ids[~there], stands).any()

    patch.setattr(media, "behind_padding", mutant)


def padding_in_front_forgotten(patch: Patch) -> None:
    patch.setattr(generation, "prompt_length", lambda model, inputs: 0)


MUTANTS: list[Mutant] = [
    (all_padding_cut, padding_anywhere_changes_nothing, "can't be read|other ids"),
    (cut_unless_over_media, padding_anywhere_changes_nothing, "other ids|another width"),
    (padding_in_front_forgotten, padding_anywhere_changes_nothing, "another width"),
    (positions_are_places, blocks_are_scored_as_a_full_forward_does, "scored otherwise"),
    (positions_are_the_modules, interleaved_requests_do_not_meet, "another's"),
    (prefix_not_frozen, a_prefix_is_never_rolled_back, "rolled back"),
    (blocks_read_both_ways, the_last_unit_moves_no_earlier_row, "drafted behind it"),
    (blocks_read_both_ways, blocks_are_scored_as_a_full_forward_does, "scored otherwise"),
    (one_mask_for_all_layers, trees_see_a_window, "further back"),
    (placeholders_looked_up, no_image_is_drafted, "was drafted"),
    (images_dealt_out_by_number, images_go_to_their_rows, "isn't what it is alone"),
    (padding_left_in, images_go_to_their_rows, "isn't what it is alone"),
    (ids_looked_up_as_they_are, a_drafter_reads_what_it_has_no_embedding_for, "has failed"),
    (prompt_read_in_every_round, towers_run_once, "ran again"),
]
