"""What a family of models that say codes does its own way."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from torch import Tensor

from mmspec.engine import Steps
from mmspec.engine.frames import Layout
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.factorizations.codes import Codebook, Grid
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.modalities.speech.contract import CodesRequest, CodesResult, PreparedTarget
from mmspec.modalities.speech.grounding import frame_log_probs
from mmspec.modalities.speech.preparation import prepare
from mmspec.modalities.speech.request import said_in_frames
from mmspec.prefix import Frame

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint


class Family(ABC):
    """A family of models that say codes.

    Attributes:
        title: its name for messages and reports.
        loads: transformers' class for its checkpoints.
        drafters: transformers' classes of what may draft for it, by model type.
        filled: what of its output is not autoregressive, so that nothing of it is drafted.
        draft_kind: how another model of the same codes drafts for one; None: one frame at a time.
    """

    title: ClassVar[str]
    loads: ClassVar[str]
    drafters: ClassVar[Mapping[str, str]]
    filled: ClassVar[str] = ""
    draft_kind: ClassVar[Callable[[Any, Any, str], Draft] | None] = None

    @abstractmethod
    def descriptor(self, model: Any) -> Any:
        """The order of its codes.

        Raises:
            ModelError: the model's configuration contradicts itself; names both sides.
        """

    @abstractmethod
    def say(self, asked: CodesRequest) -> Steps[CodesResult]:
        """Decode a request to its end."""

    def in_words(self, steps: Any) -> str:
        """An order of codes, for those who compare two."""
        return str(steps)

    def check_drafter(self, model: Any, drafter: Any) -> None:
        """Raise where another model decides other codes than the target.

        Raises:
            ModelError: names both sides.
        """
        own, others = self.descriptor(model), self.descriptor(drafter)
        if own != others:
            ours, theirs = self.in_words(own), self.in_words(others)
            raise ModelError(f"the target writes {ours}, the drafter {theirs}")

    def log_probs(self, asked: CodesRequest, said: CodesResult, *, text: bool) -> list[float]:
        """The log-probability of each step of an output behind those before it.

        Args:
            asked: how it came about.
            said: the output.
            text: with the text, else with the text dropped.

        Raises:
            OptionError: this family's text can't be dropped.
        """
        raise OptionError(f"{self.title}: grounding isn't supported, its text can't be dropped")

    def new_tokens(self, steps: Any, frames: int) -> int:
        """How many steps `generate` has to be allowed for this many frames."""
        return steps.steps(frames)

    def books(self, steps: Any) -> Sequence[Codebook]:
        """The codebooks of its grid."""
        return steps.codebooks

    def signals(self, model: Any) -> int:
        """How many signals its codec decodes one by one: two for the sides of a stereo model."""
        return 1

    def text_inputs(self, checkpoint: SpeechCheckpoint, text: str) -> dict[str, Any]:
        """What `generate` takes for a text.

        Raises:
            InputError: the text is empty, too long, or has characters that it doesn't know.
        """
        raise OptionError(f"{self.title}: its processor makes no inputs from a text")

    def load_processor(self, source: str, **options: Any) -> Any:
        """What makes its inputs, from a directory or a hub id."""
        from transformers import AutoProcessor

        return AutoProcessor.from_pretrained(source, **options)

    def code_embeddings(self, model: Any) -> Sequence[Tensor]:
        """The target's own table `[ids, D]` of each codebook: what says which codes are alike.

        One table where a step decides one token.
        """
        raise OptionError(f"{self.title}: which of its codes are alike isn't known")

    def codec(self, checkpoint: SpeechCheckpoint) -> Any:
        """The model that turns its codes into sound; None where the checkpoint has none."""
        return None


class FrameFamily(Family):
    """A family one of whose steps decides a frame."""

    def prepare(self, model: Any, inputs: Mapping[str, Any], **options: Any) -> Prepared:
        """What `model.generate(**inputs, **options)` would decode; nothing is decoded.

        Raises:
            ValueError: whatever `generate` refuses.
        """
        return prepare(model, inputs, **options)

    @abstractmethod
    def open(self, prepared: Prepared, *, packed: bool) -> PreparedTarget:
        """A target on what `generate` prepared; its prompt is still to be read."""

    def say(self, asked: CodesRequest) -> Steps[CodesResult]:
        """One session over frames."""
        return said_in_frames(self, asked)

    @abstractmethod
    def open_drafter(
        self,
        prepared: Prepared,
        drafter: Any,
        *,
        inputs: Mapping[str, Any] | None = None,
        guided: bool | None = None,
        packed: bool = False,
    ) -> PreparedTarget:
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

    def forcing(self, prepared: Prepared, opened: PreparedTarget) -> Layout:
        """What is forced in the ids that processors and criteria are shown: the target's marks."""
        return opened.layout

    def library_ids(self, frames: Sequence[Frame]) -> Tensor:
        """What the library's own loop returns for these frames, the prompt's included.

        Raises:
            OptionError: its loop returns more than ids.
        """
        raise OptionError(f"{self.title}: its generate keeps more than ids, use mmspec.load")

    def without_text(self, prepared: Prepared) -> Prepared:
        """The same request with the text dropped, as guidance drops it.

        Raises:
            OptionError: it can't be.
        """
        raise OptionError(f"{self.title}: grounding isn't supported, its text can't be dropped")

    def log_probs(self, asked: CodesRequest, said: CodesResult, *, text: bool) -> list[float]:
        """Of all codes that a step decided, in one pass over the output."""
        return frame_log_probs(self, asked, said, text=text)

    def grid(self, steps: Any, frames: Sequence[Frame]) -> tuple[Grid, bool]:
        """(the codes of all frames, whether it ended by its end mark)."""
        return steps.to_grid(frames), steps.has_ended(frames)

    def encoders(self, model: Any) -> list[Any]:
        """Modules whose runs count as encoder runs."""
        return []


def check_words(text: str) -> None:
    """Raise where there is nothing to say.

    Raises:
        InputError: a text without words.
    """
    if not text.strip():
        raise InputError("the text is empty: nothing to say")
