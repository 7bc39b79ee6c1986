"""D and G where a decoder attends across to an image: state, positions and drafters' eyes."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import mmspec
from mmspec.drafting import TextOnly
from mmspec.errors import ModelError
from mmspec.modalities import adapter_for
from mmspec.modalities.base.decoder import layer_list
from mmspec.state.layers import FrozenLayer
from tests.modalities.crossing_runs import copied, given, model_of, plain, target_of, twin_of
from tests.modalities.tiny_crossing import BOS, EOS, FAMILIES, PAD, PATCHES, PROMPT, tiny

every_family = pytest.mark.parametrize("name", FAMILIES)


@pytest.mark.parametrize("depths", [(3, 1), (1, 3)])
@pytest.mark.parametrize("name", ["mllama", "florence2", "donut", "pix2struct"])
def test_D6_a_drafter_of_another_depth_has_its_own_state(
    name: str, depths: tuple[int, int]
) -> None:
    """Donut's configuration maps `num_hidden_layers` to an encoder that isn't there."""
    target, drafter = tiny(name, 5, layers=depths[0]), tiny(name, 6, layers=depths[1])
    prompt = given(name)
    want = plain(target, prompt, 8)
    made = mmspec.generate(target, prompt, drafter, gamma=4, max_new_tokens=8, do_sample=False)
    assert made.sequences.tolist() == want.tolist()
    assert made.report.faults == ()
    decoder = adapter_for(target.config.model_type).FAMILY.decoder(target)
    assert len(layer_list(decoder)[1]) == depths[0] + (name == "mllama")


@every_family
def test_D7_only_self_attention_is_rolled_back(name: str) -> None:
    with target_of(name) as (target, _):
        cache = target.state.cache
        cross: list[Any] = getattr(cache, "cross_attention_cache", cache).layers
        frozen = [layer for layer in cross if isinstance(layer, FrozenLayer)]
        growing = target.state._growing
        assert frozen
        before = [(layer.keys, layer.keys.clone()) for layer in frozen]
        length = target.state.length
        rows = target.score([13, 41, 20, 58], 4)
        assert {layer.get_seq_length() for layer in growing} == {length + 4}
        target.state.rollback(length + 1)
        assert {layer.get_seq_length() for layer in growing} == {length + 1}
        for layer, (keys, values) in zip(frozen, before, strict=True):
            assert layer.keys is keys
            assert torch.equal(keys, values)
        torch.testing.assert_close(target.score([41, 20, 58], 3), rows[1:])


class TestPadding:
    """D13: what a mask leaves out of a prompt isn't read; what it leaves out of an image is."""

    @pytest.mark.parametrize("name", ["mllama", "blip", "pix2struct"])
    def test_D13_a_padded_prompt_is_left_to_transformers(self, name: str) -> None:
        case = "image" if name == "mllama" else "prompted"
        batch = given(name, case, rows=3, ragged=True)  # BLIP cuts a column off
        short = {key: value[:1] for key, value in batch.items()}
        want = plain(model_of(name), short, 6)
        loop = mmspec.custom_generate("ngram")
        got = plain(model_of(name), short, 6, custom_generate=loop)
        assert loop.ordinary == "a padded prompt"
        assert got.tolist() == want.tolist()

    @pytest.mark.parametrize("name", ["florence2", "pix2struct"])
    def test_D13_an_encoders_mask_is_no_prompts(self, name: str) -> None:
        """Its width may be that of the prompt."""
        model = model_of(name)
        if name == "pix2struct":
            prompt = FAMILIES[name].inputs("prompted", [1], [PATCHES - 1], model)
            assert not bool(prompt["attention_mask"].all())
        else:  # one word of three is padding, and so is nothing of the decoder's three
            ids = torch.tensor([[BOS, 20, PAD]])
            mask = torch.tensor([[1, 1, 0]])
            start = torch.tensor([[EOS, BOS, 31]])
            prompt = {"input_ids": ids, "attention_mask": mask, "decoder_input_ids": start}
        want = plain(model, prompt, 8)
        loop = mmspec.custom_generate("hypothesis", gamma=4, hypothesis=want[0, 3:].tolist())
        got = plain(model, prompt, 8, custom_generate=loop)
        assert loop.ordinary is None
        assert got.tolist() == want.tolist()

    def test_D13_padding_of_the_image_stays_masked_in_every_block(self) -> None:
        """Of eight patches four are padding: what stands there changes nothing."""
        prompt = given("pix2struct", seed=1)
        other = copied(prompt)
        other["flattened_patches"][prompt["attention_mask"] == 0] = 7.0
        assert not torch.equal(other["flattened_patches"], prompt["flattened_patches"])
        made = [
            mmspec.generate(model_of("pix2struct"), each, "ngram", gamma=4, max_new_tokens=8)
            for each in (prompt, other)
        ]
        assert made[0].sequences.tolist() == made[1].sequences.tolist()


class TestADraftersEyes:
    """G3: a drafter that looks for itself is given the image, or says that it wasn't."""

    @every_family
    def test_G3_without_the_inputs_it_says_so(self, name: str) -> None:
        loop = mmspec.custom_generate(twin_of(name), gamma=4)
        want = plain(model_of(name), given(name), 6)
        got = plain(model_of(name), given(name), 6, custom_generate=loop)
        assert got.tolist() == want.tolist()
        assert "only the target's features were given" in loop.report.faults[0]

    @pytest.mark.parametrize("name", ["florence2", "blip", "trocr"])
    def test_G3_another_image_makes_another_proposal(self, name: str) -> None:
        """What it is shown decides how much is kept, never what is said."""
        want = plain(model_of(name), given(name), 8)
        kept = []
        for seed in (0, 5):
            loop = mmspec.custom_generate(twin_of(name), gamma=4)
            loop.inputs = given(name, seed=seed)
            got = plain(model_of(name), given(name), 8, custom_generate=loop)
            assert got.tolist() == want.tolist()
            kept.append(loop.report.draft_acceptance_rate)
        assert kept[0] == 1 > kept[1]

    def test_G3_an_image_that_stands_beside_the_prompt_cant_be_left_out(self) -> None:
        with pytest.raises(ModelError, match="beside the prompt"):
            mmspec.generate(
                model_of("blip"), given("blip"), TextOnly(twin_of("blip")), max_new_tokens=3
            )


def test_inputs_are_never_written_to() -> None:
    """BLIP's `generate` puts its first word into the caller's own prompt."""
    for rows in (1, 2):
        prompt = given("blip", "prompted", rows=rows)
        before = copied(prompt)
        mmspec.generate(model_of("blip"), prompt, twin_of("blip"), max_new_tokens=3)
        assert all(torch.equal(prompt[key], before[key]) for key in before)
        assert prompt["input_ids"].shape[1] == PROMPT + 2
