"""What the voice sample is made of: codec, tokenizer, language model, drafter, heads; saving."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import (
    EncodecConfig,
    EncodecFeatureExtractor,
    EncodecModel,
    GenerationConfig,
    MusicgenConfig,
    MusicgenForCausalLM,
    MusicgenForConditionalGeneration,
    MusicgenProcessor,
    PreTrainedTokenizerFast,
    T5Config,
)
from transformers.models.musicgen.configuration_musicgen import MusicgenDecoderConfig
from voice_grammar import CHARACTERS
from voice_speech import SAMPLE_RATE_HZ

CODEBOOKS, CODES = 4, 256
FRAMES_PER_S = 50
FRAME_SAMPLES = SAMPLE_RATE_HZ // FRAMES_PER_S
START = CODES  # the id after the last code; MusicGen uses one id for begin, padding and delay
WIDTH = 192
OFFSETS = 3  # columns of the delayed layout after the next one, which the heads guess
_FILTERS, _LATENT = 12, 96
_ATTENTION_HEADS = 6
_TEXT_LAYERS, _TARGET_LAYERS, _DRAFTER_LAYERS = 3, 6, 1
_TARGET_FFN, _DRAFTER_FFN, _TEXT_FFN = 512, 256, 384
_HEAD_RANK = 48
_PAD, _END, _UNKNOWN = "<pad>", "</s>", "<unk>"
_RESIDUAL = ("out_proj.weight", "fc2.weight")  # what writes into the residual stream
_MAX_TEXT, _MAX_FRAMES = 256, 1024


def build_codec() -> EncodecModel:
    """An EnCodec with fresh weights: causal, 50 frames of 4 codes a second."""
    bits = (CODES - 1).bit_length()
    return EncodecModel(
        EncodecConfig(
            target_bandwidths=[CODEBOOKS * bits * FRAMES_PER_S / 1000],
            sampling_rate=SAMPLE_RATE_HZ,
            normalize=False,
            hidden_size=_LATENT,
            num_filters=_FILTERS,
            upsampling_ratios=[8, 5, 4, 2],
            use_causal_conv=True,
            pad_mode="constant",
            num_lstm_layers=1,
            codebook_size=CODES,
        )
    )


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Lower-cased characters, an id each, and an end mark as T5 has it."""
    ids = {token: index for index, token in enumerate([_PAD, _END, _UNKNOWN, *CHARACTERS])}
    characters = Tokenizer(models.WordLevel(ids, unk_token=_UNKNOWN))
    characters.normalizer = normalizers.Lowercase()
    characters.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    characters.post_processor = processors.TemplateProcessing(
        single=f"$A {_END}", special_tokens=[(_END, ids[_END])]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=characters,
        pad_token=_PAD,
        eos_token=_END,
        unk_token=_UNKNOWN,
        model_max_length=_MAX_TEXT,
    )


def build_processor() -> MusicgenProcessor:
    """Text in, audio in: MusicGen's own processor over the character tokenizer."""
    features = EncodecFeatureExtractor(sampling_rate=SAMPLE_RATE_HZ, feature_size=1)
    return MusicgenProcessor(features, build_tokenizer())


def _decoder_config(layers: int, ffn: int) -> MusicgenDecoderConfig:
    return MusicgenDecoderConfig(
        vocab_size=CODES,
        max_position_embeddings=_MAX_FRAMES,
        num_hidden_layers=layers,
        ffn_dim=ffn,
        num_attention_heads=_ATTENTION_HEADS,
        hidden_size=WIDTH,
        dropout=0.0,
        num_codebooks=CODEBOOKS,
        audio_channels=1,
        pad_token_id=START,
        bos_token_id=START,
        is_decoder=True,
        add_cross_attention=True,
    )


def build_target(codec: EncodecModel) -> MusicgenForConditionalGeneration:
    """A MusicGen with fresh weights around the codec given."""
    text = T5Config(
        vocab_size=3 + len(CHARACTERS),
        d_model=WIDTH,
        d_kv=WIDTH // _ATTENTION_HEADS,
        d_ff=_TEXT_FFN,
        num_layers=_TEXT_LAYERS,
        num_heads=_ATTENTION_HEADS,
        relative_attention_num_buckets=32,
        relative_attention_max_distance=64,
        dropout_rate=0.0,
        is_encoder_decoder=False,
        use_cache=False,
        tie_word_embeddings=False,
    )
    config = MusicgenConfig(
        text_encoder=text,
        audio_encoder=codec.config,
        decoder=_decoder_config(_TARGET_LAYERS, _TARGET_FFN),
    )
    model = MusicgenForConditionalGeneration(config)
    _unit_scale(model.decoder)
    model.audio_encoder.load_state_dict(codec.state_dict())
    model.generation_config = _generation_config()
    return model


def build_drafter() -> MusicgenForCausalLM:
    """A MusicGen decoder that reads the target's own text states; fresh weights."""
    model = MusicgenForCausalLM(_decoder_config(_DRAFTER_LAYERS, _DRAFTER_FFN))
    _unit_scale(model)
    model.generation_config = _generation_config()
    return model


@torch.no_grad()
def _unit_scale(decoder: MusicgenForCausalLM) -> None:
    """Initial weights for a narrow decoder.

    The library's are made for wide layers: the codes would drown in the position embeddings.
    """
    for name, weight in decoder.named_parameters():
        if "embed_tokens" in name:
            weight.normal_(std=CODEBOOKS**-0.5)
        elif weight.dim() == 2:
            depth = 3 * decoder.config.num_hidden_layers if name.endswith(_RESIDUAL) else 1
            weight.normal_(std=(weight.shape[1] * depth) ** -0.5)


def _generation_config() -> GenerationConfig:
    return GenerationConfig(
        bos_token_id=START,
        pad_token_id=START,
        decoder_start_token_id=START,
        do_sample=False,
        guidance_scale=1.0,
        max_length=3 * FRAMES_PER_S + CODEBOOKS,
    )


class FrameHeads(nn.Module):
    """Guesses columns after the next one from the target's last hidden state.

    For each offset a residual block of low rank, then for each codebook a linear map that the
    offsets share: few numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([nn.Linear(WIDTH, _HEAD_RANK) for _ in range(OFFSETS)])
        self.up = nn.ModuleList([nn.Linear(_HEAD_RANK, WIDTH) for _ in range(OFFSETS)])
        self.maps = nn.ModuleList([nn.Linear(WIDTH, CODES, bias=False) for _ in range(CODEBOOKS)])

    def forward(self, hidden: Tensor) -> Tensor:
        """Logits of the later columns.

        Args:
            hidden: The decoder's last hidden state, of shape [B, L, width].

        Returns:
            Logits of shape [B, offsets, codebooks, L, vocabulary].
        """
        states = [
            hidden + up(F.gelu(down(hidden)))
            for down, up in zip(self.down, self.up, strict=True)
        ]  # fmt: skip
        return torch.stack(
            [torch.stack([m(state) for m in self.maps], dim=1) for state in states], dim=1
        )


def delayed(codes: Tensor) -> tuple[Tensor, Tensor]:
    """Lays a code grid out as MusicGen reads it: codebook k is k steps late.

    Args:
        codes: Of shape [B, K, T].

    Returns:
        Decoder inputs and the ids to predict, both of shape [B, K, T + K - 1]; cells without a code
        hold `START`.
    """
    batch, codebooks, frames = codes.shape
    wanted = codes.new_full((batch, codebooks, frames + codebooks - 1), START)
    for codebook_idx in range(codebooks):
        wanted[:, codebook_idx, codebook_idx : codebook_idx + frames] = codes[:, codebook_idx]
    start = codes.new_full((batch, codebooks, 1), START)
    return torch.cat([start, wanted[..., :-1]], dim=-1), wanted


def save_sample(
    out: Path,
    target: MusicgenForConditionalGeneration,
    drafter: MusicgenForCausalLM,
    heads: FrameHeads,
) -> None:
    """Writes `target/`, `drafter/` and `heads/` in float16."""
    half = build_target(target.audio_encoder)
    half.load_state_dict(target.state_dict())
    half.to(torch.float16).save_pretrained(out / "target")
    build_processor().save_pretrained(out / "target")
    small = build_drafter()
    small.load_state_dict(drafter.state_dict())
    small.to(torch.float16).save_pretrained(out / "drafter")
    folder = out / "heads"
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: value.to(torch.float16) for name, value in heads.state_dict().items()}
    save_file(weights, folder / "model.safetensors")
    config = {"offsets": OFFSETS, "codebooks": CODEBOOKS, "vocab": CODES, "hidden": WIDTH,
              "rank": _HEAD_RANK, "activation": "gelu"}  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
