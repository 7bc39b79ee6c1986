"""Plain chains: models that write codes one by one, like words. What their families share.

A family of this kind is one chain or several in a row, and each is decoded by a session of its own,
over tokens as a language model's. What isn't autoregressive behind them the library runs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from mmspec.engine import BlockCosts, Policy, Sampling, Steps
from mmspec.errors import InputError, OptionError
from mmspec.factorizations.codes import Grid
from mmspec.modalities.base import family as vlm
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.draft import ModelDraft
from mmspec.modalities.base.preparation import Prepared, check_mode, prepare, refusing
from mmspec.modalities.base.request import Inputs, Request, decoded
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder
from mmspec.modalities.speech.contract import CodesRequest
from mmspec.modalities.speech.family import Family
from mmspec.proposals import Drafter, NgramDrafter
from mmspec.proposals.runs import RunIndex
from mmspec.report.by_codebook import CodeShare
from mmspec.report.trace import Round

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint


BLOCK = 256
"""Tokens that are read again at a time."""

LONGEST = 6
"""Tokens of the longest run that is looked up."""


class ChainModel(vlm.Family):
    """A causal language model some of whose tokens are codes. It sees no image and hears nothing.

    Args:
        ends: ids that end it; None: those of its generation config.
        marks: ids that only a prompt may hold, or padding: they are never drafted.
    """

    model_types = ()
    model_class = "AutoModelForCausalLM"
    placeholders = ()
    encoder_names = ()

    def __init__(
        self, ends: frozenset[int] | None = None, marks: frozenset[int] = frozenset()
    ) -> None:
        self._ends, self._marks = ends, marks

    def ends(self, model: Any) -> frozenset[int]:
        """Tokens that end it."""
        return super().ends(model) if self._ends is None else self._ends

    def reserved(self, model: Any) -> frozenset[int]:
        """The marks that it was given."""
        return self._marks


@dataclass(frozen=True, eq=False)
class ChainRequest:
    """What a drafter may know of a chain that is being decoded.

    Attributes:
        name: of the chain.
        request: the session's.
        asked: what the chain is part of.
        never: ids that aren't to be drafted.
    """

    name: str
    request: Request
    asked: CodesRequest
    never: frozenset[int]


class LookupDraft:
    """Lookup in what was committed, and in what the voice has said before."""

    name = "ngram"

    def open(self, opening: ChainRequest) -> Drafter | None:
        """An index of its own, and one of the earlier utterances that the request names."""
        asked = opening.asked
        family: Any = asked.pair.checkpoint.family
        said = RunIndex(LONGEST)
        for sequence in asked.earlier:
            said.add(list(family.earlier(sequence, opening.name)))
        return NgramDrafter(LONGEST, never=opening.never, earlier=[said])


class ChainDraft:
    """Another model of the same codes: each chain is drafted by its counterpart.

    Args:
        target: the checkpoint to be drafted for.
        drafter: transformers' model.
        name: as in reports.
        sure: it drafts on only while its last token had at least this probability.

    Raises:
        ModelError: it writes other codes; names both sides.
    """

    def __init__(
        self, target: SpeechCheckpoint, drafter: Any, name: str = "model", sure: float = 0.4
    ) -> None:
        family: Any = target.family
        family.check_drafter(target.model, drafter)
        chains, self.name = family.chains(drafter, target.packed), name
        self._drafts = {
            chain: family.drafting()(model, chains[chain], name, sure)
            for chain, model in models(target).items()
        }

    def open(self, opening: ChainRequest) -> Drafter | None:
        """A drafter that reads the same prompt when first asked."""
        return self._drafts[opening.name].open(opening.request)


class ChainFamily(Family):
    """A family whose codes are plain chains, and what follows from them."""

    draft_kind = ChainDraft

    @abstractmethod
    def chains(self, model: Any, packed: bool) -> dict[str, Checkpoint]:
        """The models that write its chains, by name, in the order in which they do."""

    def earlier(self, sequence: Sequence[Any], name: str) -> Sequence[int]:
        """The tokens of one chain in a sequence that was said."""
        return sequence

    def drafting(self) -> type[ModelDraft]:
        """How the same chain of another model drafts for one."""
        return ModelDraft


class _Handing:
    """Hands a kind of drafter what it may know of a chain."""

    def __init__(self, asked: CodesRequest, chain: str, model: Checkpoint) -> None:
        self.name = asked.pair.draft.name
        self._asked, self._chain, self._model = asked, chain, model

    def open(self, opening: Request) -> Drafter | None:
        model = self._model
        never = model.family.reserved(model.model) | model.steps.stop_tokens
        request = ChainRequest(self._chain, opening, self._asked, never)
        return self._asked.pair.draft.open(request)


_models: WeakKeyDictionary[SpeechCheckpoint, dict[str, Checkpoint]] = WeakKeyDictionary()
_learned: WeakKeyDictionary[SpeculativeDecoder, dict[str, tuple[Policy, BlockCosts]]] = (
    WeakKeyDictionary()
)


def models(checkpoint: SpeechCheckpoint) -> dict[str, Checkpoint]:
    """The models that write a checkpoint's chains; they are described and packed once."""
    if checkpoint not in _models:
        family: Any = checkpoint.family
        _models[checkpoint] = family.chains(checkpoint.model, checkpoint.packed)
    return _models[checkpoint]


def _pair(asked: CodesRequest, chain: str) -> SpeculativeDecoder[Checkpoint]:
    """One chain with its kind of drafter. Each has costs of its own; the last has the pair's."""
    parts, pair = models(asked.pair.checkpoint), asked.pair
    if pair not in _learned:
        every = {name: BlockCosts() for name in parts}
        learned = {name: (pair.policy.at(costs), costs) for name, costs in every.items()}
        _learned[pair] = {**learned, list(parts)[-1]: (pair.policy, pair.costs)}
    policy, costs = _learned[pair][chain]
    return SpeculativeDecoder(parts[chain], _Handing(asked, chain, parts[chain]), policy, costs)


def prepared_chain(model: Any, inputs: Mapping[str, Any], **options: Any) -> Prepared:
    """What a causal model's own `generate` prepares.

    Raises:
        OptionError: an option that it refuses.
    """
    with refusing():
        return prepare(model, inputs, **options)


def tokens(
    asked: CodesRequest,
    chain: str,
    prepared: Prepared,
    *,
    go: int = 0,
    inputs: Inputs | None = None,
    streamer: Any = None,
) -> Steps[list[int]]:
    """Decode a prepared chain to its end; the emitted ids.

    Args:
        asked: what the chain is part of.
        chain: its name.
        prepared: what `generate` prepared; it says whether tokens are drawn or the likeliest.
        go: number of the session within the request: each draws noise of its own.
        inputs: makes a drafting model's own inputs; None: it reads the prepared ones.
        streamer: gets committed ids.

    Raises:
        InputError: several texts in one request, or a padded one.
        OptionError: a way to generate that isn't one token after the other, or approximate
            acceptance.
    """
    check_mode(prepared.config)
    if asked.approximate is not None:
        raise OptionError(
            "approximate acceptance judges codes of frames; here a step decides one token, and "
            "some are marks or words: leave it out"
        )
    if len(prepared.input_ids) != 1:
        raise InputError(f"found {len(prepared.input_ids)} texts in one request: pass them singly")
    if prepared.is_padded:
        raise InputError("the text is padded: pass it without padding, attention_mask all ones")
    return (
        yield from decoded(
            _pair(asked, chain),
            prepared,
            asked.stats,
            sampling=drawing(asked, bool(prepared.config.do_sample), go),
            inputs=inputs,
            streamer=streamer,
        )
    )


def drawing(asked: CodesRequest, sample: bool, go: int = 0) -> Sampling:
    """How the tokens of a session are drawn; a rule is one for those that are drawn at all."""
    if not sample:
        return Sampling()
    return Sampling(True, asked.seed, asked.rule).of_part(0, go)


def counted(trace: Sequence[Round], width: int, column: Callable[[int], int | None]) -> CodeShare:
    """How the codes of some sessions' rounds came about, by codebook.

    Args:
        trace: the rounds.
        width: codebooks.
        column: the codebook that the token at an index of the output belongs to, None for none.
    """
    decided, proposed, judged, agreed = 0, [0] * width, [0] * width, [0] * width
    start = 0
    for done in trace:
        for offset, _ in enumerate(done.proposal):
            if (place := column(start + offset)) is None:
                continue
            proposed[place] += 1
            judged[place] += offset < done.judged
            agreed[place] += offset < done.accepted
        decided += sum(column(start + index) is not None for index in range(len(done.emitted)))
        start += len(done.emitted)
    return CodeShare(decided, tuple(proposed), tuple(judged), tuple(agreed))


@torch.no_grad()
def log_probs(model: Checkpoint, prepared: Prepared, ids: Sequence[int]) -> list[float]:
    """The log-probability of each token behind a prompt and those before it, by the model's own
    distribution.

    Args:
        model: that writes the chain.
        prepared: its prompt.
        ids: what was said behind it.
    """
    target = model.family.open(prepared, packed=False)
    try:
        rows = [target.read_prompt()]
        for start in range(0, len(ids) - 1, BLOCK):
            block = ids[start : min(start + BLOCK, len(ids) - 1)]
            rows.append(target.score(block, keep=len(block)))
        chances = torch.cat(rows)[: len(ids)].double().log_softmax(-1)
        return chances.gather(-1, torch.tensor([[i] for i in ids], device=target.device))[
            :, 0
        ].tolist()
    finally:
        target.close()


def check_text(ids: Any, vocab_size: int, most: int) -> None:
    """Raise where a text's ids can't be read.

    Args:
        ids: `[1, P]`.
        vocab_size: ids that the model knows.
        most: positions that it has for a text.

    Raises:
        InputError: none at all, an empty text, one that is too long, or an id that the model
            doesn't know.
    """
    if not isinstance(ids, Tensor):
        raise InputError("no input_ids: pass what the model's processor makes of a text")
    if ids.dim() != 2 or len(ids) != 1:
        raise InputError(f"text ids of shape {tuple(ids.shape)}, expected one row: (1, length)")
    if ids.shape[1] == 0:
        raise InputError("the text is empty: there is nothing to say")
    if ids.shape[1] > most:
        raise InputError(
            f"the text has {ids.shape[1]} ids, the model has positions for {most}: say it in parts"
        )
    strange = ids[(ids < 0) | (ids >= vocab_size)]
    if len(strange):
        raise InputError(
            f"the text has id {int(strange[0])}, the model knows 0 to {vocab_size - 1}: is the "
            "tokenizer another model's?"
        )


def hand_over(streamer: Any, grid: Grid) -> None:
    """Give a streamer all frames at once: none is whole before its filled codes are."""
    if streamer is not None:
        for frame in grid:
            streamer.put(torch.tensor([frame]))
        streamer.end()
