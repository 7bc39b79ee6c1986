"""Options of `generate`: how often each is given, and with which values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from transformers import WatermarkingConfig

from . import pieces
from .kinds import Kind

LEFT_OUT = {
    "assistant_confidence_threshold": "assistants are the library's other way to speculate",
    "assistant_early_exit": "as above",
    "assistant_ensemble_weight": "as above",
    "assistant_lookbehind": "as above",
    "is_assistant": "as above",
    "num_assistant_tokens": "as above",
    "num_assistant_tokens_schedule": "as above",
    "speculation_type": "as above",
    "target_lookbehind": "as above",
    "use_mtp": "as above",
    "_from_model_config": "no option",
    "transformers_version": "no option",
    "return_dict_in_generate": "given with what else is to be returned",
    "output_attentions": "given with `return_dict_in_generate`",
    "output_hidden_states": "given with `return_dict_in_generate`",
    "output_scores": "given with `return_dict_in_generate`",
    "output_logits": "given with `return_dict_in_generate`",
    "do_sample": "a mode",
    "temperature": "goes with a mode",
    "top_k": "goes with a mode",
    "compile_config": "compiling takes longer than a test",
    "disable_compile": "as above",
    "continuous_batching_config": "for another door of the library",
    "cache_config": "of quantised caches, which need another package",
    "token_healing": "goes to a tokenizer",
    "constraints": "of beams",
    "decoder_start_token_id": "as `decoder_input_ids`, drawn with prompts",
    "stop_strings": "drawn with stopping criteria",
    "num_return_sequences": "goes with a mode",
    "max_new_tokens": "always one limit or another",
    "max_length": "as above",
}
"""Names of the library's generation config that nothing is drawn for by itself, and why."""


@dataclass(frozen=True)
class Drawing:
    """What values are drawn from.

    Attributes:
        random: the source.
        kind: who is asked.
        prompt: positions of the prompt.
    """

    random: Random
    kind: Kind
    prompt: int

    def word(self) -> int:
        return self.random.randint(*self.kind.words)

    def few(self, least: int = 1, most: int = 3) -> list[int]:
        return [self.word() for _ in range(self.random.randint(least, most))]

    def one(self, *values: Any) -> Any:
        return self.random.choice(values)

    def perhaps(self, chance: float) -> bool:
        return self.random.random() < chance


Draw = Callable[[Drawing], Any]


def _ends(d: Drawing) -> Any:
    some = [d.kind.end, *d.few()]
    return d.one(None, None, d.word(), some, d.few(8, 20), [d.kind.end], -1)


def _length(d: Drawing) -> Any:
    return d.prompt + d.one(-1, 0, 1, 4, 9)


OPTIONS: dict[str, tuple[float, Draw]] = {
    "eos_token_id": (0.25, _ends),
    "pad_token_id": (0.08, lambda d: d.one(None, d.word(), d.kind.end, 0)),
    "bos_token_id": (0.03, lambda d: d.one(None, d.word())),
    "min_length": (0.06, _length),
    "min_new_tokens": (0.1, lambda d: d.one(0, 1, 3, 8, 30)),
    "repetition_penalty": (0.1, lambda d: d.one(1.0, 1.3, 0.7, 4.0, -1.0)),
    "no_repeat_ngram_size": (0.08, lambda d: d.one(0, 1, 2, 3)),
    "bad_words_ids": (
        0.1,
        lambda d: d.one([[d.word()]], [d.few(1, 2), d.few(2, 3)], [[d.kind.end]], []),
    ),
    "suppress_tokens": (0.08, lambda d: d.one(d.few(1, 6), [], None, [d.kind.end])),
    "begin_suppress_tokens": (0.06, lambda d: d.one(d.few(1, 6), [], [d.kind.end])),
    "sequence_bias": (0.06, lambda d: [[[d.word()], 3.0], [d.few(2, 2), -4.0]]),
    "forced_bos_token_id": (0.03, lambda d: d.word()),
    "forced_eos_token_id": (0.05, lambda d: d.one(d.word(), d.kind.end, [d.word(), d.kind.end])),
    "exponential_decay_length_penalty": (0.05, lambda d: d.one((2, 1.1), (0, 1.5))),
    "remove_invalid_values": (0.04, lambda d: True),
    "renormalize_logits": (0.06, lambda d: d.one(True, False)),
    "encoder_repetition_penalty": (0.05, lambda d: d.one(1.2, 0.8)),
    "encoder_no_repeat_ngram_size": (0.05, lambda d: d.one(1, 2)),
    "guidance_scale": (0.05, lambda d: d.one(1.0, 1.5, 3.0)),
    "watermarking_config": (0.03, lambda d: WatermarkingConfig(greenlist_ratio=0.5, bias=2.0)),
    "use_cache": (0.06, lambda d: d.one(True, False)),
    "cache_implementation": (
        0.06,
        lambda d: d.one("static", "dynamic", "offloaded", "dynamic_full", "nonsense"),
    ),
    "max_cache_len": (0.02, lambda d: 64),
    "max_time": (0.04, lambda d: 1000.0),
    "prefill_chunk_size": (0.02, lambda d: 4),
    "prompt_lookup_num_tokens": (0.04, lambda d: 3),
    "max_matching_ngram_size": (0.02, lambda d: 2),
    "num_beams": (0.03, lambda d: d.one(1, 2)),
    "early_stopping": (0.02, lambda d: d.one(True, "never")),
    "length_penalty": (0.02, lambda d: 0.5),
    "num_beam_groups": (0.01, lambda d: 2),
    "diversity_penalty": (0.01, lambda d: 0.5),
    "penalty_alpha": (0.02, lambda d: 0.6),
    "dola_layers": (0.01, lambda d: "low"),
    "force_words_ids": (0.01, lambda d: [[d.word()]]),
    "low_memory": (0.02, lambda d: True),
    "top_p": (0.05, lambda d: d.one(0.9, 1.0, 1.5)),
    "min_p": (0.03, lambda d: 0.05),
    "top_h": (0.02, lambda d: 0.5),
    "typical_p": (0.03, lambda d: 0.9),
    "epsilon_cutoff": (0.03, lambda d: 0.01),
    "eta_cutoff": (0.03, lambda d: 0.01),
    "logits_processor": (0.12, pieces.processors),
    "stopping_criteria": (0.12, pieces.criteria),
    "prefix_allowed_tokens_fn": (0.06, lambda d: pieces.Allowed(*d.kind.words)),
    "logits_to_keep": (0.02, lambda d: 1),
    "no_such_option": (0.01, lambda d: 3),
}
"""By name: how often it is given, and what draws its value."""

OF_WHISPER: dict[str, tuple[float, Draw]] = {
    "language": (
        0.7,
        lambda d: d.one("en", "en", "de", "de", "<|en|>", "english", "xx", ["en", "de"]),
    ),
    "task": (0.4, lambda d: d.one(*3 * ("transcribe", "translate"), "sing")),
    "return_timestamps": (0.35, lambda d: d.one(True, True, False)),
    "return_segments": (0.1, lambda d: True),
    "return_token_timestamps": (0.03, lambda d: True),
    "prompt_ids": (0.15, pieces.prompt_ids),
    "prompt_condition_type": (0.05, lambda d: d.one("first-segment", "all-segments")),
    "condition_on_prev_tokens": (0.1, lambda d: True),
    "temperature": (0.15, lambda d: d.one(0.0, (0.0, 1e-5), [0.0, 1e-5, 2e-5])),
    "logprob_threshold": (0.15, lambda d: d.one(-1.0, -0.05, -3.0)),
    "compression_ratio_threshold": (0.1, lambda d: d.one(1.35, 0.9, 2.0)),
    "no_speech_threshold": (0.1, lambda d: d.one(0.2, 0.6, 1e-4)),
    "decoder_input_ids": (0.08, pieces.decoder_input_ids),
    "forced_decoder_ids": (0.04, lambda d: d.one(None, [[1, 51]], [[2, d.word()]])),
    "time_precision": (0.03, lambda d: 0.02),
    "num_segment_frames": (0.02, lambda d: 100),
    "force_unique_generate_call": (0.04, lambda d: True),
    "is_multilingual": (0.02, lambda d: d.one(True, False)),
}
"""More of them, that only Whisper has."""

OF_CSM: dict[str, tuple[float, Draw]] = {
    "output_audio": (0.3, lambda d: True),
    "depth_decoder_do_sample": (0.1, lambda d: False),
    "depth_decoder_repetition_penalty": (0.1, lambda d: 1.3),
    "depth_decoder_min_new_tokens": (0.03, lambda d: 3),
}

STREAM_CHANCE, DICT_CHANCE, CONFIG_CHANCE = 0.15, 0.35, 0.12
VOICE_OPTIONS = {
    "guidance_scale": (0.4, lambda d: d.one(None, 1.0, 3.0, 0.5)),
    "repetition_penalty": (0.08, lambda d: 1.3),
    "min_new_tokens": (0.1, lambda d: d.one(1, 6)),
    "eos_token_id": (0.03, _ends),
    "logits_processor": (0.1, pieces.processors),
    "stopping_criteria": (0.08, pieces.criteria),
    "use_cache": (0.03, lambda d: d.one(True, False)),
    "cache_implementation": (0.03, lambda d: d.one("static", "dynamic")),
    "renormalize_logits": (0.05, lambda d: True),
    "suppress_tokens": (0.06, lambda d: d.few(1, 6)),
    "bad_words_ids": (0.04, lambda d: [[d.word()]]),
    "no_repeat_ngram_size": (0.04, lambda d: 2),
    "top_p": (0.05, lambda d: 0.9),
    "num_beams": (0.03, lambda d: d.one(1, 2)),
    "no_such_option": (0.01, lambda d: 3),
}


def _table(kind: Kind, name: str) -> dict[str, tuple[float, Draw]]:
    if kind.group == "voice":
        return VOICE_OPTIONS | (OF_CSM if name.startswith("csm") else {})
    return OPTIONS | (OF_WHISPER if kind.group == "whisper" else {})


def _mode(d: Drawing, name: str) -> tuple[str, dict[str, Any]]:
    """How tokens are drawn, and the options that say so."""
    mode = d.random.choices(["greedy", "cold", "keyed"], [7, 2, 2])[0]
    if mode == "greedy":
        return mode, d.one(
            {}, {"do_sample": False}, {"do_sample": False, "num_return_sequences": 1}
        )
    options: dict[str, Any] = {"do_sample": True}
    if mode == "cold":
        options |= d.one({"temperature": 1e-5}, {"top_k": 1}, {"temperature": 1e-5, "top_k": 0})
    if mode == "cold" and name == "dia":  # it isn't sampled below a temperature of 1
        options = {"do_sample": True, "top_k": 1}
    if mode == "keyed":
        options |= d.one({}, {"temperature": 0.7}, {"top_k": 5}, {"temperature": 2.0, "top_k": 0})
    if d.perhaps(0.2) and d.kind.group != "voice":
        options["num_return_sequences"] = d.one(1, 2, 3)
    return mode, options


def drawn(random: Random, name: str, kind: Kind, prompt: int) -> tuple[str, dict[str, Any]]:
    """(mode, options) of a call.

    Args:
        random: where they are drawn from.
        name: of the kind.
        kind: who is asked.
        prompt: positions of its prompt.

    Returns:
        "greedy", "cold" (sampled, where only one token is likely) or "keyed" (by a seed), and what
        `generate` is given beside the inputs.
    """
    d = Drawing(random, kind, prompt)
    mode, options = _mode(d, name)
    for option, (chance, draw) in _table(kind, name).items():
        if d.perhaps(chance * 0.7):
            options.setdefault(option, draw(d))
    if d.perhaps(0.85):
        options["max_new_tokens"] = d.one(1, 2, 4, 7, 12)
    elif d.perhaps(0.7):
        options["max_length"] = _length(d)
    if kind.group == "voice":
        options["max_new_tokens"] = d.one(1, 8, 10, 12, 14)
    elif d.perhaps(DICT_CHANCE):
        options |= _returned(d)
    return mode, options


def _returned(d: Drawing) -> dict[str, Any]:
    options: dict[str, Any] = {"return_dict_in_generate": True}
    shares = (("output_scores", 0.4), ("output_logits", 0.4), ("output_attentions", 0.06))
    for option, chance in (*shares, ("output_hidden_states", 0.06)):
        if d.perhaps(chance):
            options[option] = True
    return options
