"""The benchmark of models that look: what is asked of which image, all peers, quality, classes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from mmspec.bench.cases import Case
from mmspec.bench.measuring import Measured
from mmspec.bench.summary import quality_of
from mmspec.bench.tables import notes, to_markdown
from mmspec.compare.peers import Outcome, Unavailable
from mmspec.errors import InputError, OptionError
from mmspec.modalities.vlm.request import VisionRequest
from mmspec.tasks.vlm.bench import QUALITIES, Plan, run
from mmspec.tasks.vlm.bench_cases import image_files, load_cases, read_truth
from mmspec.tasks.vlm.peers import HIDES_IMAGES
from tests.cli_support import Here
from tests.modalities.tiny_looking import picture, saved


@dataclass(frozen=True)
class Place:
    """Tiny checkpoints and a folder of images with their truth."""

    target: Path
    drafter: Path
    images: Path


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    folder = tmp_path_factory.mktemp("place")
    images = folder / "images"
    images.mkdir()
    for seed in range(2):
        picture(seed).save(images / f"image{seed}.png")
    (images / "truth.tsv").write_text(
        "file\ttask\ttext\n"
        "image0.png\tread\tone\\ntwo\n"
        "image1.png\tdescribe\ta cat\n"
        "image1.png\tcount\tthree\n"
    )
    return Place(
        saved(folder / "target", "qwen2_vl"),
        saved(folder / "drafter", "qwen2_vl", seed=1, layers=2),
        images,
    )


class TestCases:
    def test_the_truth_says_what_is_asked(self, place: Place) -> None:
        files = image_files([place.images])
        truth = read_truth(None, files)
        assert truth == {("image0.png", "read"): "one\ntwo", ("image1.png", "caption"): "a cat"}
        found = load_cases(files, (), truth, {}, max_new_tokens=5)
        assert [(case.path.name, case.request.task) for case in found] == [
            ("image0.png", "read"),
            ("image1.png", "caption"),
        ]
        assert {case.request.max_new_tokens for case in found} == {5}
        assert len({case.sha256 for case in found}) == 2

    def test_a_task_leaves_out_what_has_another_one(self, place: Place) -> None:
        files = image_files([place.images])
        found = load_cases(files, ["read"], read_truth(None, files), {})
        assert [case.path.name for case in found] == ["image0.png"]

    def test_without_a_truth_the_wanted_tasks_else_a_caption(self, place: Place) -> None:
        files = image_files([place.images])
        for tasks, wanted in (
            ((), ["caption"] * 2),
            (("read", "caption"), ["read", "caption"] * 2),
        ):
            found = load_cases(files, tasks, {}, {})
            assert [case.request.task for case in found] == wanted
            assert [case.reference for case in found] == [None] * len(wanted)

    def test_nothing_to_do(self, place: Place, tmp_path: Path) -> None:
        files = image_files([place.images])
        truth = {(path.name, "caption"): "" for path in files}
        with pytest.raises(InputError, match="found no image with a truth"):
            load_cases(files, ["read"], truth, {})  # type: ignore[arg-type]
        with pytest.raises(InputError, match="found no image in this folder"):
            image_files([tmp_path])
        with pytest.raises(InputError, match="columns named file, task and text"):
            read_truth(tmp_path / "none.tsv", files)


def test_quality_by_task() -> None:
    def case(task: str, text: str | None) -> Case:
        return Case(Path("x.png"), None, "", text, {}, VisionRequest(task))  # type: ignore[arg-type]

    cases = [case("read", "abcd"), case("caption", "a cat"), case("caption", "a dog")]
    texts = ["abxd", "a cat", "A dog"]
    member = Measured(Unavailable("x", None))
    member.outcomes = [[Outcome((), text, 1.0, 1.0) for text in texts]]
    wrong, right = QUALITIES["character_error_rate"], QUALITIES["captions_right"]
    assert quality_of(member, cases, wrong) == pytest.approx(1 / 4)
    assert quality_of(member, cases, right) == 0.5
    member.outcomes = [member.outcomes[0][:1]]
    assert quality_of(member, cases[:1], right) is None


class TestWhole:
    def test_every_drafter_against_every_peer(self, place: Place) -> None:
        drafts = ["none", "hypothesis", str(place.drafter)]
        plan = Plan(
            image_files([place.images])[1:],
            str(place.target),
            drafts,
            pairs=1,
            max_new_tokens=6,
            gamma="2",
            grounding=1.0,
        )
        result = run(plan)
        document = json.loads(json.dumps(result.to_dict()))
        assert [ours["available"] for ours in document["mmspec"]] == [True] * 3
        for pair in document["versus"]:
            if pair["peer"] in ("plain", "hf"):
                assert pair["ids_equal"] is True
                assert pair["decode"]["count"] == pair["end_to_end"]["count"] == 1
        unavailable = {pair["ours"] for pair in document["versus"] if pair.get("why")}
        assert unavailable == {"mmspec none", "mmspec hypothesis"}
        (frozen,) = document["files"]
        assert frozen["task"] == "caption"
        assert 0 < frozen["visual_tokens"] < frozen["prompt_tokens"]
        drafted = document["mmspec"][2]
        assert drafted["encoder_runs"] == drafted["drafter_encoder_runs"] == 1
        tokens = sum(share["tokens"] for share in drafted["by_class"].values())
        assert tokens == drafted["tokens"]
        assert document["captions_right"]["plain"] == 0
        assert document["character_error_rate"]["plain"] is None
        assert any(HIDES_IMAGES in note.plain for note in notes(result))
        assert "kept, grounded / syntactic" in to_markdown(result)

    def test_command(
        self, place: Place, tmp_path: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        out = tmp_path / "out.json"
        options: tuple[Any, ...] = (
            "-t",
            place.target,
            "-d",
            "none",
            "--pairs",
            1,
            "--max-new-tokens",
            4,
        )
        options += ("--task", "read", "--compare", "hf", "--json", out)
        done = Here(capsys)("bench", "vlm", place.images, *options)
        assert (done.code, done.err) == (0, "")
        document = json.loads(out.read_text())
        assert [case["task"] for case in document["files"]] == ["read"]
        assert [pair["peer"] for pair in document["versus"]] == ["hf"]
        assert document["character_error_rate"]["hf"] > 0

    def test_plans_that_cannot_be_meant(self, place: Place) -> None:
        for changes, words in (
            ({"tasks": ("sing",)}, "expected caption or read"),
            ({"peers": ("whisperx",)}, "expected names among"),
            ({"drafts": ["ngram", "ngram"]}, "expected each once"),
        ):
            facts = {"files": [place.images], "target": str(place.target), "drafts": ["none"]}
            with pytest.raises(OptionError, match=words):
                run(Plan(**(facts | changes)))  # type: ignore[arg-type]
