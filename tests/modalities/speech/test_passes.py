"""Target passes in an account are passes that ran: counted at the modules themselves.

For MusicGen, Melody and CSM; the other families' own tests count theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from mmspec.modalities.speech import musicgen, musicgen_melody
from mmspec.modalities.speech.draft import LookupDraft

from . import bed_csm as csm
from . import bed_musicgen as music
from . import csm_runs
from .delayed_runs import Telling, run

KINDS: dict[str, tuple[Any, Callable[[], Any]]] = {
    "musicgen": (musicgen.FAMILY, music.tiny),
    "melody": (musicgen_melody.FAMILY, music.tiny_melody),
}
NEW = 15


@contextmanager
def counting(*modules: Any) -> Iterator[list[int]]:
    """How often each of some modules runs while this is open."""
    runs = [0] * len(modules)

    def count(index: int) -> Callable[..., None]:
        return lambda *_: runs.__setitem__(index, runs[index] + 1)

    hooks = [module.register_forward_hook(count(i)) for i, module in enumerate(modules)]
    try:
        yield runs
    finally:
        for hook in hooks:
            hook.remove()


@pytest.mark.parametrize("part", ["decoder", "head"])  # hooks in a decoder turn lean passes off
@pytest.mark.parametrize("scale", [None, 3.0])
@pytest.mark.parametrize("kind", KINDS)
def test_every_pass_over_rows_is_counted(kind: str, scale: float | None, part: str) -> None:
    family, make = KINDS[kind]
    model, asked = make(), dict[str, Any](max_new_tokens=NEW, do_sample=False, guidance_scale=scale)
    language_model = model.decoder
    module = language_model.model.decoder if part == "decoder" else language_model.lm_heads[0]
    with counting(module) as runs:
        plain = run(family, model, music.text(), **asked)
        assert runs == [plain.forwards] == [NEW]
        for draft in (Telling(plain.rows), Telling(plain.rows, music.late), LookupDraft()):
            for gamma in (1, 4, 60):
                runs[0] = 0
                found = run(family, model, music.text(), draft, gamma, **asked)
                # The prompt, then blocks; a first round without a draft needs no pass of its own.
                blocks = sum(done.block > 0 for done in found.stats.tally.trace)
                assert runs == [found.forwards] == [1 + blocks]
                assert found.rows == plain.rows


@pytest.mark.parametrize("gamma", [1, 3, 60])
def test_every_pass_of_both_decoders_is_counted(gamma: int) -> None:
    model, given = csm.tiny(), csm.text()
    with counting(model.backbone_model, model.depth_decoder.model) as runs:
        plain = csm_runs.run(model, given)
        assert runs == [plain.forwards, plain.depth_passes]
        assert plain.forwards == csm_runs.FRAMES
        for draft in (csm_runs.Telling(plain.frames), csm_runs.Telling(plain.frames, spoil)):
            runs[:] = 0, 0
            found = csm_runs.run(model, given, draft, gamma)
            assert found.frames == plain.frames
            assert runs == [found.forwards, found.depth_passes]
            assert found.forwards <= plain.forwards


def spoil(row: int, frame: tuple[int, ...]) -> tuple[int, ...]:
    """Every third frame has a wrong code in its middle."""
    return frame if row % 3 else (frame[0], (frame[1] + 1) % csm.CODES, *frame[2:])
