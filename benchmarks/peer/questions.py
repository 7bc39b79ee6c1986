"""What transformers' generation tests ask, asked of the families that they don't reach."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
import transformers as hf
from torch import Tensor

from benchmarks.peer.beds import PLAIN, Bed
from benchmarks.peer.judging import Judge
from mmspec.compat import quiet


class Leaning(hf.LogitsProcessor):
    """A processor of the caller's own, which likes later ids better."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        return scores + torch.linspace(0.0, 3.0, scores.shape[-1], device=scores.device)


class Enough(hf.StoppingCriteria):
    """A criterion of the caller's own: so many calls, and it is enough."""

    def __init__(self, calls: int = 7) -> None:
        self._left = calls

    def __call__(self, input_ids: Tensor, scores: Any, **more: Any) -> Tensor:
        self._left -= 1
        return torch.full((len(input_ids),), self._left <= 0, device=input_ids.device)


class Told(hf.generation.streamers.BaseStreamer):
    """Takes whatever it is told."""

    def put(self, value: Tensor) -> None:
        pass

    def end(self) -> None:
        pass


OUTPUTS: dict[str, Callable[[], dict[str, Any]]] = {
    "dict outputs": lambda: {"return_dict_in_generate": True},
    "scores": lambda: {"return_dict_in_generate": True, "output_scores": True},
    "logits": lambda: {"return_dict_in_generate": True, "output_logits": True},
    "attentions": lambda: {"return_dict_in_generate": True, "output_attentions": True},
}
"""Asked where more than ids is compared."""

QUESTIONS: dict[str, Callable[[], dict[str, Any]]] = {
    "greedy": dict,
    "one token": lambda: {"max_new_tokens": 1},
    "sample": lambda: {"do_sample": True},
    "sample of few": lambda: {"do_sample": True, "top_k": 4, "top_p": 0.9, "temperature": 0.7},
    "two samples": lambda: {"do_sample": True, "num_return_sequences": 2},
    "beams": lambda: {"num_beams": 2},
    "repetition": lambda: {"repetition_penalty": 1.4},
    "no repeats": lambda: {"no_repeat_ngram_size": 2},
    "at least so long": lambda: {"min_new_tokens": 8},
    "a processor": lambda: {"logits_processor": hf.LogitsProcessorList([Leaning()])},
    "a criterion": lambda: {"stopping_criteria": hf.StoppingCriteriaList([Enough()])},
    "guidance": lambda: {"guidance_scale": 3.0},
    "without a cache": lambda: {"use_cache": False},
    "an empty cache": lambda: {
        "past_key_values": hf.EncoderDecoderCache(hf.DynamicCache(), hf.DynamicCache())
    },
    "a static cache": lambda: {"cache_implementation": "static"},
    "a streamer": lambda: {"streamer": Told()},
    "their own lookup": lambda: {"prompt_lookup_num_tokens": 2},
    "a misspelt option": lambda: {"repetition_penaltie": 1.4},
}
"""Asked about every family's plain prompt; the other prompts are asked the first and "sample"."""

PROMISED_PLAIN = ("prompt_lookup_num_tokens",)
"""Their speculation promises the plain output, which is what ours is held to: Bark's breaks it."""


def ask(judge: Judge, draft: str, families: Mapping[str, Bed]) -> None:
    """Ask every family every question."""
    for name, bed in families.items():
        questions = QUESTIONS if bed.ids_only else {**QUESTIONS, **OUTPUTS}
        for prompt in bed.prompts:
            for question, options in questions.items():
                if prompt == PLAIN or question in ("greedy", "sample"):
                    _ask(judge, draft, name, bed, prompt, question, options)


def _ask(
    judge: Judge,
    draft: str,
    name: str,
    bed: Bed,
    prompt: str,
    question: str,
    options: Callable[[], dict[str, Any]],
) -> None:
    """One call by both; none where transformers itself breaks, rather than answer or refuse."""
    model = bed.make()
    drafter = copy.deepcopy(model).eval() if draft == "copy" else draft

    def asked() -> dict[str, Any]:
        return {"do_sample": False, **bed.options, **options()}

    def theirs() -> Any:
        told = {key: value for key, value in asked().items() if key not in PROMISED_PLAIN}
        return bed.theirs(model, bed.prompts[prompt](), told)

    with quiet(), torch.no_grad():
        try:
            theirs()
        except ValueError:  # how it refuses
            pass
        except Exception:
            return
        torch.manual_seed(0)
        judge.call(
            f"{name}, {prompt}, {question}",
            name,
            theirs,
            lambda: bed.ours(model, bed.prompts[prompt](), asked(), drafter),
            sampled=asked()["do_sample"],
            going_on=True,
        )
