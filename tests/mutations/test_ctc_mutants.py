"""Faults of drafts from the sound, planted in production code and caught."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import mmspec
from mmspec.errors import ModelError
from mmspec.modalities.whisper import ctc_draft, ctc_head, decode
from mmspec.proposals import CtcDrafter, ForwardVariables
from tests.modalities.ctc import KnowingHead, saved_head
from tests.modalities.tiny import shared, speech, tiny, tiny_processor
from tests.proposals.test_ctc import (
    drafted_behind,
    drafter_on,
    empty_prefix,
    ids,
    random_frames,
    spoken,
)

from .catching import Check, Mutant, Patch, expect
from .catching import (
    test_every_check_catches_something as test_every_check_catches_something,
)
from .catching import (
    test_the_mutant_is_caught as test_the_mutant_is_caught,
)
from .catching import (
    test_the_real_code_passes as test_the_real_code_passes,
)


def a_repeated_symbol_needs_its_blank() -> None:
    log_probs, begun = random_frames(4, 3), np.zeros(3)
    for path in itertools.product(range(3), repeat=4):
        text = [symbol for symbol, _ in itertools.groupby(path) if symbol]
        if text[:1] == [1]:
            at = text[1] if len(text) > 1 else 0
            begun[at] += np.exp(sum(log_probs[t, u] for t, u in enumerate(path)))
    heard = ForwardVariables(log_probs)
    heard.extend([1])
    difference = np.abs(heard.following() - begun / begun.sum()).max()
    expect(bool(difference < 1e-12), "a symbol follows itself without a blank")


def what_was_rejected_is_forgotten() -> None:
    drafter, prefix = drafter_on(spoken("the cat sat on the mat."), least=0.01), empty_prefix()
    drafted_behind(drafter, prefix, [])
    after = drafted_behind(drafter, prefix, ids(" The", ","))
    expect(after[:1] == ids(" cat"), "a draft goes on behind what the target has rejected")


def a_window_is_heard_by_its_own_frames() -> None:
    with tempfile.TemporaryDirectory() as folder:
        head = saved_head(Path(folder), shared(1))
        recogniser: Any = mmspec.load(
            shared(1), f"ctc:{head}", gamma=2, processor=tiny_processor(), device="cpu"
        )
    knowing, made = KnowingHead("a"), list[Any]()
    recogniser.draft._head = knowing
    encoder = recogniser.model.get_encoder()
    hook = encoder.register_forward_hook(lambda module, given, output: made.append(output))
    try:
        recogniser.transcribe(speech(seconds=2.57, seed=3), sampling_rate=16_000)
    finally:
        hook.remove()
    for shown, output in zip(knowing.shown, made, strict=True):
        states = torch.cat((output.hidden_states[1], output.last_hidden_state), -1)
        same = torch.equal(shown, states[0, : len(shown)])
        expect(same, "a window is heard by another one's frames")


def another_targets_head_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:
        head = saved_head(Path(folder), tiny(2))
        try:
            mmspec.load(shared(1), f"ctc:{head}", processor=tiny_processor(), device="cpu")
        except ModelError:
            return
    expect(False, "another target's head is taken")


CHECKS: tuple[Check, ...] = (
    a_repeated_symbol_needs_its_blank,
    what_was_rejected_is_forgotten,
    a_window_is_heard_by_its_own_frames,
    another_targets_head_is_refused,
)


def repeats_freely(patch: Patch) -> None:
    trimmed = ForwardVariables._trimmed

    def merged(self: Any, start: int, b: Any, n: Any) -> Any:
        made = trimmed(self, start, b, n)
        return made._replace(b=made.enter)

    patch.setattr(ForwardVariables, "_trimmed", merged)


def keeps_the_draft(patch: Patch) -> None:
    """The condition is left out: the text is what was drafted, whatever became of it."""

    def nothing(self: Any, prefix: Any) -> None:
        self._read = len(prefix)

    patch.setattr(CtcDrafter, "_condition", nothing)


def listens_to_the_window_before(patch: Patch) -> None:
    real, before = decode.Window, list[Any]()

    def late(*given: Any, **more: Any) -> Any:
        target, prompt, states, *rest = given
        before.append(states)
        return real(target, prompt, before[-2:][0], *rest, **more)

    patch.setattr(decode, "Window", late)


def takes_any_head(patch: Patch) -> None:
    loaded = ctc_head.load

    def unchecked(path: Path) -> Any:
        head, config = loaded(path)
        encoder = shared(1).get_encoder()
        return head, {**config, "encoder": ctc_head.encoder_digest(encoder)}

    patch.setattr(ctc_draft.ctc_head, "load", unchecked)


MUTANTS: tuple[Mutant, ...] = (
    (repeats_freely, a_repeated_symbol_needs_its_blank, "without a blank"),
    (keeps_the_draft, what_was_rejected_is_forgotten, "has rejected"),
    (listens_to_the_window_before, a_window_is_heard_by_its_own_frames, "another one's"),
    (takes_any_head, another_targets_head_is_refused, "another target's"),
)
