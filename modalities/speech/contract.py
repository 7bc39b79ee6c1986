"""What is asked of a model that says codes, what is opened for it, and what comes of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from torch import Tensor

from mmspec.acceptance.groups import Approximate
from mmspec.compat import given_cache
from mmspec.engine import Sampling
from mmspec.engine.frames import Chain, Frames, FrameStops, Layout
from mmspec.engine.stats import RequestStats
from mmspec.errors import OptionError
from mmspec.factorizations.codes import Grid
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.speculative_decoder import SpeculativeDecoder
from mmspec.prefix import Frame
from mmspec.target import Target

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint


@dataclass(frozen=True, eq=False)
class CodesRequest:
    """What is to be said, and how.

    Attributes:
        pair: the target and its kind of drafter.
        inputs: what the target's `generate` takes.
        options: of `generate`.
        stats: adds up what is done.
        seed: key of the noise where codes are sampled; None: fresh noise.
        rule: of acceptance, see `mmspec.engine.Sampling`.
        approximate: leave to judge by groups of similar codes; None: exactly.
        drafter_inputs: makes a drafting model's own inputs for the same text; None: the target's.
        earlier: sequences that the same voice has said before, as the model sees them.
        streamer: gets committed frames or tokens, one by one.

    Raises:
        OptionError: a cache, which no loop here reads or fills.
    """

    pair: SpeculativeDecoder[SpeechCheckpoint]
    inputs: Mapping[str, Any]
    stats: RequestStats
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    rule: str = "auto"
    approximate: Approximate | None = None
    drafter_inputs: Any = None
    earlier: Sequence[Sequence[Any]] = ()
    streamer: Any = None

    def __post_init__(self) -> None:
        if given_cache({**self.inputs, **self.options}) is not None:
            raise OptionError("found a cache, which would be neither read nor filled: leave it out")


@dataclass(frozen=True, slots=True, eq=False)
class CodesResult:
    """What came of it.

    Attributes:
        grid: codes, frames × codebooks: what parity compares.
        ended: whether the model said that it is done (else its length ended it).
        sequence: tokens or frames as the model sees them, the prompt's included.
        prompt_length: how many of them were given.
        sampling: how its codes were drawn.
        layout: what was forced in the sequence; None where a step decides one token.
        first_step: the step, as the descriptor counts them, that decided the first token behind
            what was given; below 0 where marks come before the first code, None where no count
            holds.
    """

    grid: Grid
    ended: bool
    sequence: Sequence[Any]
    prompt_length: int
    sampling: Sampling
    layout: Layout | None = None
    first_step: int | None = 0


class PreparedTarget(Target, Protocol):
    """A target of frames that has yet to read its prompt.

    Attributes:
        prompt: the frames that it reads; text and the like are conditioning in front of them.
        layout: what is forced.
        chain: what scores the codebooks behind the first, where they depend on it.
        codebooks: K.
        said: ids that a head says; None: all those that a row has.
        max_rows: frames, the prompt's included, that its output never exceeds.
        hidden: `[m, D]`, final states behind the frames that were read last.
        hidden_from: position of the first of these frames.
    """

    prompt: Sequence[Frame]
    layout: Layout
    chain: Chain | None
    codebooks: int
    said: int | None
    max_rows: int
    hidden: Tensor
    hidden_from: int

    def read_prompt(self) -> Tensor:
        """Read the prompt and freeze it; the distribution behind it `[1, R, V]`."""
        ...


def step_kind_of(opened: PreparedTarget, layout: Layout | None = None) -> Frames:
    """What a session is given for a target of frames, whose marks are what is forced by default."""
    return Frames(opened.codebooks, layout or opened.layout, opened.chain, opened.said)


def stops_of(opened: PreparedTarget, prepared: Prepared) -> FrameStops:
    """Where the output of a target of frames ends."""
    return FrameStops(opened.layout, opened.max_rows, prepared.criteria)
