"""`Viewer`: a model that looks at images, loaded once and used for many of them."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack

from mmspec.drafting import policy_for
from mmspec.engine import BlockCosts, Steps, run_alone, stepwise
from mmspec.engine.processor_copies import with_copies
from mmspec.errors import ModelError, OptionError
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.draft import ModelDraft
from mmspec.modalities.base.drafts import HypothesisDraft
from mmspec.modalities.base.speculative_decoder import Draft, SpeculativeDecoder
from mmspec.modalities.base.switching import SwitchDraft
from mmspec.modalities.media.documents import Page, pages
from mmspec.modalities.media.images import open_images
from mmspec.modalities.vlm.looking import Look, decode_look, described, prepare_look
from mmspec.modalities.vlm.request import Task, VisionOptions, VisionRequest
from mmspec.modalities.vlm.result import Description
from mmspec.report.grounding import threshold_of
from mmspec.streaming import Collected, TextPieces
from mmspec.tasks.base import Loaded
from mmspec.tasks.vlm.ocr import read_page, reading_of

if TYPE_CHECKING:
    from PIL.Image import Image

    from mmspec.modalities.media.documents import BadPage
    from mmspec.modalities.media.images import ImageSource

ASKED_NOTHING = VisionRequest()
"""A caption, greedy, in the words that the model was trained with."""

TASKS: tuple[Task, ...] = ("caption", "read", "answer")

TESSERACT: Literal["tesseract"] = "tesseract"
"""Instead of a reading: let that program read first, if it is installed."""


class Viewer(Loaded[Checkpoint, VisionRequest, Description]):
    """A model that looks: a target, a kind of drafter, and what was learned about their costs.

    Made by `mmspec.load`. Use it with `with`, or `close()` it.
    """

    task: ClassVar[str] = "vlm"

    def __init__(self, target: Checkpoint, draft: Draft, gamma: int | str) -> None:
        if target.family.hears:
            raise ModelError(
                f"target: {target.model.config.model_type} listens to a conversation: call "
                "mmspec.generate(model, inputs) with what its processor makes"
            )
        costs = BlockCosts()
        super().__init__(SpeculativeDecoder(target, draft, policy_for(gamma, costs), costs))

    @property
    def drafter_model(self) -> Any:
        """The drafting model, None where the drafter is no model of its own."""
        return self.draft.drafter.model if isinstance(self.draft, ModelDraft) else None

    def caption(
        self, image: ImageSource | Sequence[ImageSource], **options: Unpack[VisionOptions]
    ) -> Description:
        """Describe an image.

        Args:
            image: whatever `open_image` reads, or several where the model takes several.
            **options: see `describe`.

        Raises:
            MMSpecError: an image or an option that can't be used, in one line.
        """
        return self.describe(image, asking(options, task="caption"))

    def read(
        self,
        image: ImageSource | Sequence[ImageSource],
        *,
        reading: str | Sequence[int] | None = None,
        **options: Unpack[VisionOptions],
    ) -> Description:
        """Read what is written on an image.

        Args:
            image: whatever `open_image` reads; for documents see `read_pages`.
            reading: what another reader found, as text or as ids, for the hypothesis drafter;
                "tesseract" lets that program read first. None: Tesseract, where a reading is
                needed and it is installed.
            **options: see `describe`.

        Raises:
            MMSpecError: an image or an option that can't be used, in one line.
        """
        return self.describe(image, asking(options, task="read", hypothesis=reading))

    def answer(
        self,
        image: ImageSource | Sequence[ImageSource],
        question: str,
        **options: Unpack[VisionOptions],
    ) -> Description:
        """Answer a question about an image.

        Args:
            image: whatever `open_image` reads, or several where the model takes several.
            question: what the model is asked.
            **options: see `describe`.

        Raises:
            MMSpecError: an image or an option that can't be used, in one line.
        """
        return self.describe(image, asking(options, task="answer", prompt=question))

    def describe(
        self,
        image: ImageSource | Sequence[ImageSource],
        request: VisionRequest = ASKED_NOTHING,
        **options: Unpack[VisionOptions],
    ) -> Description:
        """What the other methods do, with the task by name.

        Args:
            image: whatever `open_image` reads, or several where the model takes several.
            request: what is wanted, where it is said once for many images.
            **options: the attributes of `VisionRequest`: `task` ("caption", "read" or "answer"),
                `prompt` (what the model is told; None: what it was trained with), `hypothesis`
                (what is expected, as text or as ids), `max_new_tokens`, `temperature` (0 takes the
                likeliest token), `seed` (repeatable sampling, whatever drafts), `grounding` (find
                out which tokens rest on the image: True, or a threshold in nats), `streamer`,
                `generation_config`, `logits_processor`, `stopping_criteria`; and further options
                of transformers' `generate`.

        Raises:
            MMSpecError: an image or an option that can't be used, in one line.
        """
        return run_alone(self.run_request(self._pair, image, request.having(options)))

    def caption_batch(
        self, images: Iterable[ImageSource], *, batch: int = 8, **options: Any
    ) -> list[Description]:
        """Describe several images side by side; each is what `caption` says of it.

        Args:
            images: read when their turn comes.
            batch: how many are decoded at a time.
            **options: as `caption` takes them, for all alike. A seed is the same for each.

        Raises:
            MMSpecError: the first image that failed, once the others are done.
        """
        return self._all(({"image": image, **options} for image in images), batch)

    def read_batch(
        self,
        images: Iterable[ImageSource],
        *,
        readings: Iterable[str | Sequence[int] | None] | None = None,
        batch: int = 8,
        **options: Any,
    ) -> list[Description]:
        """Read several images side by side; each is what `read` finds on it.

        Args:
            images: read when their turn comes.
            readings: a reading for each, as `read` takes it.
            batch: how many are decoded at a time.
            **options: as `read` takes them, for all alike.

        Raises:
            MMSpecError: the first image that failed, once the others are done; more readings than
                images, or fewer.
        """
        asked = {"task": "read", **options}
        if readings is None:
            return self._all(({"image": image, **asked} for image in images), batch)
        pairs = paired(images, readings)
        found = ({"image": image, "hypothesis": text, **asked} for image, text in pairs)
        return self._all(found, batch)

    def read_pages(
        self,
        source: ImageSource,
        *,
        reading: str | None = None,
        dpi: float = 200,
        password: str | None = None,
        **options: Any,
    ) -> Iterator[Description | BadPage]:
        """Read a document page by page: a PDF, a TIFF of several pages, or an image.

        Args:
            source: a path or the bytes of a file, or an image.
            reading: "pdf" (a page's text layer), "tesseract" or "none"; None: the text layer
                where there is one, else as `read` does it.
            dpi: pixels per inch of a PDF's paper.
            password: of an encrypted PDF.
            **options: as `read` takes them.

        Yields:
            A description per page, as each is done; a page that can't be read is a `BadPage`.

        Raises:
            MMSpecError: no document, or an option that can't be used.
        """
        for page in pages(source, dpi=dpi, password=password):
            if not isinstance(page, Page):
                yield page
                continue
            expected = reading_of(page, reading)
            said = self.read(page.image, reading=expected, **with_copies(options))
            yield replace(said, page=page.number)

    def stream(
        self, image: ImageSource | Sequence[ImageSource], **options: Unpack[VisionOptions]
    ) -> Iterator[str]:
        """Look, yielding text as it is committed; nothing is ever taken back.

        Takes the arguments of `describe`, but for the streamer.
        """
        collected = Collected()
        pieces = TextPieces(self.checkpoint.tokenizer, self.checkpoint.steps.vocab_size)
        request = ASKED_NOTHING.having({**options, "streamer": collected})
        steps = self.run_request(self._pair, image, request)
        for _ in stepwise(steps):
            for token in collected.take():
                yield from pieces.add(token)
        for token in collected.take():
            yield from pieces.add(token)
        yield from pieces.end()

    def asked(
        self, image: Any, request: VisionRequest = ASKED_NOTHING, **options: Any
    ) -> tuple[Any, VisionRequest]:
        """The arguments of `describe` as (image, request)."""
        return image, request.having(options)

    def check_among_others(self, request: VisionRequest) -> None:
        """Raise where images side by side would mix in one streamer.

        Raises:
            OptionError: they would.
        """
        if request.streamer is not None:
            raise OptionError("streamer: images side by side have none, use describe")

    def prepare(
        self, pair: SpeculativeDecoder[Checkpoint], given: Any, request: VisionRequest
    ) -> Look:
        """Images with an instruction, as the model reads them."""
        if request.task not in TASKS:
            raise OptionError(f"task: found {request.task!r}, expected one of {', '.join(TASKS)}")
        if request.task == "answer" and request.prompt is None:
            raise OptionError("answer: found no question, expected one")
        warmth = request.temperature
        if not isinstance(warmth, int | float) or not 0 <= warmth < math.inf:
            raise OptionError(f"temperature: found {warmth!r}, expected a number, 0 or more")
        threshold_of(request.grounding)
        images = open_images(given if isinstance(given, list | tuple) else [given])
        request, reading_s, note = self._with_expected(images, request)
        return prepare_look(pair, images, request, reading_s, note)

    def decode(self, prepared: Look) -> Steps[list[int]]:
        """The ids of what is said of them."""
        return decode_look(prepared)

    def result(
        self, given: Any, request: VisionRequest, prepared: Look, decoded: list[int]
    ) -> Description:
        """The text, with grounding where it was asked for."""
        return described(prepared, decoded)

    def _with_expected(
        self, images: Sequence[Image], request: VisionRequest
    ) -> tuple[VisionRequest, float, str | None]:
        """The request with what a drafter is told to expect; seconds of reading; what to note.

        Raises:
            OptionError: nothing was given and nobody could find out; Tesseract isn't installed.
            DraftError: Tesseract failed.
        """
        task, given = request.task, request.hypothesis
        alone = isinstance(self.draft, HypothesisDraft)
        needed = any(isinstance(draft, HypothesisDraft) for draft in drafts_of(self.draft))
        if given is None and alone and task != "read":
            raise OptionError(
                f"draft 'hypothesis' needs hypothesis= (a text or ids) to {task}; only what is "
                "read can be read by another first"
            )
        if given != TESSERACT and not (given is None and needed and task == "read"):
            return request, 0.0, None
        if len(images) != 1:
            raise OptionError(f"{len(images)} images: Tesseract reads one, give reading= as a text")
        start = time.perf_counter()
        page = Page(1, images[0])
        reading = read_page(page, TESSERACT if given == TESSERACT else "auto")
        note = f"nothing was drafted: {reading.reason}" if reading.reason else None
        seconds = time.perf_counter() - start
        return replace(request, hypothesis=reading.text), seconds, note


def asking(options: Mapping[str, Any], **said: Any) -> VisionRequest:
    """A request with what a method's name and arguments say of it.

    Raises:
        OptionError: an option says it again.
    """
    for name in said:
        if name in options:
            raise OptionError(f"{name}: this method says it already, leave it out or use describe")
    return ASKED_NOTHING.having({**options, **said})


def paired(images: Iterable[Any], readings: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Each image with its reading.

    Raises:
        OptionError: when one of the two ends before the other.
    """
    nothing = object()
    for number, pair in enumerate(zip_longest(images, readings, fillvalue=nothing)):
        if pair[0] is nothing or pair[1] is nothing:
            fewer, more = ("readings", "images")[:: 1 if pair[1] is nothing else -1]
            raise OptionError(f"readings: found {number} {fewer}, but more {more}, expected pairs")
        yield pair


def drafts_of(draft: Draft) -> tuple[Draft, ...]:
    """The kinds of drafter that take turns, or the only one."""
    return draft.drafts if isinstance(draft, SwitchDraft) else (draft,)
