"""What a model said of an image: a caption, what it read, an answer."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mmspec.report.grounding import Grounding, share_by_class
from mmspec.report.report import Report
from mmspec.report.trace import Origin, Round


@dataclass(frozen=True, slots=True)
class Description:
    """What was said.

    Attributes:
        text: without special tokens and the space around it.
        ids: token ids as transformers' `generate` returns them behind the prompt, the end included.
        task: "caption", "read" or "answer".
        prompt: what the caller told the model; None where the model's own instruction was used.
        sizes: width and height of each image, as it was opened.
        prompt_tokens: positions of the prompt, those of images included.
        visual_tokens: positions that stand for the images.
        report: how it was obtained.
        origins: the same for each id: drafted and accepted, or the target's own.
        trace: every round of the run; an origin names its round.
        grounding: what each id owes to the images; None where that wasn't asked for.
        page: its number in a document, counted from 1; None for an image.
    """

    text: str
    ids: tuple[int, ...]
    task: str
    prompt: str | None
    sizes: tuple[tuple[int, int], ...]
    prompt_tokens: int
    visual_tokens: int
    report: Report
    origins: tuple[Origin, ...]
    trace: tuple[Round, ...]
    grounding: Grounding | None = None
    page: int | None = None

    @property
    def finish_reason(self) -> str:
        """Why it ended: "stop" or "length"."""
        return self.report.finish_reason

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        data: dict[str, Any] = {
            "text": self.text,
            "ids": list(self.ids),
            "task": self.task,
            "prompt": self.prompt,
            "sizes": [list(size) for size in self.sizes],
            "prompt_tokens": self.prompt_tokens,
            "visual_tokens": self.visual_tokens,
            "finish_reason": self.finish_reason,
        }
        if self.page is not None:
            data["page"] = self.page
        if self.grounding is not None:
            data["grounding"] = self.grounding.to_dict()
        return {**data, "report": self.report.to_dict()}


def with_grounding(said: Description, grounding: Grounding) -> Description:
    """The same with classes, and acceptance by class in the report."""
    shares = share_by_class(grounding, said.origins)
    return replace(said, grounding=grounding, report=replace(said.report, by_class=shares))
