"""What a family of models that say codes does its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from torch import Tensor

from mmspec.engine import Steps
from mmspec.engine.account import Account
from mmspec.engine.frames import Chain, Frames, FrameStops, Layout
from mmspec.errors import ModelError, OptionError
from mmspec.factorizations.codes import Grid
from mmspec.modalities.pair import Pair
from mmspec.modalities.vlm.preparation import Prepared
from mmspec.prefix import Frame
from mmspec.target import Target

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import Checkpoint


@dataclass(frozen=True, eq=False)
class Asked:
    """What is to be said, and how.

    Attributes:
        pair: the target and its kind of drafter.
        inputs: what the target's `generate` takes.
        options: of `generate`.
        account: adds up what is done.
        seed: key of the noise where codes are sampled; None: fresh noise.
        rule: of acceptance, see `mmspec.engine.Sampling`.
        drafter_inputs: makes a drafting model's own inputs for the same text; None: the target's.
        earlier: sequences that the same voice has said before, as the model sees them.
        streamer: gets committed frames, one by one.
    """

    pair: Pair[Checkpoint]
    inputs: Mapping[str, Any]
    account: Account
    options: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    rule: str = "auto"
    drafter_inputs: Any = None
    earlier: Sequence[Sequence[Any]] = ()
    streamer: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """What came of it.

    Attributes:
        grid: codes, frames × codebooks: what parity compares.
        ended: whether the model said that it is done (else its length ended it).
        sequence: units or frames as the model sees them, the prompt's included.
        prompt_length: how many of them were given.
        layout: what was forced in the sequence; None where a step decides one unit.
    """

    grid: Grid
    ended: bool
    sequence: Sequence[Any]
    prompt_length: int
    layout: Layout | None = None


class Opened(Target, Protocol):
    """A target of frames that has yet to read its prompt.

    Attributes:
        prompt: the frames that it reads; text and the like are conditioning in front of them.
        layout: what is forced.
        chain: what scores the codebooks behind the first, where they depend on it.
        codebooks: K.
        max_rows: frames, the prompt's included, that its output never exceeds.
        hidden: `[m, D]`, final states behind the frames that were read last.
        hidden_from: position of the first of these frames.
    """

    prompt: Sequence[Frame]
    layout: Layout
    chain: Chain | None
    codebooks: int
    max_rows: int
    hidden: Tensor
    hidden_from: int

    def read_prompt(self) -> Tensor:
        """Read the prompt and freeze it; the law behind it `[1, R, V]`."""
        ...


class Family(ABC):
    """A family of models that say codes.

    Attributes:
        title: its name for messages and reports.
        loads: transformers' class for its checkpoints.
        filled: what of its output is not autoregressive, so that nothing of it is drafted.
    """

    title: ClassVar[str]
    loads: ClassVar[str]
    filled: ClassVar[str] = ""

    @abstractmethod
    def descriptor(self, model: Any) -> Any:
        """The order of its codes.

        Raises:
            ModelError: the model's configuration contradicts itself; names both sides.
        """

    @abstractmethod
    def say(self, asked: Asked) -> Steps[Said]:
        """Decode a request to its end."""

    def text_inputs(self, checkpoint: Checkpoint, text: str) -> dict[str, Any]:
        """What `generate` takes for a text.

        Raises:
            InputError: the text is empty, too long, or has characters that it doesn't know.
        """
        raise OptionError(f"{self.title}: its processor makes no inputs from a text")

    def without_text(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The same inputs with the text dropped: what grounding compares with."""
        raise OptionError(f"{self.title}: grounding isn't supported, its text can't be dropped")

    def codec(self, checkpoint: Checkpoint) -> Any:
        """The model that turns its codes into sound; None where the checkpoint has none."""
        return None


class FrameFamily(Family):
    """A family one of whose steps decides a frame."""

    @abstractmethod
    def open(self, prepared: Prepared, packed: bool) -> Opened:
        """A target on what `generate` prepared; its prompt is still to be read."""

    def say(self, asked: Asked) -> Steps[Said]:
        """One session over frames."""
        from mmspec.modalities.speech.request import said_in_frames

        return said_in_frames(self, asked)

    def check_drafter(self, model: Any, drafter: Any) -> None:
        """Raise where a smaller model decides other frames than the target.

        Raises:
            ModelError: names both sides.
        """
        own, others = self.descriptor(model), self.descriptor(drafter)
        if own != others:
            raise ModelError(f"the target writes {own}, the drafter {others}")

    @abstractmethod
    def open_drafter(
        self,
        prepared: Prepared,
        drafter: Any,
        *,
        inputs: Mapping[str, Any] | None = None,
        guided: bool | None = None,
        packed: bool = False,
    ) -> Opened:
        """A smaller model on the same request, its prompt still to be read.

        Args:
            prepared: what the target was opened on.
            drafter: transformers' model.
            inputs: what it encodes where it has an encoder of its own.
            guided: whether it drafts under guidance; None: as the target is decoded.
            packed: whether its layers run packed.

        Raises:
            ModelError: it can't be conditioned on this request.
        """

    @abstractmethod
    def decoder(self, model: Any) -> Any:
        """The module whose layers a step goes through; of a drafter too."""

    def step_size(self, model: Any) -> int:
        """Weights that a step goes through: what a first guess of its cost rests on."""
        return sum(weight.numel() for weight in self.decoder(model).parameters())

    def width(self, model: Any) -> int:
        """Of the final hidden state."""
        return self.decoder(model).config.hidden_size

    def grid(self, steps: Any, frames: Sequence[Frame]) -> tuple[Grid, bool]:
        """(the codes of all frames, whether it ended by its end mark)."""
        return steps.to_grid(frames), steps.has_ended(frames)

    def encoders(self, model: Any) -> list[Any]:
        """Modules whose runs count as encoder runs."""
        return []


def units_of(opened: Opened) -> Frames:
    """What a session is given for a target of frames."""
    return Frames(opened.codebooks, opened.layout, opened.chain)


def stops_of(opened: Opened, prepared: Prepared) -> FrameStops:
    """Where the output of a target of frames ends."""
    return FrameStops(opened.layout, opened.max_rows, prepared.criteria)
