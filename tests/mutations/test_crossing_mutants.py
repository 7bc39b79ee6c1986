"""Classic faults of decoders that attend across, planted in production code and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from mmspec import generation
from mmspec.modalities import adapter_for
from mmspec.modalities.base import cross_attention as crossing
from mmspec.modalities.base.cross_attention import CrossAttentionFamily, CrossAttentionTarget
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.vlm import blip, mllama, vision_encoder_decoder
from mmspec.modalities.vlm.mllama import MllamaTarget
from tests.modalities.crossing_runs import (
    copied,
    decoding,
    given,
    model_of,
    plain,
    speculated,
    target_of,
    twin_of,
    without_cache,
)
from tests.modalities.tiny_crossing import FAMILIES, PROMPT

from .catching import (
    Check,
    Mutant,
    Patch,
    expect,
)
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes

PADDED = (("input_ids", "attention_mask"), ("decoder_input_ids", "decoder_attention_mask"))
UNITS = [13, 41, 20, 58, 29, 55]


def family_of(name: str) -> Any:
    return adapter_for(model_of(name).config.model_type).FAMILY


def close(rows: Tensor, others: Tensor) -> bool:
    return torch.allclose(rows, others, atol=1e-4, rtol=1e-4)


# The checks.


def blocks_are_scored_as_a_full_forward_does() -> None:
    for name, case in (("mllama", "images"), ("pix2struct", "image"), ("blip", "image")):
        want = without_cache(name, case, UNITS)
        with target_of(name, case) as (target, first):
            rows = torch.cat([first, target.score(UNITS[:2], 2), target.score(UNITS[2:], 4)])
            expect(close(rows, want), f"a block of {name} was scored otherwise")


def branches_are_scored_as_chains() -> None:
    for name in ("florence2", "vit-gpt2"):
        with target_of(name) as (target, _):
            if not target.takes_trees:
                continue
            start = target.state.length
            tree = target.score(UNITS[:3], 3, [-1, 0, 0])
            target.state.rollback(start)
            chain = target.score([UNITS[0], UNITS[2]], 2)
            expect(close(tree[[0, 2]], chain), "a branch was scored as what it isn't")


def rows_are_what_they_are_alone() -> None:
    batch = given("mllama", "images", rows=2, ragged=True)
    for row, made in enumerate(family_of("mllama").rows(model_of("mllama"), batch)):
        alone = FAMILIES["mllama"].inputs("images", [row], [PROMPT + row], model_of("mllama"))
        same = made.keys() == alone.keys() and all(
            torch.equal(made[key], alone[key]) for key in alone
        )
        expect(same, "a row of a batch isn't what it is alone")


def padding_is_read_where_it_stands() -> None:
    for name in ("blip", "pix2struct"):
        batch = given(name, "prompted", rows=2, seed=2, ragged=True)
        made = speculated(name, batch, max_new_tokens=6)
        expect(torch.equal(made.sequences, plain(model_of(name), batch, 6)), "ids differ")


def a_start_is_put_in_front_of_all_or_none() -> None:
    model, batch = model_of("vit-gpt2"), given("vit-gpt2", "prompted", rows=2)
    begin = torch.tensor([model.generation_config.decoder_start_token_id, 5])
    batch["decoder_input_ids"][:, 0] = begin
    made = speculated("vit-gpt2", batch, max_new_tokens=6).sequences
    want = plain(model, batch, 6)
    expect(made.shape == want.shape and torch.equal(made, want), "another prompt was read")


def inputs_stay_the_callers() -> None:
    prompt = given("blip", "prompted")
    before = copied(prompt)
    for row in family_of("blip").rows(model_of("blip"), prompt):
        model_of("blip").generate(**row, max_new_tokens=2)
    same = all(torch.equal(prompt[key], before[key]) for key in before)
    expect(same, "the caller's prompt was written to")


def a_copy_is_kept_whole() -> None:
    """BLIP ends at a mark that its generation config doesn't name."""
    for name in ("blip-vqa", "vit-gpt2"):
        with decoding(name, twin_of(name)) as (session, _):
            session.run()
        expect(not session.tally.faults, f"a copy of {name} has failed")
        expect(session.tally.proposed == session.tally.accepted, f"a copy of {name} was rejected")


def conditioning_is_computed_once() -> None:
    model, runs = model_of("trocr"), list[str]()
    _, layers = crossing.layer_list(family_of("trocr").decoder(model))
    with target_of("trocr") as (target, _):
        hook = layers[0].encoder_attn.k_proj.register_forward_pre_hook(  # type: ignore[union-attr]
            lambda *_: runs.append("again")
        )
        try:
            target.score(UNITS[:3], 3)
        finally:
            hook.remove()
    expect(not runs, "the image was projected again")


CHECKS: list[Check] = [
    blocks_are_scored_as_a_full_forward_does,
    branches_are_scored_as_chains,
    rows_are_what_they_are_alone,
    padding_is_read_where_it_stands,
    a_start_is_put_in_front_of_all_or_none,
    inputs_stay_the_callers,
    a_copy_is_kept_whole,
    conditioning_is_computed_once,
]


# The mutants.


def every_unit_sees_all_images(patch: Patch) -> None:
    patch.setattr(MllamaTarget, "_told", lambda self, size: {})


def patches_of_padding_are_seen(patch: Patch) -> None:
    patch.setattr(CrossAttentionFamily, "constants", lambda self, prepared: {})


def the_reader_reads_both_ways(patch: Patch) -> None:
    real = blip.Blip.constants

    def mutant(self: Any, prepared: Any) -> dict[str, Any]:
        return {**real(self, prepared), "is_decoder": False}

    patch.setattr(blip.Blip, "constants", mutant)


def trees_given_to_all(patch: Patch) -> None:
    patch.setattr(DecoderTarget, "takes_trees", True)


def padding_left_in(patch: Patch) -> None:
    patch.setattr(mllama, "_unpadded", lambda row: row)


def only_ids_cut(patch: Patch) -> None:
    patch.setattr(mllama, "OF_PROMPT", mllama.OF_PROMPT[:2])


def all_padding_cut(patch: Patch) -> None:
    real = CrossAttentionFamily.rows

    def mutant(self: CrossAttentionFamily, model: Any, inputs: Mapping[str, Any]) -> Any:
        rows = real(self, model, inputs)
        for row, (front, mask) in itertools.product(rows, PADDED):
            if front in row and mask in row:
                there = row[mask][0] != 0
                row |= {name: row[name][:, there] for name in (front, mask)}
        return rows

    patch.setattr(CrossAttentionFamily, "rows", mutant)


def rows_asked_one_by_one(patch: Patch) -> None:
    patch.setattr(generation, "begin_apart", lambda *_: False)


def rows_are_views(patch: Patch) -> None:
    patch.setattr(crossing, "rows_of", lambda inputs: [dict(inputs)])


def a_drafter_attends_to_another_projection(patch: Patch) -> None:
    real = vision_encoder_decoder.VisionEncoderDecoder.encoder_states

    def mutant(self: Any, prepared: Any) -> Tensor:
        states = real(self, prepared)
        return states if prepared.model is model_of("vit-gpt2") else states.flip(-1)

    patch.setattr(vision_encoder_decoder.VisionEncoderDecoder, "encoder_states", mutant)


def conditioning_forgotten(patch: Patch) -> None:
    real = CrossAttentionTarget.score

    def mutant(
        self: CrossAttentionTarget, ids: Sequence[int], keep: int, parents: Any = None
    ) -> Tensor:
        updated: Mapping[int, bool] = self.state.cache.is_updated  # type: ignore[attr-defined]
        for layer in updated:
            self.state.cache.is_updated[layer] = False  # type: ignore[attr-defined]
            vars(self.state.conditioning(layer))["is_initialized"] = False
        return real(self, ids, keep, parents)

    patch.setattr(CrossAttentionTarget, "score", mutant)


MUTANTS: list[Mutant] = [
    (every_unit_sees_all_images, blocks_are_scored_as_a_full_forward_does, "of mllama"),
    (patches_of_padding_are_seen, blocks_are_scored_as_a_full_forward_does, "of pix2struct"),
    (the_reader_reads_both_ways, blocks_are_scored_as_a_full_forward_does, "of blip"),
    (trees_given_to_all, branches_are_scored_as_chains, "what it isn't"),
    (padding_left_in, rows_are_what_they_are_alone, "isn't what it is alone"),
    (only_ids_cut, rows_are_what_they_are_alone, "isn't what it is alone"),
    (all_padding_cut, padding_is_read_where_it_stands, "ids differ"),
    (rows_asked_one_by_one, a_start_is_put_in_front_of_all_or_none, "another prompt"),
    (rows_are_views, inputs_stay_the_callers, "written to"),
    (a_drafter_attends_to_another_projection, a_copy_is_kept_whole, "was rejected"),
    (conditioning_forgotten, conditioning_is_computed_once, "projected again"),
]
