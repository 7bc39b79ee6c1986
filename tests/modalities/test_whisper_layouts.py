"""The three vocabulary layouts of released checkpoints, and both numbers of mel bins.

The models are tiny, the layouts (sizes and special ids) are the released ones.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from transformers import GenerationConfig, WhisperConfig, WhisperForConditionalGeneration

import mmspec
from mmspec.modalities.whisper.checkpoint import steps_of


@dataclass(frozen=True)
class Layout:
    """A released vocabulary: its size, mel bins, and where its special tokens are."""

    vocab: int
    bins: int
    end: int
    languages: int
    first_time: int

    @property
    def multilingual(self) -> bool:
        return self.languages > 0

    def config(self) -> dict[str, Any]:
        start = self.end + 1
        says: dict[str, Any] = {
            "bos_token_id": self.end,
            "eos_token_id": self.end,
            "pad_token_id": self.end,
            "decoder_start_token_id": start,
            "no_timestamps_token_id": self.first_time - 1,
            "prev_sot_token_id": self.first_time - 3,
            "begin_suppress_tokens": [220, self.end],
            "suppress_tokens": [1, 2, 7, start, self.first_time - 3, self.first_time - 4],
            "max_initial_timestamp_index": 50,
            "max_length": 40,
            "is_multilingual": self.multilingual,
            "return_timestamps": False,
        }
        if self.multilingual:
            names = ["<|en|>", *(f"<|language {i}|>" for i in range(1, self.languages))]
            says["lang_to_id"] = {name: start + 1 + i for i, name in enumerate(names)}
            after = start + 1 + self.languages
            says["task_to_id"] = {"translate": after, "transcribe": after + 1}
        return says


LAYOUTS = {
    "multilingual": Layout(51_865, 80, 50_257, 99, 50_364),
    "english": Layout(51_864, 80, 50_256, 0, 50_363),
    "large-v3": Layout(51_866, 128, 50_257, 100, 50_365),
}


@functools.cache
def model_of(name: str, seed: int) -> Any:
    layout = LAYOUTS[name]
    shape = WhisperConfig(
        vocab_size=layout.vocab,
        num_mel_bins=layout.bins,
        d_model=8,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_source_positions=20,
        max_target_positions=40,
        bos_token_id=layout.end,
        eos_token_id=layout.end,
        pad_token_id=layout.end,
        decoder_start_token_id=layout.end + 1,
    )
    model = WhisperForConditionalGeneration(shape)
    generator = torch.Generator().manual_seed(seed)
    for weight in model.parameters():
        if weight.dim() > 1:
            torch.nn.init.normal_(weight, std=0.5, generator=generator)
    model.generation_config = GenerationConfig(**layout.config())
    return model.eval()


@pytest.mark.parametrize("timestamps", [False, True])
@pytest.mark.parametrize("name", LAYOUTS)
def test_released_layouts_decode_as_transformers_does(name: str, timestamps: bool) -> None:
    layout, model = LAYOUTS[name], model_of(name, 3)
    features = torch.randn(1, layout.bins, 40, generator=torch.Generator().manual_seed(9))
    options: dict[str, Any] = {"return_timestamps": timestamps}
    if layout.multilingual:
        options |= {"language": "en", "task": "transcribe"}
    expected = model.generate(features, **options)
    assert expected.shape[1] > 2
    for draft in ("none", "ngram", "early-exit:1", model, model_of(name, 4)):
        made = mmspec.generate(model, features, draft=draft, gamma=3, **options)
        assert made.sequences.tolist() == expected.tolist()


@pytest.mark.parametrize("name", ["multilingual", "large-v3"])
def test_the_language_is_detected_as_transformers_does(name: str) -> None:
    layout, model = LAYOUTS[name], model_of(name, 3)
    features = torch.randn(1, layout.bins, 40, generator=torch.Generator().manual_seed(9))
    expected = model.generate(features)
    assert mmspec.generate(model, features, draft="ngram").sequences.tolist() == expected.tolist()


@pytest.mark.parametrize("name", LAYOUTS)
def test_descriptors_say_what_the_released_layouts_are(name: str) -> None:
    layout, steps = LAYOUTS[name], steps_of(model_of(name, 3))
    assert (steps.vocab_size, steps.timestamp_begin) == (layout.vocab, layout.first_time)
    assert len(steps.languages) == layout.languages
    assert layout.vocab - layout.first_time == 1501, "a time every 20 ms, from 0 to 30 s"
    prompt = steps.prompt(
        language=layout.end + 2 if layout.multilingual else None,
        task="transcribe" if layout.multilingual else None,
        timestamps=False,
    )
    assert len(prompt) == (4 if layout.multilingual else 2)
    assert steps.reserved.isdisjoint(range(layout.end))


def test_a_large_v3_drafter_fits_no_older_target_without_tokenizers() -> None:
    features = torch.randn(1, 80, 40)
    with pytest.raises(mmspec.MMSpecError, match="51866"):
        mmspec.generate(
            model_of("multilingual", 3), features, draft=model_of("large-v3", 3), language="en"
        )
