"""The faults of caches, Whisper's rules and long recordings once more, in ragged batches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mmspec
from mmspec.errors import InputError
from mmspec.modalities.whisper.window import WhisperSpeculativeDecoder
from mmspec.state import DecoderState
from tests.known_faults.support import same_ids, with_three
from tests.modalities.drafting import drafter_options
from tests.modalities.tiny import FRAMES, features, saved, shared, speech, tiny

RATE = 16_000
SECONDS = (2.3, 0.4, 0.99, 1.0, 1.01, 0.1)
"""Of recordings; a tiny model's window is one second."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("ragged")
    return {
        "target": saved(root / "target", tiny(5)),
        "same-weights": saved(root / "same", tiny(5)),
        "other-seed": saved(root / "other", tiny(11)),
    }


def recordings() -> list[Any]:
    return [speech(seed, seconds) for seed, seconds in enumerate(SECONDS, 3)]


def loaded(folders: dict[str, Path], draft: str) -> mmspec.Transcriber:
    name = str(folders[draft]) if draft in folders else draft
    return mmspec.load(str(folders["target"]), name, gamma=4)


@pytest.mark.parametrize("draft", ["same-weights", "other-seed", "ngram"])
@pytest.mark.parametrize("shown", [False, True])
def test_Z1_Z1b_D4_long_and_short_ones_with_times_are_their_single_runs(
    folders: dict[str, Path], draft: str, shown: bool
) -> None:
    asked: dict[str, Any] = {"sampling_rate": RATE, "language": "en", "timestamps": True}
    asked["condition_on_prev_tokens"] = shown
    with loaded(folders, "none") as plain, loaded(folders, draft) as drafted:
        want = [plain.transcribe(audio, **asked).ids for audio in recordings()]
        got = drafted.transcribe_batch(recordings(), batch=4, **asked)
    assert [said.ids for said in got] == want
    assert len({len(ids) for ids in want}) > 2, "ragged, or this shows nothing"
    assert not [fault for said in got for fault in said.report.faults]


@with_three
def test_Z1b_D5_a_batch_of_long_features_comes_to_an_end(drafter: str) -> None:
    """transformers takes rows out of such a batch as they end; mmspec decodes what is left."""
    model, lengths = shared(5), (330, 150)
    batch = torch.cat([features(seed, frames=max(lengths)) for seed in (5, 6)])
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        batch[row, :, length:] = 0
        mask[row, :length] = 1
    asked: dict[str, Any] = {"return_timestamps": True, "language": "en", "attention_mask": mask}
    want = model.generate(batch, **asked)
    chosen = drafter_options(drafter, model, [])
    got = mmspec.generate(model, batch, gamma=4, **chosen, **asked)
    same_ids(got.sequences, want)
    assert len(got.reports) > max(lengths) // FRAMES


def test_D4_what_a_row_rejected_is_never_read_by_any(monkeypatch: pytest.MonkeyPatch) -> None:
    """A zero is a key like any other; here it would be NaN."""
    real = DecoderState.rollback

    def poisoning(self: DecoderState, to: int) -> None:
        real(self, to)
        self.poison_unused()

    batch = torch.cat([features(seed) for seed in (5, 6, 12)])
    model = shared(5)
    want = model.generate(batch, language="en")
    monkeypatch.setattr(DecoderState, "rollback", poisoning)
    got = mmspec.generate(model, batch, shared(11), gamma=4, language="en")
    same_ids(got.sequences, want)
    assert sum(report.proposed - report.accepted for report in got.reports) > 0


def test_G9_G10_G12_bad_and_silent_ones_beside_good_ones(folders: dict[str, Path]) -> None:
    good = speech(7, 0.9)
    broken, silent = good.copy(), 1e-4 * np.random.default_rng(0).standard_normal(8000)
    broken[100] = np.nan
    requests: list[dict[str, Any]] = [
        {"audio": good, "sampling_rate": RATE},
        {"audio": broken, "sampling_rate": RATE},
        {"audio": good},  # no rate
        {"audio": silent, "sampling_rate": RATE},
        {"audio": np.zeros(0), "sampling_rate": RATE},
    ]
    with loaded(folders, "ngram") as recogniser:
        outcomes = dict(recogniser.outcomes(requests, batch=5))
        for number in (0, 3):
            said: Any = outcomes[number]
            assert said.ids == recogniser.transcribe(**requests[number]).ids
    for number in (1, 2, 4):
        assert isinstance(outcomes[number], InputError | mmspec.MMSpecError)
        assert "\n" not in str(outcomes[number])


def test_C8_what_a_batch_taught_is_kept_apart_and_changes_no_ids(folders: dict[str, Path]) -> None:
    with loaded(folders, "ngram") as recogniser:
        pair: WhisperSpeculativeDecoder = recogniser._pair
        first = recogniser.transcribe_batch(recordings(), batch=3, sampling_rate=RATE)
        costs = pair.for_batch(3).costs
        again = recogniser.transcribe_batch(recordings(), batch=3, sampling_rate=RATE)
        assert pair.for_batch(3).costs is costs
        assert pair.costs is not costs
        assert [said.ids for said in again] == [said.ids for said in first]
        assert [said.report.rounds for said in again] == [said.report.rounds for said in first]
