"""Tiny heads and CTC models: random but sure of themselves, or ones that know what is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from mmspec.modalities.whisper import ctc_head
from mmspec.modalities.whisper.ctc_head import CHARACTERS, Head, Shape

LETTERS = "ETAONIHSRDLUMWCFGYPBVKXJQZ"
SHAPE = {"width": 64, "inner": 16, "kernel": 3, "blocks": 2, "attentive": (1,), "guess_after": 1}


def saved_head(folder: Path, target: Any, *, seed: int = 0, **facts: Any) -> Path:
    """A random head whose distributions are peaks, for a target's encoder."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = Head(Shape(states=target.config.d_model, **SHAPE))
    with torch.no_grad():
        head.leave.weight *= 40
        head.leave.bias.view(2, -1)[:, 0] += 8  # most frames say nothing
    folder.mkdir(exist_ok=True)
    digest = ctc_head.encoder_digest(target.get_encoder())
    ctc_head.save(head, folder / "head.safetensors", digest, {"middle": 1, **facts})
    return folder


class KnowingHead(nn.Module):
    """Says a text, one character in three states; remembers what states it was shown."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = "".join(character for character in text if character in CHARACTERS)
        self.shown: list[Tensor] = []

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        self.shown.append(states[0, : int(lengths[0])])
        logits = torch.zeros(1, states.shape[1], len(CHARACTERS) + 1)
        logits[..., 0] = 12
        for at, character in enumerate(self.text[: states.shape[1] // 3]):
            logits[0, 3 * at + 1, 0] = 0
            logits[0, 3 * at + 1, 1 + CHARACTERS.index(character)] = 12
        return logits


def saved_ctc_model(folder: Path, kind: str = "wav2vec2", seed: int = 0) -> Path:
    """A tiny random model of the library, capitals only, with its processor."""
    name = {"hubert": "Hubert", "wavlm": "WavLM", "sew": "SEW", "unispeech": "UniSpeech"}
    prefix = name.get(kind, "Wav2Vec2")
    config = getattr(transformers, f"{prefix}Config")(
        vocab_size=len(LETTERS) + 4,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        conv_dim=(8, 8),
        conv_stride=(20, 16),
        conv_kernel=(20, 16),
        num_feat_extract_layers=2,
        num_conv_pos_embeddings=4,
        num_conv_pos_embedding_groups=2,
        pad_token_id=0,
        feat_extract_norm="layer",
        **({"squeeze_factor": 1} if kind == "sew" else {}),
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = getattr(transformers, f"{prefix}ForCTC")(config).eval()
    with torch.no_grad():
        model.lm_head.weight *= 300
    model.save_pretrained(folder)
    symbols = ["<pad>", "<unk>", "|", "'", *LETTERS]
    vocabulary = folder / "vocab.json"
    vocabulary.write_text(json.dumps({symbol: at for at, symbol in enumerate(symbols)}))
    tokenizer = transformers.Wav2Vec2CTCTokenizer(str(vocabulary), bos_token=None, eos_token=None)
    extractor = transformers.Wav2Vec2FeatureExtractor()
    transformers.Wav2Vec2Processor(extractor, tokenizer).save_pretrained(folder)
    return folder
