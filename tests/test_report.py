"""What a run says about itself adds up."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch

from mmspec.clock import PHASES, Clock
from mmspec.prefix import Prefix
from mmspec.report.report import Report, RoundStats
from mmspec.streaming import TextPieces
from tests.toys import CPU, DRAFTERS, PROMPT, a_round, decode, drafter_for, ordinary, toy_law

LONG = len(PROMPT) + 20


def report_of(tally: RoundStats, **facts: Any) -> Report:
    known: dict[str, Any] = {
        "target_forwards": 7,
        "drafter_forwards": 3,
        "encoder_runs": 1,
        "drafter_encoder_runs": 0,
        "seconds": dict.fromkeys(PHASES, 0.5),
        "parity": "L0",
        "finish_reason": "stop",
        "conditioning": "own",
    }
    return tally.report(**(known | facts))


@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("gamma", [0, 1, 4])
@pytest.mark.parametrize("stop_at", [None, 3, 8])
def test_emitted_is_accepted_and_recovered_and_bonus(
    kind: str, gamma: int, stop_at: int | None
) -> None:
    law = toy_law(0)
    stops = [] if stop_at is None else [ordinary(law, max_length=LONG).ids[stop_at]]
    run = decode(law, drafter_for(kind, law), gamma, max_length=LONG, stop_tokens=stops)
    report = report_of(run.tally)
    assert report.tokens == len(run.ids) == report.accepted + report.recovered + report.bonus
    assert report.accepted <= report.proposed
    lengths = report.accepted_length_histogram
    assert sum(length * count for length, count in lengths.items()) == report.accepted
    assert sum(lengths.values()) <= report.rounds
    shares = zip(report.acceptance_by_offset, report.proposed_by_offset, strict=True)
    kept = [share * reached for share, reached in shares]
    assert sum(kept) == pytest.approx(report.accepted)
    assert all(a >= b for a, b in itertools.pairwise(kept))
    assert sum(share.proposed for share in report.drafters.values()) == report.proposed
    assert sum(share.accepted for share in report.drafters.values()) == report.accepted
    assert report.mean_acceptance_length == pytest.approx(len(run.ids) / report.rounds)


def test_a_stop_inside_a_block_counts_nothing_behind_it() -> None:
    """A1, A6: a token that wasn't emitted wasn't accepted, and wasn't judged either."""
    tally = RoundStats()
    tally.add(
        a_round("d", proposed=5, accepted=2, emitted=2)
    )  # the second accepted unit was the stop
    assert (tally.tokens, tally.accepted, tally.recovered, tally.bonus) == (2, 2, 0, 0)
    assert report_of(tally).acceptance_by_offset == (1.0, 1.0)
    tally.add(a_round("d", proposed=5, accepted=2, emitted=3))
    assert (tally.recovered, tally.bonus) == (1, 0)
    assert report_of(tally).proposed_by_offset == (2, 2, 1)
    assert report_of(tally).acceptance_by_offset == (1.0, 1.0, 0.0)
    tally.add(a_round("d", proposed=2, accepted=2, emitted=3))
    assert (tally.recovered, tally.bonus) == (1, 1)
    tally.add(a_round("none", proposed=0, accepted=0, emitted=1))
    assert tally.bonus == 2
    assert list(report_of(tally).drafters) == ["d"]


def test_nothing_decoded_divides_by_nothing() -> None:
    report = report_of(RoundStats())
    assert report.mean_acceptance_length == report.draft_acceptance_rate == 0.0
    assert report.acceptance_by_offset == ()


def test_a_report_is_plain_json() -> None:
    law = toy_law(0)
    run = decode(law, drafter_for("hypothesis", law), 4, max_length=LONG)
    data = json.loads(json.dumps(report_of(run.tally).to_dict()))
    for name in (
        "tokens",
        "rounds",
        "target_forwards",
        "proposed",
        "accepted",
        "mean_acceptance_length",
        "acceptance_by_offset",
        "encoder_runs",
        "seconds",
    ):
        assert name in data
    assert data["seconds"]["decode"] == pytest.approx(1.5)
    assert data["seconds"]["total"] == pytest.approx(3.0), "loading isn't part of a request"
    assert list(data["accepted_length_histogram"]) == sorted(data["accepted_length_histogram"])


def test_a_report_is_a_value() -> None:
    report = report_of(RoundStats())
    with pytest.raises(FrozenInstanceError, match="tokens"):
        report.tokens = 3  # type: ignore[misc]


def test_a_phase_inside_a_phase_is_counted_once() -> None:
    clock = Clock(CPU)
    with clock("draft"):
        with clock("encode"):
            time.sleep(0.02)
        assert clock.last >= 0.02
    assert clock.seconds["encode"] >= 0.02
    assert clock.seconds["draft"] < 0.02
    assert clock.last == clock.seconds["draft"]


def test_a_phase_that_raises_is_counted() -> None:
    clock = Clock(CPU)
    with pytest.raises(ZeroDivisionError, match="division"), clock("verify"):
        _ = 1 / 0
    assert clock.seconds["verify"] > 0
    with clock("draft"):
        pass
    assert set(clock.seconds) == set(PHASES)


def test_the_prefix_has_one_truth_on_host_and_device() -> None:
    prefix = Prefix([4, 5], 8, CPU)
    view = prefix.tensor()
    prefix.show_draft([6, 7, 8])
    assert (len(prefix), list(prefix.ids), prefix.emitted) == (2, [4, 5], [])
    assert prefix.tensor().tolist() == [[4, 5]]
    assert prefix.tensor(4).tolist() == [[4, 5, 6, 7]], "a drafted prefix, as a view"
    assert prefix.tensor().data_ptr() == view.data_ptr()
    prefix.extend([6, 9])
    assert (list(prefix.ids), prefix.emitted) == ([4, 5, 6, 9], [6, 9])
    assert prefix.tensor().tolist() == [[4, 5, 6, 9]]
    assert prefix.tensor().dtype == torch.long
    assert prefix.tensor().data_ptr() == view.data_ptr(), "nothing is concatenated"


def test_a_prompt_longer_than_the_capacity_still_fits() -> None:
    assert len(Prefix([1, 2, 3], 1, CPU)) == 3


class Bytes:
    """A tokenizer over bytes: a character may need several tokens."""

    def decode(self, ids: list[int], **options: Any) -> str:
        return bytes(ids).decode("utf-8", errors="replace")


@pytest.mark.parametrize("text", ["plain", "naïve café", "日本語", "🙂 ok", ""])
def test_text_pieces_are_never_taken_back(text: str) -> None:
    pieces = TextPieces(Bytes(), text_end=256)
    said: list[str] = []
    for token in text.encode():
        said += pieces.add(token)
        assert text.startswith("".join(said))
    said += pieces.end()
    assert "".join(said) == text


def test_text_pieces_leave_times_out_and_end_with_what_is_left() -> None:
    pieces = TextPieces(Bytes(), text_end=128)
    said: Callable[[int], list[str]] = lambda token: list(pieces.add(token))  # noqa: E731
    assert said(ord("a")) == ["a"]
    assert said(200) == []
    whole = TextPieces(Bytes(), text_end=256)
    assert list(whole.add("é".encode()[0])) == []
    assert list(whole.end()) == ["\N{REPLACEMENT CHARACTER}"]
    assert list(whole.end()) == []
