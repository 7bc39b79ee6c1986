"""Speculative decoding for models that are loaded already: `generate`, and a drop-in for it.

transformers' own `generate` does the preparation (inputs, encoder, processors, criteria) and hands
the decoding loop to mmspec, so that whatever it accepts means the same here.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerateDecoderOnlyOutput, GenerateEncoderDecoderOutput
from transformers.generation import logits_process as hf
from transformers.generation.stopping_criteria import (
    EosTokenCriteria,
    MaxLengthCriteria,
    StopStringCriteria,
)

from mmspec.clock import Clock
from mmspec.compat import (
    cache_field,
    cached_positions,
    given_cache,
    kept_cache,
    pad_token,
    pop_cache,
    streamer_of_generate,
)
from mmspec.drafting import draft_for, policy_for
from mmspec.engine import BlockCosts, Sampling
from mmspec.engine.processing import BLOCK_FORMS, IGNORES_PREFIX, MEMORYLESS
from mmspec.engine.processor_copies import with_copies
from mmspec.engine.stats import RequestStats
from mmspec.errors import OptionError
from mmspec.modalities import adapter_for, task_of
from mmspec.modalities.base.batch_view import as_in_batch
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.encoder_runs import Runs, watched
from mmspec.modalities.base.generate import (
    begin_apart,
    decode_row,
    handed_on,
    of_row,
    prompt_length,
    wanted,
)
from mmspec.modalities.base.layers import mixes_rows, seen_through
from mmspec.modalities.base.preparation import Prepared, check_mode, with_stop_strings
from mmspec.modalities.base.rows import Row, filled_up, padded, steps_of_scores
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.contract import CodesRequest
from mmspec.modalities.speech.generate import generated
from mmspec.modalities.whisper.checkpoint import Whisper, has_encoder
from mmspec.modalities.whisper.generate import (
    Windows,
    check_ears,
    decode_rows,
)
from mmspec.modalities.whisper.window import WhisperSpeculativeDecoder
from mmspec.report.report import Report
from mmspec.streaming import HandedOn

NOTHING = torch.empty(0, dtype=torch.long)

ROW_CRITERIA: frozenset[type] = frozenset({EosTokenCriteria, MaxLengthCriteria, StopStringCriteria})
"""Criteria that judge every row of a batch by itself."""

LOOK_AT_INPUTS = frozenset(
    {hf.EncoderRepetitionPenaltyLogitsProcessor, hf.EncoderNoRepeatNGramLogitsProcessor}
)
"""Processors that hold something for every row of a batch."""


def _row_by_row(processor: Any) -> bool:
    """Whether a processor treats every row of a batch by itself."""
    kind = type(processor)
    known = kind in BLOCK_FORMS or kind in IGNORES_PREFIX or kind in MEMORYLESS
    # A penalty beside a prompt's mask holds how much padding each row has.
    of_rows = isinstance(getattr(processor, "prompt_ignore_length", None), Tensor)
    return known and kind not in LOOK_AT_INPUTS and not of_rows


class CustomGenerate:
    """A decoding loop for `model.generate(..., custom_generate=...)`. Made by `custom_generate`.

    Attributes:
        reports: one report per row of the last call. transformers calls a loop once per input, but
            for Whisper with timestamps: once per go at a window.
        history: one report per row of every call so far.
        inputs: what the call is about, as the processor made it, for a drafting model that has to
            look for itself; set it before a call (`mmspec.generate` does).
        row: which row of a batch the next call is about; each draws noise of its own.
        preparation: encoder runs and their seconds before the next call, where somebody watches.
        prompt_length: of the last call, in the decoder's positions.
        pad: what stands behind a row of it that ended before others.
        ordinary: why the last call was left to transformers' own loop; None where it wasn't.
    """

    def __init__(
        self,
        draft: Any = "none",
        *,
        gamma: int | str = "adaptive",
        seed: int | None = None,
        rule: str = "auto",
        packed: bool = True,
        hypothesis: Sequence[int] | None = None,
        processor: Any = None,
        streamer: Any = None,
    ) -> None:
        self._draft, self._packed = seen_through(draft), packed
        self._seed, self._rule, self._hypothesis = seed, rule, hypothesis
        self._processor, self._streamer = processor, streamer
        self._costs = BlockCosts()
        self._policy = policy_for(gamma, self._costs)
        self._pair: SpeculativeDecoder[Any] | None = None
        self.reports: tuple[Report, ...] = ()
        self.history: list[Report] = []
        self.ordinary: str | None = None
        self.inputs: Mapping[str, Any] | None = None
        self.row = self.prompt_length = self.pad = 0
        self.preparation: tuple[Runs, Clock] | None = None
        # `generate` makes a loop for one input and counts the goes at it. A loop of the caller's
        # own can't tell a further go from another input, and must repeat itself for the latter.
        self._go, self._counts_attempts = 0, False

    @property
    def report(self) -> Report:
        """The report of the last call's only row.

        Raises:
            OptionError: nothing was decoded yet, or several rows were.
        """
        if len(self.reports) != 1:
            raise OptionError(f"{len(self.reports)} rows were decoded: look at .reports")
        return self.reports[0]

    def __call__(
        self,
        model: Any,
        input_ids: Tensor,
        logits_processor: Any = None,
        stopping_criteria: Any = None,
        generation_config: Any = None,
        synced_gpus: bool = False,
        streamer: Any = None,
        tokenizer: Any = None,
        inputs_tensor: Tensor | None = None,
        **model_kwargs: Any,
    ) -> Any:
        """What transformers calls in place of its own loop."""
        adapter_for(model.config.model_type)
        if task_of(model.config.model_type) == "tts":
            raise OptionError(
                f"{type(model).__name__} says codes, which no loop of another's is made for: call "
                "mmspec.generate, or mmspec.load"
            )
        check_mode(generation_config)
        call = Prepared(
            model,
            input_ids,
            logits_processor,
            stopping_criteria,
            generation_config,
            model_kwargs,
            cache=kept_cache(model_kwargs, generation_config),
        )
        hears = model.config.model_type == "whisper" and has_encoder(model)
        self.prompt_length, self.pad = input_ids.shape[1], pad_token(generation_config)
        self.reports = ()
        given = streamer if streamer is not None else streamer_of_generate()
        streams = given is not None or self._streamer is not None
        self.ordinary = self._ordinary_because(call, rows_share=hears, streams=streams)
        streamer = self._streaming(given, input_ids)
        if self.ordinary is not None:
            return type(model)._sample(
                model,
                input_ids,
                logits_processor=logits_processor,
                stopping_criteria=stopping_criteria,
                generation_config=generation_config,
                streamer=streamer,
                **model_kwargs,
            )
        pop_cache(model_kwargs)
        if hears:
            decoded = self._decode_windows(call, inputs_tensor, streamer)
        else:
            decoded = [self._decode_row(call, streamer)]
        self.reports = tuple(row.report for row in decoded)
        self.history += self.reports
        self._go += self._counts_attempts
        return self._output(call, decoded)

    def _decode_windows(self, call: Prepared, heard: Tensor | None, streamer: Any) -> list[Row]:
        """Rows of a batch of Whisper's windows."""
        pair, rows = self._whisper_pair(call.model), len(call.input_ids)
        job = Windows(
            pair,
            call.input_ids,
            call.inputs["encoder_outputs"].last_hidden_state.expand(rows, -1, -1),
            heard if heard is not None and heard.dim() == 3 else None,
            call.processors,
            call.criteria,
            call.config,
            self._sampling(call),
            self._go,
            self._hypothesis,
            streamer,
            self.pad,
            call.cache,
        )
        check_ears(job)
        return decode_rows(job)

    def _decode_row(self, call: Prepared, streamer: Any) -> Row:
        """The row of a model that looks or listens."""
        inputs, pair = self.inputs, self._vlm_pair(call.model)
        # `generate` ran the encoders before it called this loop.
        runs, encode_s = 0, 0.0
        if self.preparation is not None:
            watch, clock = self.preparation
            runs, encode_s = watch.count, clock.seconds["encode"]
        row = decode_row(
            pair,
            call,
            self._sampling(call).of_part(self.row),
            inputs=None if inputs is None else partial(handed_on, inputs, pair.checkpoint),
            hypothesis=self._hypothesis,
            streamer=streamer,
        )
        report = row.report
        seconds = {**report.seconds, "encode": report.seconds["encode"] + encode_s}
        row.report = replace(report, encoder_runs=report.encoder_runs + runs, seconds=seconds)
        return row

    def _streaming(self, given: Any, input_ids: Tensor) -> Any:
        """Who gets what is emitted: whom `generate` knows, and whom only this loop knows.

        `generate` has given the prompt to the former; the latter gets it here.
        """
        mine = self._streamer
        if mine is None or mine is given:
            return given
        mine.put(input_ids.cpu())
        return mine if given is None else HandedOn([given, mine])

    def _sampling(self, call: Prepared) -> Sampling:
        return Sampling(bool(call.config.do_sample), self._seed, self._rule)

    def _ordinary_because(self, call: Prepared, *, rows_share: bool, streams: bool) -> str | None:
        """Why transformers' own loop has to decode this, None where it hasn't to.

        Raises:
            OptionError: it has to, but wouldn't know what to do with the seed.
        """
        config, rows = call.config, len(call.input_ids)
        unknown = [type(p).__name__ for p in call.processors or () if not _row_by_row(p)]
        unknown += [type(c).__name__ for c in call.criteria or () if type(c) not in ROW_CRITERIA]
        reason = None
        heard = call.inputs.get("encoder_outputs") if rows_share else None
        if heard is not None and len(heard.last_hidden_state) not in (1, rows):
            reason = f"encoder states of {len(heard.last_hidden_state)} rows, prompts of {rows}"
        elif call.model.config.model_type == "whisper" and not has_encoder(call.model):
            reason = "a decoder without an encoder, which hears nothing"
        elif mixes_rows(call.model):
            reason = "dynamically quantised layers compute the rows of a block from each other"
        elif rows > 1 and streams:
            reason = "a streamer gets a token of every row at once"
        elif rows > 1 and not rows_share:
            reason = "several prompts in one call; mmspec.generate takes them one by one"
        elif cached_positions(call.inputs):
            reason = "a cache that holds positions already"
        elif call.is_padded:
            reason = "a padded prompt"
        elif call.input_ids.shape[1] == 0:
            reason = "a prompt of embeddings, without ids"
        elif config.return_dict_in_generate and (
            config.output_attentions or config.output_hidden_states
        ):
            reason = "attentions or hidden states were asked for"
        elif rows > 1 and unknown:
            reason = f"{unknown[0]} may look across the rows of a batch"
        if reason is not None and config.do_sample and self._seed is not None:
            raise OptionError(f"seed can't be kept: transformers' own loop has to run ({reason})")
        return reason

    def _whisper_pair(self, model: Any) -> WhisperSpeculativeDecoder:
        if self._pair is None or self._pair.checkpoint.model is not model:
            whisper = Whisper.of(model, self._processor, packed=self._packed)
            draft = draft_for(self._draft, whisper, trust_remote_code=False)
            self._pair = WhisperSpeculativeDecoder(whisper, draft, self._policy, self._costs)
        return self._pair  # type: ignore[return-value]

    def _vlm_pair(self, model: Any) -> SpeculativeDecoder[Checkpoint]:
        if self._pair is None or self._pair.checkpoint.model is not model:
            target = Checkpoint.of(model, self._processor, packed=self._packed)
            draft = draft_for(self._draft, target, trust_remote_code=False)
            self._pair = SpeculativeDecoder(target, draft, self._policy, self._costs)
        return self._pair

    def _output(self, call: Prepared, decoded: list[Row]) -> Any:
        config, encoded = call.config, call.inputs.get("encoder_outputs")
        sequences = padded([row.ids for row in decoded], call.input_ids, self.pad)
        if not config.return_dict_in_generate:
            return sequences
        rows = {
            "sequences": sequences,
            "scores": steps_of_scores(decoded, "processed") if config.output_scores else None,
            "logits": steps_of_scores(decoded, "raw") if config.output_logits else None,
            **cache_field(GenerateDecoderOnlyOutput, call.cache),
        }
        if encoded is None:
            return GenerateDecoderOnlyOutput(**rows)
        return GenerateEncoderDecoderOutput(
            **rows,
            encoder_hidden_states=encoded.get("hidden_states"),
            encoder_attentions=encoded.get("attentions"),
        )


def custom_generate(draft: Any = "none", **options: Any) -> CustomGenerate:
    """A decoding loop to pass to transformers: `model.generate(..., custom_generate=...)`.

    Args:
        draft: "none", "ngram", "hypothesis", "early-exit:N", a drafting model, or its name.
        **options: `gamma` ("adaptive" or a number), `seed` (repeatable sampling), `rule`,
            `packed`, `hypothesis` (expected ids), `processor` (the target's, for a drafter with
            another tokenizer), `streamer` (gets what one given to `generate` would get).

    Returns:
        A callable; after a call its `.report` says what happened.

    Raises:
        MMSpecError: an option that can't work.
    """
    return CustomGenerate(draft, **options)


@dataclass(frozen=True, slots=True)
class Generation:
    """What `generate` returns.

    Attributes:
        sequences: ids as `model.generate` returns them, `[rows, length]`.
        reports: one per row, and per go where a window took several (Whisper with timestamps).
    """

    sequences: Tensor
    reports: tuple[Report, ...]

    @property
    def report(self) -> Report:
        """The only report.

        Raises:
            OptionError: there are several, or none (a batch that had to be decoded ordinarily).
        """
        if len(self.reports) != 1:
            raise OptionError(f"there are {len(self.reports)} reports: look at .reports")
        return self.reports[0]


def generate(
    model: Any,
    inputs: Any,
    draft: Any = "none",
    *,
    gamma: int | str = "adaptive",
    seed: int | None = None,
    packed: bool = True,
    hypothesis: Sequence[int] | None = None,
    processor: Any = None,
    streamer: Any = None,
    **options: Any,
) -> Generation:
    """Generate with a loaded model: `model.generate(inputs, **options)`, speculatively.

    Args:
        model: a transformers model of a family that mmspec knows.
        inputs: what `model.generate` takes: features, or the output of its processor.
        draft: as for `custom_generate`.
        gamma: "adaptive", or tokens drafted per round.
        seed: makes sampling repeatable, whatever drafts.
        packed: use packed linear layers on a CPU.
        hypothesis: expected ids, for the hypothesis drafter.
        processor: the target's, for a drafter with another tokenizer.
        streamer: a transformers streamer, gets committed ids.
        **options: generation options, as `model.generate` takes them.

    Raises:
        MMSpecError: an unsupported family, or an option that can't work.
    """
    adapter_for(model.config.model_type)
    if task_of(model.config.model_type) == "tts":
        return _spoken(model, inputs, draft, gamma, seed, packed, streamer, options)
    loop = custom_generate(
        draft,
        gamma=gamma,
        seed=seed,
        packed=packed,
        hypothesis=hypothesis,
        processor=processor,
        streamer=streamer,
    )
    loop._counts_attempts = True
    options = with_stop_strings(options, getattr(processor, "tokenizer", None))
    if model.config.model_type == "whisper":
        given = dict(inputs) if isinstance(inputs, Mapping) else {"inputs": inputs}
        if "inputs" in given:  # by name: a wrapper's `generate` takes nothing by position
            given["input_features"] = given.pop("inputs")
        output = model.generate(custom_generate=loop, streamer=streamer, **{**given, **options})
        sequences = output if isinstance(output, Tensor) else output["sequences"]
    else:
        sequences = _row_after_row(model, loop, inputs, streamer, options)
    return Generation(sequences, tuple(loop.history))


def _spoken(
    model: Any,
    inputs: Any,
    draft: Any,
    gamma: int | str,
    seed: int | None,
    packed: bool,
    streamer: Any,
    options: dict[str, Any],
) -> Generation:
    """What a model that says codes makes of them: sound, or codes."""
    if not isinstance(inputs, Mapping):
        raise OptionError(
            f"inputs: expected what the processor makes, a mapping, got {type(inputs).__name__}"
        )
    voice, costs = SpeechCheckpoint.of(model, packed=packed), BlockCosts()
    pair = SpeculativeDecoder(
        voice, draft_for(draft, voice, False), policy_for(gamma, costs), costs
    )
    stats = RequestStats(Clock(model.device))
    asked = CodesRequest(pair, dict(inputs), stats, options, seed=seed, streamer=streamer)
    output, sampling = generated(asked)
    return Generation(output, (stats.report(sampling, costs),))


def _as_one_call(
    model: Any, loop: CustomGenerate, inputs: Any, streamer: Any, options: dict[str, Any]
) -> Tensor:
    """Ids of a batch that the loop leaves to transformers' own, which takes its rows at once."""
    output = model.generate(**inputs, custom_generate=loop, streamer=streamer, **options)
    return output if isinstance(output, Tensor) else output["sequences"]


def _goes_on(model: Any, options: Mapping[str, Any]) -> bool:
    """Whether a row that has ended may have to go on until the others have.

    The library fills up with padding only where it knows an end token; a criterion of the caller's
    or a stop string ends a row without one, and the row speaks on.
    """
    config = options.get("generation_config")
    said = options.get("eos_token_id", 0 if config is None else config.eos_token_id)
    without_end = said is None or wanted(model, options, "eos_token_id") is None
    return without_end and bool(options.get("stopping_criteria") or options.get("stop_strings"))


def _row_after_row(
    model: Any, loop: CustomGenerate, inputs: Any, streamer: Any, options: dict[str, Any]
) -> Tensor:
    """Ids of a batch of prompts, each decoded by itself and without its padding."""
    if not isinstance(inputs, Mapping):
        raise OptionError(
            f"inputs: expected what the processor makes, a mapping, got {type(inputs).__name__}"
        )
    if given_cache({**inputs, **options}) is not None:
        raise OptionError(
            "found a cache, which would be neither read nor filled: leave it out, or call "
            "model.generate"
        )
    config, inputs = options.get("generation_config") or model.generation_config, dict(inputs)
    times = 1
    if options.get("do_sample", config.do_sample):  # else `generate` refuses to repeat itself
        times = options.pop("num_return_sequences", config.num_return_sequences) or 1
    family, sequences = adapter_for(model.config.model_type).FAMILY, []
    if times > 1:
        options["num_return_sequences"] = 1
    inner = seen_through(model)
    rows = [row for row in family.rows(inner, inputs) for _ in range(times)]
    widest = prompt_length(model, inputs)
    padded = any(prompt_length(model, row) < widest for row in rows)
    penalty = wanted(model, options, "encoder_repetition_penalty")  # on the padding, too
    at_once = (
        streamer is not None or begin_apart(model, inputs, options) or _goes_on(model, options)
    )
    if len(rows) > 1 and (at_once or (padded and penalty not in (None, 1.0))):
        if times > 1:
            options["num_return_sequences"] = times
        return _as_one_call(model, loop, inputs, streamer, options)
    start_s = time.monotonic()
    for loop.row, loop.inputs in enumerate(rows):
        padding = widest - prompt_length(model, loop.inputs)
        asked = of_row(model, options, padding, time.monotonic() - start_s if loop.row else 0.0)
        if loop.row + 1 < len(rows):  # what one row taught a processor is no other row's business
            asked = with_copies(asked)
        # A prompt comes back as wide as it was given, whatever it was padded with; the caller's
        # code sees it so, too.
        prompt = loop.row // times
        in_front = inputs["input_ids"][prompt, :padding] if padding else NOTHING
        asked = as_in_batch(asked, prompt, in_front[None], _row_by_row, ROW_CRITERIA)
        clock = Clock(model.device)
        with watched(family.encoders(inner), clock) as runs:
            loop.preparation = runs, clock
            output = model.generate(**loop.inputs, custom_generate=loop, streamer=streamer, **asked)
        ids = output if isinstance(output, Tensor) else output["sequences"]
        sequences.append([*in_front.tolist(), *ids[0].tolist()])
    return filled_up(sequences, loop.pad, model.device)
