"""Speculative decoding for models that are loaded already: `generate`, and a drop-in for it.

transformers' own `generate` does the preparation (inputs, encoder, processors, criteria) and hands
the decoding loop to mmspec, so that whatever it accepts means the same here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.generation import GenerateEncoderDecoderOutput
from transformers.generation import logits_process as hf
from transformers.generation.stopping_criteria import (
    EosTokenCriteria,
    MaxLengthCriteria,
    StoppingCriteriaList,
    StopStringCriteria,
)

from mmspec.compat import pop_cache
from mmspec.drafting import draft_for, policy_for
from mmspec.engine import BlockCosts, Sampling
from mmspec.engine.processing import BLOCK_FORMS, IGNORES_PREFIX, MEMORYLESS
from mmspec.errors import OptionError
from mmspec.modalities import adapter_for
from mmspec.modalities.whisper import Whisper, has_encoder
from mmspec.modalities.whisper_draft import Draft, ModelDraft
from mmspec.modalities.whisper_generate import (
    Prepared,
    Row,
    check_ears,
    decode_rows,
    drafter_without_encoder,
    padded,
)
from mmspec.modalities.whisper_window import Pair
from mmspec.report import Report

ROW_CRITERIA = frozenset({EosTokenCriteria, MaxLengthCriteria, StopStringCriteria})
"""Criteria that judge every row of a batch by itself."""

LOOK_AT_INPUTS = frozenset(
    {hf.EncoderRepetitionPenaltyLogitsProcessor, hf.EncoderNoRepeatNGramLogitsProcessor}
)
"""Processors that hold something for every row of a batch."""


def _row_by_row(kind: type) -> bool:
    """Whether a processor treats every row of a batch by itself."""
    known = kind in BLOCK_FORMS or kind in IGNORES_PREFIX or kind in MEMORYLESS
    return known and kind not in LOOK_AT_INPUTS


class CustomGenerate:
    """A decoding loop for `model.generate(..., custom_generate=...)`. Made by `custom_generate`.

    Attributes:
        reports: one report per row of the last call. transformers calls a loop once per input, but
            for Whisper with timestamps: once per go at a window.
        history: one report per row of every call so far.
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
        self._draft, self._packed = draft, packed
        self._seed, self._rule, self._hypothesis = seed, rule, hypothesis
        self._processor, self._streamer = processor, streamer
        self._costs = BlockCosts()
        self._policy = policy_for(gamma, self._costs)
        self._pair: Pair | None = None
        self.reports: tuple[Report, ...] = ()
        self.history: list[Report] = []
        self.ordinary: str | None = None
        # `generate` makes a loop for one input and counts the goes at it. A loop of the caller's
        # own can't tell a further go from another input, and must repeat itself for the latter.
        self._go, self._counts_goes = 0, False

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
        if (generation_config.num_beams or 1) > 1:
            raise OptionError("beam search can't be decoded speculatively: set num_beams=1")
        rows = len(input_ids)
        self.reports = ()
        self.ordinary = self._ordinary_because(
            rows, logits_processor, stopping_criteria, generation_config, model_kwargs
        )
        if self.ordinary is not None:
            pop_cache(model_kwargs)
            return type(model)._sample(
                model,
                input_ids,
                logits_processor=logits_processor,
                stopping_criteria=stopping_criteria,
                generation_config=generation_config,
                streamer=streamer,
                **model_kwargs,
            )
        pair = self._pair_for(model)
        states = model_kwargs["encoder_outputs"].last_hidden_state
        job = Prepared(
            pair,
            input_ids,
            states.expand(rows, -1, -1),
            inputs_tensor if inputs_tensor is not None and inputs_tensor.dim() == 3 else None,
            logits_processor,
            stopping_criteria,
            generation_config,
            Sampling(bool(generation_config.do_sample), self._seed, self._rule),
            self._go,
            self._hypothesis,
            streamer if streamer is not None else self._streamer,
        )
        check_ears(job)
        decoded = decode_rows(job)
        self.reports = tuple(row.report for row in decoded)
        self.history += self.reports
        self._go += self._counts_goes
        return self._output(job, decoded, model_kwargs["encoder_outputs"])

    def _ordinary_because(
        self, rows: int, processors: Any, criteria: Any, config: Any, model_kwargs: dict[str, Any]
    ) -> str | None:
        """Why transformers' own loop has to decode this, None where it hasn't to.

        Raises:
            OptionError: it has to, but wouldn't know what to do with the seed.
        """
        mask = model_kwargs.get("decoder_attention_mask")
        unknown = [type(p).__name__ for p in processors or () if not _row_by_row(type(p))]
        unknown += [type(c).__name__ for c in criteria or () if type(c) not in ROW_CRITERIA]
        reason = None
        if mask is not None and not bool(mask.all()):
            reason = "a padded prompt"
        elif config.return_dict_in_generate and (
            config.output_attentions or config.output_hidden_states
        ):
            reason = "attentions or hidden states were asked for"
        elif rows > 1 and unknown:
            reason = f"{unknown[0]} may look across the rows of a batch"
        if reason is not None and config.do_sample and self._seed is not None:
            raise OptionError(f"seed can't be kept: transformers' own loop has to run ({reason})")
        return reason

    def _pair_for(self, model: Any) -> Pair:
        if self._pair is None or self._pair.whisper.model is not model:
            whisper = Whisper.of(model, self._processor, packed=self._packed)
            self._pair = Pair(whisper, self._kind(whisper), self._policy, self._costs)
        return self._pair

    def _kind(self, whisper: Whisper) -> Draft:
        draft = self._draft
        if isinstance(draft, torch.nn.Module) and not has_encoder(draft):
            return ModelDraft(whisper, drafter_without_encoder(draft, whisper, self._packed))
        return draft_for(draft, whisper, trust_remote_code=False)

    def _output(self, job: Prepared, decoded: list[Row], encoder_outputs: Any) -> Any:
        config = job.config
        sequences = padded([row.ids for row in decoded], job.input_ids, config.pad_token_id)
        if not config.return_dict_in_generate:
            return sequences
        return GenerateEncoderDecoderOutput(
            sequences=sequences,
            scores=_stack(decoded, "processed") if config.output_scores else None,
            logits=_stack(decoded, "raw") if config.output_logits else None,
            encoder_hidden_states=encoder_outputs.get("hidden_states"),
            encoder_attentions=encoder_outputs.get("attentions"),
        )


def _stack(decoded: list[Row], kind: str) -> tuple[Tensor, ...]:
    """Rows by step, as transformers gives them; a finished row repeats its last."""
    rows = [getattr(row.scores, kind) for row in decoded]
    longest = max(len(steps) for steps in rows)
    return tuple(
        torch.cat([steps[min(step, len(steps) - 1)] for steps in rows]) for step in range(longest)
    )


def custom_generate(draft: Any = "none", **options: Any) -> CustomGenerate:
    """A decoding loop to pass to transformers: `model.generate(..., custom_generate=...)`.

    Args:
        draft: "none", "ngram", "hypothesis", "early-exit:N", a drafting model, or its name.
        **options: `gamma` ("adaptive" or a number), `seed` (repeatable sampling), `rule`,
            `packed`, `hypothesis` (expected ids), `processor` (the target's, for a drafter with
            another tokenizer), `streamer` (transformers doesn't hand its own on).

    Returns:
        A callable; after a call its `.report` says what happened.

    Raises:
        MMSpecError: an option that can't work.
    """
    return CustomGenerate(draft, **options)


def _with_stop_strings(options: dict[str, Any], processor: Any) -> dict[str, Any]:
    """Stop strings as a criterion: transformers drops `tokenizer` where a loop is brought along."""
    options = dict(options)
    tokenizer = options.pop("tokenizer", None) or getattr(processor, "tokenizer", None)
    if options.get("stop_strings") is None or tokenizer is None:
        return options
    stop = StopStringCriteria(tokenizer=tokenizer, stop_strings=options.pop("stop_strings"))
    criteria = [*(options.pop("stopping_criteria", None) or []), stop]
    return {**options, "stopping_criteria": StoppingCriteriaList(criteria)}


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
        gamma: "adaptive", or units drafted per round.
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
    loop = custom_generate(
        draft,
        gamma=gamma,
        seed=seed,
        packed=packed,
        hypothesis=hypothesis,
        processor=processor,
        streamer=streamer,
    )
    loop._counts_goes = True
    given = dict(inputs) if isinstance(inputs, Mapping) else {"inputs": inputs}
    if "input_features" in given:
        given["inputs"] = given.pop("input_features")
    features = given.pop("inputs")
    options = _with_stop_strings({**given, **options}, processor)
    output = model.generate(features, custom_generate=loop, streamer=streamer, **options)
    sequences = output if isinstance(output, Tensor) else output["sequences"]
    return Generation(sequences, tuple(loop.history))
