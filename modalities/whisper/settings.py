"""What a request's generation config is, and for each window its processors, limits and ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor
from transformers.generation import logits_process as hf

from mmspec.compat import prepared_config, prepared_criteria, prepared_processors
from mmspec.engine import Stops
from mmspec.errors import InputError, OptionError
from mmspec.modalities.base.decoder import end_tokens
from mmspec.modalities.whisper.checkpoint import Whisper, steps_of
from mmspec.modalities.whisper.fallback import Fallback
from mmspec.modalities.whisper.request import TranscriptionRequest


class Settings:
    """What `generate` would make of a request's options.

    Args:
        whisper: the target.
        request: what is wanted.

    Raises:
        OptionError: options that are unknown, or that can't be meant.

    Attributes:
        config: the prepared generation config.
        whisper: the target as this config has it: which marks its prompt is made of.
        fallback: when a window's transcript is thrown away.
        conditions: whether a window is shown what was heard before it.
    """

    def __init__(self, whisper: Whisper, request: TranscriptionRequest) -> None:
        self._whisper, self._request = whisper, request
        self.fallback = Fallback()
        self.config = self._read()
        steps = replace(steps_of(whisper.model, self.config), stop_tokens=whisper.steps.stop_tokens)
        whisper = self.whisper = self._whisper = replace(whisper, steps=steps)
        self.fallback = Fallback.of(
            request.temperature,
            self.config,
            compression_ratio_threshold=request.compression_ratio_threshold,
            logprob_threshold=request.logprob_threshold,
            no_speech_threshold=request.no_speech_threshold,
        )
        if self.fallback.no_speech is not None and whisper.steps.no_timestamps is None:
            raise OptionError("no_speech_threshold: this model's generation config names no mark")
        wanted = request.condition_on_prev_tokens
        if wanted is None:
            wanted = getattr(self.config, "condition_on_prev_tokens", None)
        self.conditions = bool(wanted)
        if request.prompt_condition_type == "all-segments" and not self.conditions:
            raise OptionError(
                "prompt_condition_type 'all-segments' needs condition_on_prev_tokens=True"
            )

    def _read(self) -> Any:
        try:
            config, rest = prepared_config(
                self._whisper.model, self._request.generation_config, self._request.generate_options
            )
        except (ValueError, TypeError) as error:  # transformers' own check of the values
            raise OptionError(str(error).splitlines()[0]) from error
        for name in ("max_new_tokens", "max_length"):
            limit = getattr(config, name)
            if not (limit is None or isinstance(limit, int)):
                raise OptionError(f"{name}: found {limit!r}, expected a whole number")
        if rest:
            raise OptionError(f"unknown generation options: {', '.join(sorted(rest))}")
        if (config.num_beams or 1) > 1 or (config.num_return_sequences or 1) > 1:
            raise OptionError("beam search and several sequences per input aren't supported")
        return config

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end an output; a request may say others than the checkpoint."""
        return end_tokens(self.config)

    def timestamps(self, frames: int) -> bool:
        """Whether times are predicted in a recording of so many mel frames.

        Raises:
            InputError: the recording needs them, and they aren't wanted.
            OptionError: they are wanted and not known.
        """
        long, wanted = frames > self._whisper.window_frames, self._request.timestamps
        if long and wanted is False:
            raise InputError(
                f"the audio is longer than the {self._whisper.window_s:g} s that this model hears "
                "at once, and without timestamps nothing tells where the next window begins: leave "
                "timestamps on, or decode in chunks"
            )
        if wanted is None:
            wanted = long or bool(getattr(self.config, "return_timestamps", False))
        if wanted and self._whisper.steps.no_timestamps is None:
            raise OptionError("timestamps: this model's generation config names none")
        return wanted

    def next_limit(self, prompt_length: int) -> int:
        """Absolute length limit of the next window, prompt included, as `generate` sets it.

        Where the config's limit is below the context, every window's limit adds to the last one's.

        Raises:
            OptionError: the prompt and the wanted tokens don't fit into the decoder's context.
        """
        context, config = self._whisper.steps.context, self.config
        if prompt_length + (config.max_new_tokens or 0) > context or prompt_length >= context:
            if config.max_new_tokens is None or prompt_length >= context:
                raise OptionError(
                    f"the prompt takes {prompt_length} of the decoder's {context} positions: "
                    "shorten the previous text"
                )
            raise OptionError(
                f"max_new_tokens {config.max_new_tokens} and a prompt of {prompt_length} "
                f"exceed the decoder's {context} positions"
            )
        if config.max_new_tokens is not None:
            return prompt_length + config.max_new_tokens
        asked = config.max_length
        config.max_length = min(asked + min(context // 2 - 1, prompt_length), context)
        if config.max_length <= prompt_length:
            raise OptionError(
                f"max_length {asked} leaves no room behind a prompt of {prompt_length} positions: "
                "say max_new_tokens"
            )
        return config.max_length

    def rules(
        self,
        prompt_length: int,
        limit: int,
        temperature: float,
        features: Tensor,
        timestamps: bool,
    ) -> tuple[Any, Stops]:
        """Processors and stops for a window, as `generate` would make them.

        Raises:
            OptionError: a value that one of them doesn't take.
        """
        whisper, criteria = self._whisper, self._request.stopping_criteria
        config, _ = prepared_config(whisper.model, self.config, {})
        config.do_sample = temperature > 0
        config.temperature = temperature if config.do_sample else 1.0
        try:
            custom = self._custom(config, prompt_length, timestamps)
            config.begin_suppress_tokens = config.suppress_tokens = None
            config.max_length = limit
            processors = prepared_processors(whisper.model, config, prompt_length, custom, features)
        except (ValueError, TypeError) as error:
            raise OptionError(" ".join(str(error).split())) from error
        tokenizer = None if whisper.processor is None else whisper.processor.tokenizer
        criteria = prepared_criteria(whisper.model, config, criteria or (), tokenizer)
        return processors, Stops.from_transformers(criteria, self.ends, limit)

    def _custom(self, config: Any, prompt_length: int, timestamps: bool) -> list[Any]:
        """Whisper's own rules as processors, in `generate`'s order, then the caller's."""
        device = self._whisper.device
        custom: list[Any] = []
        if config.begin_suppress_tokens is not None:
            custom.append(
                hf.SuppressTokensAtBeginLogitsProcessor(
                    config.begin_suppress_tokens, begin_index=prompt_length, device=device
                )
            )
        if config.suppress_tokens is not None:
            custom.append(hf.SuppressTokensLogitsProcessor(config.suppress_tokens, device=device))
        if timestamps:
            custom.append(hf.WhisperTimeStampLogitsProcessor(config, begin_index=prompt_length))
        for processor in self._request.logits_processor or ():
            moved = getattr(processor, "set_begin_index", None)
            if moved is not None:
                moved(prompt_length)
        return [*custom, *(self._request.logits_processor or ())]
