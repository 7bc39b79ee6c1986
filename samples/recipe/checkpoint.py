"""What the sample checkpoints are made of: tokenizer, configurations, and the folder on disk."""

import json
from pathlib import Path

import torch
from grammar import corpus
from speech import WINDOW_S, feature_extractor
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, trainers
from transformers import (
    GenerationConfig,
    WhisperConfig,
    WhisperForConditionalGeneration,
    WhisperTokenizer,
)

POSITIONS_PER_S = 50
SOURCE_POSITIONS = WINDOW_S * POSITIONS_PER_S
TARGET_POSITIONS = 96
TARGET_DECODER_LAYERS, DRAFTER_DECODER_LAYERS = 6, 1
_MERGES = 300
_WIDTH, _HEADS, _ENCODER_LAYERS = 128, 4, 4
_CONTROL = [
    "<|startoftranscript|>",
    "<|en|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
]
_END = "<|endoftext|>"


def build_tokenizer() -> WhisperTokenizer:
    """Byte-level BPE learned from the domain, then Whisper's special tokens in Whisper's order."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=256 + _MERGES,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus(20_000, seed=0, held_out=False), trainer)
    learned = json.loads(bpe.to_str())["model"]
    tokenizer = WhisperTokenizer(
        vocab=learned["vocab"],
        merges=[tuple(merge) for merge in learned["merges"]],
        pad_token=_END,
        processor_class="WhisperProcessor",
        model_max_length=TARGET_POSITIONS,
    )
    tokenizer.add_special_tokens({"additional_special_tokens": _CONTROL})
    steps = range(SOURCE_POSITIONS + 1)
    # Timestamps are added but not special, as in OpenAI's tokenizers: decoding filters them by id.
    tokenizer.add_tokens(
        [AddedToken(f"<|{step / POSITIONS_PER_S:.2f}|>", normalized=False) for step in steps]
    )
    return tokenizer


def build_model(
    tokenizer: WhisperTokenizer, decoder_layers: int
) -> WhisperForConditionalGeneration:
    """A Whisper with fresh weights whose window is `WINDOW_S` seconds."""
    end, start = tokenizer.convert_tokens_to_ids([_END, "<|startoftranscript|>"])
    config = WhisperConfig(
        vocab_size=len(tokenizer),
        num_mel_bins=80,
        d_model=_WIDTH,
        encoder_layers=_ENCODER_LAYERS,
        decoder_layers=decoder_layers,
        encoder_attention_heads=_HEADS,
        decoder_attention_heads=_HEADS,
        encoder_ffn_dim=4 * _WIDTH,
        decoder_ffn_dim=4 * _WIDTH,
        max_source_positions=SOURCE_POSITIONS,
        max_target_positions=TARGET_POSITIONS,
        # Whisper's 0.02 is made for wide layers; at this width the convolutions' output would drown
        # in the position embeddings.
        init_std=0.06,
        bos_token_id=end,
        eos_token_id=end,
        pad_token_id=end,
        decoder_start_token_id=start,
        suppress_tokens=None,
        begin_suppress_tokens=None,
    )
    model = WhisperForConditionalGeneration(config)
    model.generation_config = _generation_config(tokenizer)
    return model


def _generation_config(tokenizer: WhisperTokenizer) -> GenerationConfig:
    ids = {token: tokenizer.convert_tokens_to_ids(token) for token in [_END, *_CONTROL]}
    never = [ids[token] for token in _CONTROL if token != "<|notimestamps|>"]
    return GenerationConfig(
        bos_token_id=ids[_END],
        eos_token_id=ids[_END],
        pad_token_id=ids[_END],
        decoder_start_token_id=ids["<|startoftranscript|>"],
        begin_suppress_tokens=[*tokenizer.encode(" ", add_special_tokens=False), ids[_END]],
        suppress_tokens=never,
        no_timestamps_token_id=ids["<|notimestamps|>"],
        prev_sot_token_id=ids["<|startofprev|>"],
        lang_to_id={"<|en|>": ids["<|en|>"]},
        task_to_id={"transcribe": ids["<|transcribe|>"], "translate": ids["<|translate|>"]},
        is_multilingual=True,
        language="en",
        task="transcribe",
        return_timestamps=False,
        max_initial_timestamp_index=50,
        max_length=TARGET_POSITIONS,
    )


def save(model: WhisperForConditionalGeneration, tokenizer: WhisperTokenizer, out: Path) -> None:
    """Writes a checkpoint folder: float16 weights, configurations, tokenizer, feature extractor."""
    out.mkdir(parents=True, exist_ok=True)
    half = build_model(tokenizer, model.config.decoder_layers)
    half.load_state_dict(model.state_dict())
    half.to(torch.float16).save_pretrained(out)
    tokenizer.save_pretrained(out)
    # transformers 5 leaves the processor's class out of this file; other readers look for it here.
    preprocessor = {**feature_extractor().to_dict(), "processor_class": "WhisperProcessor"}
    text = json.dumps(preprocessor, indent=2, sort_keys=True) + "\n"
    (out / "preprocessor_config.json").write_text(text)
