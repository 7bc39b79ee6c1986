"""The lean pass over delayed rows against transformers' own forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from mmspec.modalities.speech import delay_pattern as opened_rows
from mmspec.modalities.speech.fast_decoder import why_not_fast
from mmspec.modalities.speech.musicgen import FAMILY as MUSICGEN
from mmspec.modalities.speech.musicgen_melody import FAMILY as MELODY
from mmspec.modalities.speech.preparation import prepare

from .bed_musicgen import text, tiny, tiny_melody

MODELS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "musicgen": (MUSICGEN, tiny),
    "musicgen stereo": (MUSICGEN, lambda: tiny(codebooks=6, channels=2, text_width=12)),
    "melody": (MELODY, tiny_melody),
}
BLOCKS = (3, 1, 4)


def rows_of(family: Any, model: Any, inputs: Any, scale: float | None) -> torch.Tensor:
    """Scores behind some blocks of rows, some of them rolled back in between."""
    prepared = prepare(model, inputs, max_new_tokens=16, do_sample=False, guidance_scale=scale)
    target = family.open(prepared, packed=False)
    width, found = target.codebooks, [target.read_prompt()]
    for number, size in enumerate(BLOCKS):
        block = [
            tuple((7 * number + 3 * row + k) % 32 for k in range(width)) for row in range(size)
        ]
        found.append(target.score(block, keep=size))
        target.state.commit(target.state.length - (size > 1))
    target.close()
    return torch.cat(found)


@pytest.mark.parametrize("scale", [None, 3.0])
@pytest.mark.parametrize("name", MODELS)
def test_the_lean_pass_is_the_librarys_forward(
    name: str, scale: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    family, make = MODELS[name]
    model, inputs = make(), text()
    lean = rows_of(family, model, inputs, scale)
    monkeypatch.setattr(opened_rows, "why_not_fast", lambda decoder: "a test says so")
    own = rows_of(family, model, inputs, scale)
    assert lean.shape == own.shape
    torch.testing.assert_close(lean, own, rtol=1e-5, atol=1e-5)


def test_padding_of_a_text_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = {name: value.clone() for name, value in text().items()}
    inputs["attention_mask"][:, -2:] = 0
    model = tiny()
    lean = rows_of(MUSICGEN, model, inputs, 3.0)
    monkeypatch.setattr(opened_rows, "why_not_fast", lambda decoder: "a test says so")
    torch.testing.assert_close(lean, rows_of(MUSICGEN, model, inputs, 3.0), rtol=1e-5, atol=1e-5)


def test_only_plain_decoders_run_lean() -> None:
    decoder = tiny().decoder.model.decoder
    assert why_not_fast(decoder) is None
    handle = decoder.layers[0].self_attn.register_forward_hook(lambda *_: None)
    assert why_not_fast(decoder) == "layers.0.self_attn carries hooks"
    handle.remove()
    decoder.config._attn_implementation = "eager"
    assert "another function" in str(why_not_fast(decoder))
    decoder.config._attn_implementation = "sdpa"
    assert why_not_fast(decoder.train()) == "the decoder is in training mode"


def test_a_norm_or_a_projection_of_the_users_own_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny()
    layer = model.decoder.model.decoder.layers[0]
    for name in ("final_layer_norm", "fc1"):
        part = getattr(layer, name)
        part.forward = lambda x, own=part.forward: -own(x)
    lean = rows_of(MUSICGEN, model, text(), 3.0)
    monkeypatch.setattr(opened_rows, "why_not_fast", lambda decoder: "a test says so")
    torch.testing.assert_close(lean, rows_of(MUSICGEN, model, text(), 3.0), rtol=1e-5, atol=1e-5)
