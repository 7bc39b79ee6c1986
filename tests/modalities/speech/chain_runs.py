"""Requests of families of plain chains, decoded by mmspec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mmspec.clock import Clock
from mmspec.engine import BlockCosts, FixedPolicy, run_alone, run_batched
from mmspec.engine.stats import RequestStats
from mmspec.modalities.base.speculative_decoder import NoDraft, SpeculativeDecoder
from mmspec.modalities.speech.chain import ChainDraft, LookupDraft
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.contract import CodesRequest, CodesResult
from mmspec.modalities.speech.family import Family
from mmspec.report.report import Report
from tests.proposals.scripted import ScriptedDrafter

OF_REQUEST = ("seed", "rule", "approximate", "earlier", "streamer", "drafter_inputs")
PAST_THE_END = 60


class WrongDraft:
    """Drafts that follow a pattern of their own: codes of other places, marks, ends."""

    name = "wrong"

    def __init__(self, vocab_size: int) -> None:
        self._size = vocab_size

    def open(self, opening: Any) -> ScriptedDrafter:
        size = self._size
        return ScriptedDrafter(lambda ids, limit: [(len(ids) + i) * 7 % size for i in range(limit)])


def lookup(target: SpeechCheckpoint) -> Any:
    return LookupDraft()


def drafted_by(model: Any) -> Any:
    """A drafting model, which drafts on however unsure it is."""
    return lambda target: ChainDraft(target, model, sure=0)


def wrong(vocab_size: int) -> Any:
    return lambda target: WrongDraft(vocab_size)


def said_by(
    family: Family, model: Any, given: Mapping[str, Any], draft: Any, gamma: int, **how: Any
) -> tuple[CodesResult, Report, RequestStats]:
    """What a model says, its report and its account.

    Args:
        family: its family.
        model: transformers' model.
        given: its inputs.
        draft: makes a kind of drafter for a checkpoint; None: nothing is drafted.
        gamma: tokens drafted per round.
        **how: of a request (`OF_REQUEST`), the others of `generate`.
    """
    target = SpeechCheckpoint.of(model, packed=how.pop("packed", False), family=family)
    kind = NoDraft() if draft is None else draft(target)
    pair = SpeculativeDecoder(target, kind, FixedPolicy(gamma), BlockCosts())
    asked = asking(pair, given, **how)
    said = run_alone(family.say(asked))
    return said, asked.stats.report(said.sampling, pair.costs), asked.stats


def asking(pair: SpeculativeDecoder, given: Mapping[str, Any], **how: Any) -> CodesRequest:
    """A request with an account of its own."""
    request = {name: how.pop(name) for name in OF_REQUEST if name in how}
    return CodesRequest(pair, given, RequestStats(Clock(torch.device("cpu"))), how, **request)


def said_together(
    family: Family, model: Any, several: Sequence[Mapping[str, Any]], width: int, **how: Any
) -> list[CodesResult]:
    """Several requests side by side, with lookup."""
    target = SpeechCheckpoint.of(model, packed=False, family=family)
    pair = SpeculativeDecoder(target, LookupDraft(), FixedPolicy(4), BlockCosts())
    requests = [family.say(asking(pair, given, **how)) for given in several]
    found = dict(run_batched(requests, width))
    for said in found.values():
        if isinstance(said, Exception):
            raise said
    return [found[number] for number in range(len(several))]


def read_again(
    family: Family,
    model: Any,
    given: Mapping[str, Any],
    said: CodesResult,
    *,
    text: bool,
    **options: Any,
) -> list[float]:
    """The log-probabilities of what was said."""
    target = SpeechCheckpoint.of(model, packed=False, family=family)
    pair = SpeculativeDecoder(target, NoDraft(), FixedPolicy(0), BlockCosts())
    stats = RequestStats(Clock(torch.device("cpu")))
    return family.log_probs(CodesRequest(pair, given, stats, options), said, text=text)


def chances(rows: torch.Tensor, ids: Sequence[int]) -> list[float]:
    """The log-probabilities of tokens by the rows before them."""
    laws = rows.double().log_softmax(-1)
    return [float(law[token]) for law, token in zip(laws, ids, strict=True)]
