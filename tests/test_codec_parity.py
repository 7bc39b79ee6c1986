"""Codes on disk, and two of them compared: where they part, and whether a tie explains it."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from mmspec.compare.code_parity import TIE, Verdict, compare_codes, when_decided
from mmspec.errors import InputError
from mmspec.factorizations import (
    Codebook,
    CodebookMajorStreams,
    CodeSteps,
    DelayedFrames,
    DepthFrames,
    FirstStream,
    TimeMajorFrames,
)
from mmspec.output.formats import dump_json
from mmspec.tasks.tts.code_files import read_codes, sidecar, write_codes, write_sound
from tests.test_generation import one_line

BOOK = Codebook(18, 16, start=16, end=17, pad=16)
ORDERS: dict[str, CodeSteps] = {
    "time-major": TimeMajorFrames.even(codebooks=3, codes=16),
    "codebook-major": CodebookMajorStreams((BOOK,) * 3),
    "delayed": DelayedFrames((BOOK,) * 3, delays=(0, 1, 2)),
    "depth": DepthFrames((BOOK,) * 3),
    "first stream": FirstStream((BOOK,) * 3),
}
grids = st.integers(0, 6).flatmap(
    lambda frames: st.lists(
        st.lists(st.integers(0, 3), min_size=3, max_size=3), min_size=frames, max_size=frames
    )
)


def codes(frames: int = 6, codebooks: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 16, (frames, codebooks))


def changed(grid: np.ndarray, *cells: tuple[int, int]) -> np.ndarray:
    """The same with other codes in these cells."""
    other = grid.copy()
    for cell in cells:
        other[cell] = (other[cell] + 1) % 16
    return other


def _bent(archive: bytes, offset: int) -> bytes:
    """A zip file with another byte in its directory's first entry: a version, a flag, a method."""
    place = archive.index(b"PK\x01\x02") + offset
    return archive[:place] + bytes([archive[place] ^ 0x41]) + archive[place + 1 :]


class TestComparing:
    def test_equal(self) -> None:
        found = compare_codes(codes(), codes().tolist())
        assert found.equal
        assert found.verdict is Verdict.EQUAL
        assert (found.difference, found.parted, found.equal_frames) == (None, (), 6)
        assert found.matches == (1.0, 1.0, 1.0)

    def test_no_frames_are_equal_to_none(self) -> None:
        assert compare_codes(np.empty((0, 3), int), np.empty((0, 3), int)).equal
        assert compare_codes(np.empty((0, 3), int), np.empty((0, 3), int)).matches == (1.0,) * 3

    @given(grids, grids)
    def test_it_is_what_a_loop_finds(self, first: list[list[int]], second: list[list[int]]) -> None:
        found = compare_codes(np.reshape(first, (-1, 3)), np.reshape(second, (-1, 3)))
        assert found.equal == (first == second)
        both = list(zip(first, second, strict=False))
        wrong = [
            (frame, codebook)
            for frame, (one, other) in enumerate(both)
            for codebook in range(3)
            if one[codebook] != other[codebook]
        ]
        place = found.difference
        assert (place and (place.frame, place.codebook)) == (wrong[0] if wrong else None)
        assert found.equal_frames == (wrong[0][0] if wrong else len(both))
        for codebook in range(3):
            same = sum(one[codebook] == other[codebook] for one, other in both)
            assert found.equal_codes[codebook] == same
            longer = max(len(first), len(second))
            assert found.matches[codebook] == (same / longer if longer else 1.0)

    def test_the_first_difference_has_a_place_and_both_codes(self) -> None:
        grid = codes()
        found = compare_codes(grid, changed(grid, (4, 0), (2, 1), (2, 2)))
        assert found.difference is not None
        assert (found.difference.frame, found.difference.codebook) == (2, 1)
        assert found.difference.first == grid[2, 1]
        assert found.difference.second == (grid[2, 1] + 1) % 16
        assert found.equal_codes == (5, 5, 5)
        assert found.equal_frames == 2

    def test_one_that_goes_on_differs(self) -> None:
        grid = codes()
        found = compare_codes(grid, grid[:4])
        assert found.verdict is Verdict.DIFFERENT
        assert (found.difference, found.equal_frames) == (None, 4)
        assert (found.first_shape, found.second_shape) == ((6, 3), (4, 3))
        assert found.matches == pytest.approx((4 / 6,) * 3)

    def test_another_number_of_codebooks_differs_whatever_is_in_them(self) -> None:
        grid = codes()
        for other in (grid[:, :2], changed(grid, (0, 0))[:, :2]):
            found = compare_codes(grid, other, gaps=(np.zeros((6, 3)), None))
            assert found.verdict is Verdict.DIFFERENT
            assert len(found.equal_codes) == 2

    def test_what_is_no_grid_is_refused(self) -> None:
        for wrong in ([(0, 1), (2,)], [(0, -1)], np.ones(3, int)):
            with pytest.raises(InputError) as error:
                compare_codes([(0, 1)], wrong)
            one_line(error.value)
        with pytest.raises(InputError, match=r"gaps of shape \(2, 3\), the codes have \(6, 3\)"):
            compare_codes(codes(), codes(), gaps=(None, np.zeros((2, 3))))
        with pytest.raises(InputError, match="decided_at of shape"):
            compare_codes(codes(), codes(), decided_at=np.zeros((2, 3), int))

    def test_it_is_json(self) -> None:
        grid = codes()
        found = compare_codes(grid, changed(grid, (2, 1)), gaps=(np.full((6, 3), 0.5), None))
        written = json.loads(dump_json(found.to_dict()))
        assert written["verdict"] == "different"
        assert written["difference"] == written["parted"][0]
        assert written["difference"]["gap"] == 0.5


class TestTies:
    @pytest.mark.parametrize(
        ("gap", "verdict"),
        [
            (0.0, Verdict.TIE),
            (TIE * 0.999, Verdict.TIE),
            (TIE, Verdict.DIFFERENT),
            (3.0, Verdict.DIFFERENT),
            (np.nan, Verdict.UNEXPLAINED),
        ],
    )
    def test_only_the_gap_where_they_parted_says_so(self, gap: float, verdict: Verdict) -> None:
        grid = codes()
        other = changed(grid, (2, 1), (3, 0), (5, 2))
        gaps = np.full(grid.shape, 1.0 if verdict is Verdict.TIE else 0.0)
        gaps[2, 1] = gap
        for given_gaps in ((gaps, None), (None, gaps), (gaps, gaps)):
            assert compare_codes(grid, other, gaps=given_gaps).verdict is verdict

    def test_without_gaps_nothing_is_explained(self) -> None:
        grid = codes()
        assert compare_codes(grid, changed(grid, (0, 0))).verdict is Verdict.UNEXPLAINED

    def test_both_must_have_seen_a_tie(self) -> None:
        grid = codes()
        close, far = np.zeros(grid.shape), np.ones(grid.shape)
        for gaps in ((close, far), (far, close)):
            found = compare_codes(grid, changed(grid, (1, 1)), gaps=gaps)
            assert found.verdict is Verdict.DIFFERENT

    def test_a_tie_behind_the_place_where_one_ended_explains_no_end(self) -> None:
        grid = codes()
        found = compare_codes(grid, grid[:4], gaps=(np.zeros((6, 3)), np.zeros((4, 3))))
        assert found.verdict is Verdict.DIFFERENT


class TestOrderOfDecisions:
    @pytest.mark.parametrize("name", ORDERS)
    def test_every_code_has_its_number_in_the_order_of_the_steps(self, name: str) -> None:
        steps, frames = ORDERS[name], 5
        numbers = when_decided(steps, frames)
        seen: list[tuple[int, ...]] = []
        for index in range(steps.steps(frames)):
            step = steps.step(index, frames)
            cells = [int(numbers[cell]) for cell in step.decided]
            alone = step.order in ("chain", "one")
            assert len(set(cells)) == (len(cells) if alone else min(1, len(cells)))
            seen += [(number,) for number in cells]
        assert seen == sorted(seen)
        assert len(seen) == frames * 3

    def test_delayed_codes_part_where_the_earlier_step_was(self) -> None:
        """Frame 1's last codebook is decided after frame 2's first: it isn't where they parted."""
        grid = codes()
        other = changed(grid, (1, 2), (2, 0))
        gaps = np.ones(grid.shape)
        gaps[2, 0] = 0.0
        numbers = when_decided(ORDERS["delayed"], 6)
        plain = compare_codes(grid, other, gaps=(gaps, None))
        ordered = compare_codes(grid, other, gaps=(gaps, None), decided_at=numbers)
        assert plain.verdict is Verdict.DIFFERENT
        assert ordered.verdict is Verdict.TIE
        assert ordered.difference == plain.difference
        assert [(place.frame, place.codebook) for place in ordered.parted] == [(2, 0)]

    def test_codes_of_one_step_must_all_be_ties(self) -> None:
        grid, numbers = codes(), when_decided(ORDERS["delayed"], 6)
        other = changed(grid, (3, 0), (2, 1), (1, 2))  # all decided in step 3
        gaps = np.zeros(grid.shape)
        tie = compare_codes(grid, other, gaps=(gaps, None), decided_at=numbers)
        assert (tie.verdict, len(tie.parted)) == (Verdict.TIE, 3)
        gaps[2, 1] = 1.0
        found = compare_codes(grid, other, gaps=(gaps, None), decided_at=numbers)
        assert found.verdict is Verdict.DIFFERENT
        gaps[2, 1] = np.nan
        found = compare_codes(grid, other, gaps=(gaps, None), decided_at=numbers)
        assert found.verdict is Verdict.UNEXPLAINED

    def test_in_a_chain_the_first_one_counts(self) -> None:
        grid, numbers = codes(), when_decided(ORDERS["depth"], 6)
        gaps = np.ones(grid.shape)
        gaps[2, 1] = 0.0
        other = changed(grid, (2, 1), (2, 2), (3, 0))
        assert compare_codes(grid, other, gaps=(gaps, None), decided_at=numbers).verdict is (
            Verdict.TIE
        )

    def test_codebook_by_codebook(self) -> None:
        grid, numbers = codes(), when_decided(ORDERS["codebook-major"], 6)
        found = compare_codes(grid, changed(grid, (0, 1), (5, 0)), decided_at=numbers)
        assert [(place.frame, place.codebook) for place in found.parted] == [(5, 0)]
        shorter = compare_codes(
            grid, changed(grid, (0, 1), (3, 0))[:4], decided_at=when_decided(
                ORDERS["codebook-major"], 4
            )
        )  # fmt: skip
        assert [(place.frame, place.codebook) for place in shorter.parted] == [(3, 0)]


class TestFiles:
    def test_everything_comes_back(self, tmp_path: Path) -> None:
        grid = codes()
        gaps = np.linspace(0, 1, 18, dtype=np.float32).reshape(6, 3)
        gaps[0, 0] = np.nan
        path = write_codes(
            tmp_path / "deep" / "codes.npz",
            grid,
            gaps=gaps,
            decided_at=when_decided(ORDERS["delayed"], 6),
            family="musicgen",
            rate_hz=50,
            codebook_sizes=(16, 16, 16),
        )
        found = read_codes(path)
        assert found.codes.dtype == np.int32
        np.testing.assert_array_equal(found.codes, grid)
        np.testing.assert_array_equal(found.gaps, gaps)
        np.testing.assert_array_equal(found.decided_at, when_decided(ORDERS["delayed"], 6))
        assert (found.family, found.rate_hz) == ("musicgen", 50.0)
        assert found.codebook_sizes == (16, 16, 16)

    def test_codes_alone(self, tmp_path: Path) -> None:
        found = read_codes(write_codes(tmp_path / "a.npz", [(0, 1), (2, 3)]))
        assert found.codes.tolist() == [[0, 1], [2, 3]]
        others = (found.gaps, found.decided_at, found.family, found.rate_hz, found.codebook_sizes)
        assert others == (None,) * 5

    @pytest.mark.parametrize("suffix", ["wav", "flac", "ogg", "WAV"])
    def test_the_codes_of_a_sound_lie_beside_it(self, tmp_path: Path, suffix: str) -> None:
        sound = tmp_path / f"my.speech.{suffix}"
        write_sound(sound, np.zeros(400, np.float32), 16_000)
        place = write_codes(sound, codes())
        assert place == sidecar(sound) == tmp_path / "my.speech.codes.npz"
        np.testing.assert_array_equal(read_codes(sound).codes, codes())
        assert read_codes(str(sound)).codes.shape == (6, 3)

    def test_plain_arrays(self, tmp_path: Path) -> None:
        np.save(tmp_path / "a.npy", codes().astype(np.uint8))
        np.testing.assert_array_equal(read_codes(tmp_path / "a.npy").codes, codes())
        np.save(tmp_path / "b.npy", np.arange(5))
        assert read_codes(tmp_path / "b.npy").codes.tolist() == [[0], [1], [2], [3], [4]]
        np.savez(tmp_path / "c.npz", codes=np.arange(5), gaps=np.arange(5) / 2)
        gaps = read_codes(tmp_path / "c.npz").gaps
        assert gaps is not None
        assert gaps.shape == (5, 1)

    def test_what_others_wrote_of_no_frames(self, tmp_path: Path) -> None:
        place = write_codes(tmp_path / "a.npz", np.empty((0, 3), int), codebook_sizes=(16,) * 3)
        assert read_codes(place).codes.shape == (0, 3)

    @pytest.mark.parametrize(
        ("arrays", "message"),
        [
            ({"other": np.ones((2, 2), int)}, r"arrays without one called codes \(other\)"),
            ({}, r"arrays without one called codes \(nothing\)"),
            ({"codes": np.ones((1, 2, 3), int)}, "codes of shape 1x2x3, expected frames"),
            ({"codes": np.ones((2, 2))}, "frame 0, codebook 0: .* is no integer"),
            ({"codes": np.array([[0, 1], [2, -1]])}, "frame 1, codebook 1: -1 is no code"),
            ({"codes": np.array([[2**40]])}, f"frame 0, codebook 0: {2**40} is no code"),
            (
                {"codes": np.array([[0, 16]]), "codebook_sizes": np.array([16, 16])},
                "frame 0, codebook 1: 16 is no code: they go from 0 to 15",
            ),
            (
                {"codes": np.ones((2, 2), int), "codebook_sizes": np.array([16])},
                "frame 0 has 2 codes, expected 1",
            ),
            ({"codes": np.ones((2, 2), int), "codebook_sizes": np.array("x")}, "another kind"),
            (
                {"codes": np.ones((2, 2), int), "codebook_sizes": np.array([16, np.inf])},
                "another kind",
            ),
            (
                {"codes": np.array([[2**40]]), "codebook_sizes": np.array([2**41])},
                f"frame 0, codebook 0: {2**40} is no code",
            ),
            ({"codes": np.ones((2, 2), int), "rate_hz": np.ones(2)}, "another kind"),
            ({"codes": np.ones((2, 2), int), "gaps": np.ones(2)}, "gaps of shape 2, .* have 2x2"),
            ({"codes": np.ones((2, 2), int), "gaps": np.full((2, 2), "x")}, "gaps of type"),
            ({"codes": np.ones((2, 2), int), "decided_at": np.ones((2, 2))}, "decided_at of type"),
            (
                {"codes": np.ones((2, 2), int), "decided_at": np.full((2, 2), 2**32)},
                "decided_at has numbers beyond 32 bits",
            ),
        ],
    )
    def test_other_arrays_are_one_line(
        self, tmp_path: Path, arrays: dict[str, Any], message: str
    ) -> None:
        path = tmp_path / "codes.npz"
        np.savez(path, **arrays)
        with pytest.raises(InputError, match=message) as error:
            read_codes(path)
        assert str(error.value).startswith(str(path))
        one_line(error.value)

    def test_other_files_are_one_line(self, tmp_path: Path) -> None:
        whole = write_codes(tmp_path / "whole.npz", codes()).read_bytes()
        np.save(tmp_path / "whole.npy", codes())
        pickled = tmp_path / "objects.npy"
        np.save(pickled, np.array([{"a": 1}], dtype=object), allow_pickle=True)
        contents = {
            "empty.npz": b"",
            "text.npz": b"0 1 2\n",
            "pickle.npz": pickle.dumps([1, 2]),
            "cut.npz": whole[: len(whole) // 2],
            "bent.npz": whole[:60] + bytes(40) + whole[100:],
            "cut.npy": (tmp_path / "whole.npy").read_bytes()[:-5],
            "lying.npy": (tmp_path / "whole.npy").read_bytes().replace(b"(6, 3)", b"(6, 9)"),
            "open.npy": (tmp_path / "whole.npy").read_bytes().replace(b"(6, 3)", b"(6, 3 "),
            "newer.npz": _bent(whole, 6),
            "encrypted.npz": _bent(whole, 8),
            "packed.npz": _bent(whole, 10),
            "objects.npy": pickled.read_bytes(),
            "objects.npz": b"PK" + pickled.read_bytes(),
        }
        for name, content in contents.items():
            (tmp_path / name).write_bytes(content)
            with pytest.raises(InputError, match=r"\.npz or \.npy") as error:
                read_codes(tmp_path / name)
            assert str(error.value).startswith(str(tmp_path / name))
            one_line(error.value)
        for name in ("missing.npz", "missing.wav", "."):
            with pytest.raises(InputError, match=r"expected codes \(\.npz or \.npy\)"):
                read_codes(tmp_path / name)

    def test_nothing_that_is_no_grid_is_written(self, tmp_path: Path) -> None:
        for wrong, facts, message in (
            ([(0, -1)], {}, "frame 0, codebook 1: -1 is no code"),
            ([(0, 16)], {"codebook_sizes": (16, 16)}, "frame 0, codebook 1: 16 is no code"),
            ([(0, 1)], {"gaps": np.zeros((2, 2))}, "gaps of shape 2x2, the codes have 1x2"),
            ([(0, 1)], {"decided_at": np.zeros(2)}, "decided_at of shape 2"),
        ):
            with pytest.raises(InputError, match=message):
                write_codes(tmp_path / "codes.npz", wrong, **facts)
        assert list(tmp_path.iterdir()) == []

    def test_a_place_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="can't be written"):
            write_codes(tmp_path / "file" / "codes.npz", codes())


class TestSound:
    @pytest.mark.parametrize("suffix", ["wav", "flac"])
    def test_samples_come_back_with_16_bits(self, tmp_path: Path, suffix: str) -> None:
        wave = np.sin(np.arange(4000) / 9).astype(np.float32) / 2
        for samples in (wave, np.stack([wave, -wave])):
            path = tmp_path / f"said.{suffix}"
            write_sound(path, samples, 16_000)
            found, rate = soundfile.read(path, dtype="float32")
            assert rate == 16_000
            np.testing.assert_allclose(found.T, samples, atol=1 / 32_000)

    def test_too_loud_is_clipped_not_wrapped(self, tmp_path: Path) -> None:
        write_sound(tmp_path / "loud.wav", np.array([2.0, -2.0, 0.5]), 16_000)
        found, _ = soundfile.read(tmp_path / "loud.wav")
        np.testing.assert_allclose(found, [1, -1, 0.5], atol=1e-3)

    def test_no_samples_are_an_empty_file(self, tmp_path: Path) -> None:
        write_sound(tmp_path / "none.wav", np.zeros(0, np.float32), 16_000)
        assert soundfile.info(tmp_path / "none.wav").frames == 0

    def test_other_suffixes_and_broken_samples(self, tmp_path: Path) -> None:
        for name in ("said.mp4", "said"):
            with pytest.raises(InputError, match="expected one of wav, flac, ogg"):
                write_sound(tmp_path / name, np.zeros(4), 16_000)
        with pytest.raises(InputError, match="NaN or infinite samples"):
            write_sound(tmp_path / "said.wav", np.array([np.nan]), 16_000)
        assert list(tmp_path.iterdir()) == []
