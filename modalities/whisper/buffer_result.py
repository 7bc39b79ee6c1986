"""What a decode of a stream's buffer said, in seconds of the stream."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from mmspec.factorizations import WhisperSteps
from mmspec.modalities.whisper.result import Transcription


@dataclass(frozen=True, slots=True)
class StreamSegment:
    """A segment as it was decoded, in seconds of the stream; a time is None where none was said."""

    text_ids: tuple[int, ...]
    start_s: float | None
    end_s: float | None

    def goes_beyond(self, time_s: float) -> bool:
        """Whether it is said, as far as is known, behind this time."""
        return self.end_s is not None and self.end_s > time_s


def said(steps: WhisperSteps, heard: Transcription, start_s: float) -> Iterator[StreamSegment]:
    """The segments of a buffer that starts at `start_s`."""
    several = heard.report.encoder_runs > 1
    never = steps.reserved | steps.stop_tokens
    for segment in heard.segments:
        times = [steps.seconds(token) for token in segment.ids if steps.is_timestamp(token)]
        text = [u for u in segment.ids if not steps.is_timestamp(u) and u not in never]
        # Times count from where the encoder started; behind the first run that is told by segments.
        offset_s = start_s + (segment.start_s - times[0] if several and times else 0.0)
        moments = [offset_s + time for time in times] + [None, None]
        if text:
            yield StreamSegment(tuple(text), moments[0], moments[1])
