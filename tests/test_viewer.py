"""`Viewer`: captions, readings and answers are what `generate` would say, whatever drafts."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers.generation.streamers import BaseStreamer

import mmspec
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.modalities.base.processors import ImageAndText
from mmspec.modalities.media.documents import BadPage
from mmspec.modalities.vlm.looking import MOST_NEW_TOKENS, generation_options
from mmspec.modalities.vlm.request import VisionRequest
from mmspec.tasks.vlm.viewer import Viewer
from tests.modalities import tiny_crossing, tiny_prefix
from tests.modalities.pdfs import document, text
from tests.modalities.test_vlm_given import NeverTheNth, StopAfter
from tests.modalities.tiny_looking import TEMPLATE, model, picture, processor, saved, tokenizer
from tests.test_generation import one_line

NEW = {"max_new_tokens": 10}
CROSSING = [("blip", "caption"), ("blip-vqa", "answer"), ("trocr", "read"), ("donut", "read")]
PAGES = document(text("one"), text("two"))


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoints on disk: a target, a drafter for it, one without a chat template."""
    folder = tmp_path_factory.mktemp("viewer")
    saved(folder / "target", "qwen2_vl")
    saved(folder / "drafter", "qwen2_vl", seed=1, layers=2)
    saved(folder / "llava", "llava")
    return folder


@pytest.fixture(scope="module")
def viewer(place: Path) -> Viewer:
    return mmspec.load(place / "target")


def refused(
    kind: type[Exception], says: str, viewer: Viewer, image: Any = None, **how: Any
) -> None:
    with pytest.raises(kind, match=says) as error:
        viewer.describe(picture() if image is None else image, **{**NEW, **how})
    one_line(error.value)


def of_generate(viewer: Viewer, image: Image.Image, words: str, **options: Any) -> list[int]:
    """What transformers makes of the prompt, without anything of ours."""
    turn = [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": words}]}]
    told = viewer.processor.apply_chat_template(turn, add_generation_prompt=True)
    inputs = viewer.processor(text=[told], images=[image], return_tensors="pt")
    ids = viewer.model.generate(**inputs, **options)
    return ids[0, inputs["input_ids"].shape[1] :].tolist()


class TestParity:
    @pytest.mark.parametrize("draft", ["none", "ngram", "DRAFTER"])
    def test_ids_are_those_of_generate(self, place: Path, draft: str) -> None:
        with mmspec.load(
            place / "target", draft.replace("DRAFTER", str(place / "drafter")), gamma=3
        ) as viewer:
            for ours, words in (
                (viewer.caption(picture(), **NEW), "Describe the image."),
                (viewer.read(picture(), **NEW), "Read the text."),
                (viewer.answer(picture(), "Who?", **NEW), "Who?"),
                (viewer.caption(picture(), prompt="Say.", **NEW), "Say."),
            ):
                assert list(ours.ids) == of_generate(viewer, picture(), words, **NEW)
                assert not ours.report.faults

    def test_stop_strings(self, viewer: Viewer) -> None:
        plain = viewer.caption(picture(), **NEW)
        stop = viewer.processor.tokenizer.decode(plain.ids[3:5])
        said = viewer.caption(picture(), stop_strings=[stop], **NEW)
        assert said.ids == plain.ids[: len(said.ids)]
        assert len(said.ids) < len(plain.ids)
        how = {"stop_strings": [stop], "tokenizer": viewer.processor.tokenizer, **NEW}
        assert list(said.ids) == of_generate(viewer, picture(), "Describe the image.", **how)

    def test_a_family_without_a_chat_template(self, place: Path) -> None:
        with mmspec.load(place / "llava") as viewer:
            said = viewer.caption(picture(), **NEW)
            told = "<|image_pad|>\nDescribe the image."
            inputs = viewer.processor(text=[told], images=[picture()], return_tensors="pt")
            want = viewer.model.generate(**inputs, **NEW)
        assert list(said.ids) == want[0, inputs["input_ids"].shape[1] :].tolist()
        assert said.visual_tokens == 4

    @pytest.mark.parametrize(("name", "task"), CROSSING)
    def test_families_that_attend_across(self, name: str, task: str) -> None:
        crossing = tiny_crossing.tiny(name)
        words = "who?" if task == "answer" else None
        seen = getattr(crossing, "vision_model", None) or crossing.encoder
        height, width = np.broadcast_to(seen.config.image_size, 2).tolist()
        eyes = transformers.ViTImageProcessorPil(size={"height": height, "width": width})
        both = ImageAndText(eyes, tokenizer())
        inputs = both([picture()], words, return_tensors="pt")
        options = {"num_beams": 1, "do_sample": False, **NEW}
        want = crossing.generate(**inputs, **options)[0, 1:].tolist()
        for draft in ("none", "ngram"):
            with mmspec.load(crossing, draft, processor=both, gamma=3) as viewer:
                said = viewer.describe(picture(), task=task, prompt=words, grounding=True, **NEW)
                assert list(said.ids) == want
                assert said.report.encoder_runs == 1
                assert said.visual_tokens > 1
                refused(
                    InputError, "found 2 images", viewer, [picture()] * 2, task=task, prompt=words
                )

    def test_seeded_sampling_is_the_same_whatever_drafts(self, place: Path, viewer: Viewer) -> None:
        how = {"temperature": 0.9, "seed": 4, **NEW}
        plain = viewer.caption(picture(), **how)
        with mmspec.load(place / "target", str(place / "drafter"), gamma=2) as drafted:
            assert drafted.caption(picture(), **how).ids == plain.ids
        assert plain.report.parity == "L1"
        assert plain.ids != viewer.caption(picture(), **NEW).ids

    def test_a_checkpoints_own_beams_and_sampling_are_replaced(self, viewer: Viewer) -> None:
        options = generation_options(viewer.model, VisionRequest())
        assert options == {
            "num_beams": 1,
            "do_sample": False,
            "max_new_tokens": MOST_NEW_TOKENS,
        }

    def test_images_side_by_side(self, viewer: Viewer) -> None:
        images = [picture(seed) for seed in range(3)]
        alone = [viewer.read(image, **NEW).ids for image in images]
        together = viewer.read_batch(images, batch=2, **NEW)
        assert [said.ids for said in together] == alone
        assert [said.task for said in together] == ["read"] * 3

    def test_what_is_several_times_given_counts_for_each(self, viewer: Viewer) -> None:
        images = [picture(seed) for seed in range(3)]
        more = {"max_new_tokens": 8, "eos_token_id": 5}
        alone = [viewer.read(image, logits_processor=[NeverTheNth()], **more) for image in images]
        together = viewer.read_batch(images, batch=2, logits_processor=[NeverTheNth()], **more)
        assert [said.ids for said in together] == [said.ids for said in alone]
        pages = viewer.read_pages(PAGES, dpi=5, stopping_criteria=[StopAfter(3)], **more)
        assert [len(page.ids) for page in pages] == [3, 3]  # type: ignore[union-attr]

    def test_one_bad_image_is_no_other_ones_fault(self, viewer: Viewer) -> None:
        requests = [{"image": image, **NEW} for image in (picture(), b"junk", picture(1))]
        found = dict(viewer.outcomes(requests, batch=2))
        assert isinstance(found[1], InputError)
        assert found[0].ids == viewer.caption(picture(), **NEW).ids  # type: ignore[union-attr]
        assert found[2].task == "caption"  # type: ignore[union-attr]
        with pytest.raises(InputError, match="nothing that Pillow can read"):
            viewer.caption_batch([picture(), b"\x00junk"], **NEW)


class TestDescription:
    def test_what_is_known_of_it(self, viewer: Viewer) -> None:
        said = viewer.caption(picture(), **NEW)
        inputs = viewer.processor(text=["<|image_pad|>"], images=[picture()], return_tensors="pt")
        assert said.visual_tokens == (inputs["input_ids"] == tiny_prefix.MEDIA).sum()
        told = len("Describe the image.") + len(": ") + len(["<bos>", "<open>", "<close>"])
        assert said.prompt_tokens == said.visual_tokens + told
        assert said.sizes == ((24, 16),)
        decode = viewer.processor.tokenizer.decode
        assert said.text == decode(said.ids, skip_special_tokens=True).strip() != decode(said.ids)
        assert (said.finish_reason, len(said.ids)) == ("length", NEW["max_new_tokens"])
        assert len(said.origins) == len(said.ids) == said.report.tokens

    def test_where_the_time_went(self, place: Path) -> None:
        with mmspec.load(place / "target", str(place / "drafter"), gamma=2) as viewer:
            report = viewer.caption(picture(), **NEW).report
        assert report.encoder_runs == report.drafter_encoder_runs == 1
        assert all(report.seconds[phase] > 0 for phase in ("encode", "prefill", "verify", "draft"))
        assert report.drafters["drafter"].conditioning == "own"

    def test_as_plain_data(self, viewer: Viewer) -> None:
        data = viewer.answer(picture(), "Who?", grounding=True, **NEW).to_dict()
        assert data["prompt"] == "Who?"
        assert data["sizes"] == [[24, 16]]
        assert len(data["grounding"]["drops"]) == len(data["ids"])
        assert data["report"]["tokens"] == len(data["ids"])
        assert "page" not in data

    def test_what_rests_on_the_image(self, viewer: Viewer) -> None:
        said = viewer.caption(picture(), grounding=0.5, **NEW)
        plain = viewer.caption(picture(), **NEW)
        assert (said.ids, said.report.rounds) == (plain.ids, plain.report.rounds)
        assert said.grounding is not None
        assert said.grounding.threshold == 0.5
        first = [_law(viewer, image)[said.ids[0]] for image in (picture(), _grey())]
        assert said.grounding.drops[0] == pytest.approx(float(first[0] - first[1]), abs=1e-3)
        assert said.report.by_class is not None
        assert sum(share.tokens for share in said.report.by_class.values()) == len(said.ids)
        grey = viewer.caption(_grey(), grounding=True, **NEW).grounding
        assert grey is not None
        assert max(abs(drop) for drop in grey.drops) < 1e-4

    def test_text_as_it_comes(self, viewer: Viewer, place: Path) -> None:
        pieces = list(viewer.stream(picture(), **NEW))
        assert "".join(pieces).strip() == viewer.caption(picture(), **NEW).text
        assert len(pieces) > 1

    def test_a_streamer_gets_the_prompt_and_then_ids(self, viewer: Viewer) -> None:
        class Ids:
            def __init__(self) -> None:
                self.got: list[list[int]] = []
                self.ended = 0

            def put(self, value: torch.Tensor) -> None:
                self.got.append(value.flatten().tolist())

            def end(self) -> None:
                self.ended += 1

        ids = Ids()
        said = viewer.caption(picture(), streamer=ids, **NEW)
        assert len(ids.got[0]) == said.prompt_tokens
        assert [token for tokens in ids.got[1:] for token in tokens] == list(said.ids)
        assert ids.ended == 1


def _grey() -> Image.Image:
    return Image.new("RGB", picture().size, (128, 128, 128))


@torch.no_grad()
def _law(viewer: Viewer, image: Image.Image) -> torch.Tensor:
    """Log-probabilities behind the prompt of a caption."""
    told = TEMPLATE_SAYS.replace("WORDS", "Describe the image.")
    inputs = viewer.processor(text=[told], images=[image], return_tensors="pt")
    return viewer.model(**inputs).logits[0, -1].log_softmax(-1)


TEMPLATE_SAYS = "<bos><open><|image_pad|><close>WORDS: "


class TestImages:
    def test_several(self, viewer: Viewer) -> None:
        one, two = (viewer.caption([picture()] * count, **NEW) for count in (1, 2))
        assert two.visual_tokens == 2 * one.visual_tokens
        assert two.sizes == ((24, 16), (24, 16))

    def test_extreme_shapes(self, viewer: Viewer, place: Path) -> None:
        assert viewer.caption(picture(width=1, height=1), max_new_tokens=2).visual_tokens == 1
        long = picture(width=10_000, height=1)
        refused(InputError, "processor refuses this: .*aspect ratio", viewer, long)
        with mmspec.load(place / "llava") as other:
            assert other.caption(long, max_new_tokens=2).sizes == ((10_000, 1),)

    def test_none(self, viewer: Viewer) -> None:
        refused(InputError, "found no image", viewer, [])

    def test_more_than_fit(self, viewer: Viewer) -> None:
        refused(InputError, "found a prompt of [0-9]+ positions", viewer, [picture()] * 90)


class TestPrompts:
    def test_a_placeholder_is_no_image(self, viewer: Viewer) -> None:
        for words in ("Is <|image_pad|> seen?", "<|video_pad|>"):
            refused(OptionError, r"found '<\|.*_pad\|>' in the prompt", viewer, prompt=words)
        fine = viewer.caption(picture(), prompt="Is image_pad seen?", **NEW)
        assert fine.visual_tokens == viewer.caption(picture(), **NEW).visual_tokens

    def test_no_words(self, viewer: Viewer) -> None:
        refused(OptionError, "found an empty prompt", viewer, prompt="  ")
        refused(OptionError, "found no question", viewer, task="answer")

    def test_a_template_without_a_place_for_the_image(self, place: Path) -> None:
        blind = processor("qwen2_vl", chat_template=TEMPLATE.replace("<|image_pad|>", ""))
        with mmspec.load(model("qwen2_vl"), processor=blind) as viewer:
            refused(InputError, "number of <.image_pad.> tokens", viewer)
        deaf = processor("llava", chat_template="{{ bos_token }}nothing")
        with mmspec.load(model("llava"), processor=deaf) as viewer:
            refused(InputError, "Found total 0 <.image_pad.> tokens", viewer)

    def test_a_model_without_its_processor(self) -> None:
        with mmspec.load(model("qwen2_vl")) as viewer:
            refused(ModelError, "comes without the processor", viewer)


class TestReadings:
    def test_a_reading_drafts(self, place: Path, viewer: Viewer) -> None:
        want = viewer.read(picture(), **NEW)
        with mmspec.load(place / "target", "hypothesis", gamma=4) as drafted:
            for reading in (want.ids, want.text, "nonsense", ""):
                assert drafted.read(picture(), reading=reading, **NEW).ids == want.ids
            assert drafted.read(picture(), reading=want.ids, **NEW).report.accepted > 5

    def test_without_tesseract(self, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", "")
        with mmspec.load(place / "target", "hypothesis") as viewer:
            said = viewer.read(picture(), **NEW)
            assert said.report.proposed == 0
            assert said.report.faults == (
                "nothing was drafted: Tesseract isn't installed: apt install tesseract-ocr, "
                "brew install tesseract, or see tesseract-ocr.github.io",
            )
            refused(OptionError, "Tesseract isn't", viewer, task="read", hypothesis="tesseract")

    def test_a_caption_has_no_other_reader(self, place: Path) -> None:
        with mmspec.load(place / "target", "hypothesis") as viewer:
            refused(OptionError, "needs hypothesis=", viewer)

    def test_pages_are_drafted_by_their_text_layer(self, place: Path, viewer: Viewer) -> None:
        with mmspec.load(place / "target", "hypothesis", gamma=4) as drafted:
            first, second = drafted.read_pages(PAGES, dpi=20, **NEW)
            assert not isinstance(first, BadPage)
            assert not isinstance(second, BadPage)
            assert (first.page, second.page) == (1, 2)
            assert first.report.proposed > 0
            assert first.report.faults == ()
        plain = [said.ids for said in viewer.read_pages(PAGES, dpi=20, **NEW)]
        assert [first.ids, second.ids] == plain


class TestRefusals:
    def test_options(self, viewer: Viewer) -> None:
        refused(OptionError, "task: found 'sing'", viewer, task="sing")
        refused(OptionError, "not used by the model: .'foo'", viewer, foo=1)
        refused(OptionError, "beam search", viewer, num_beams=3)
        refused(OptionError, "max_new_tokens.* must be greater than 0", viewer, max_new_tokens=0)
        refused(OptionError, "do_sample=True: temperature=0.0 .*decides", viewer, do_sample=True)
        refused(OptionError, "do_sample=False", viewer, do_sample=False, temperature=0.5)
        refused(OptionError, "penalty_alpha=None", viewer, penalty_alpha=0.6, top_k=4)
        several = {"num_return_sequences": 2, "temperature": 0.7}
        refused(OptionError, "num_return_sequences: found 2", viewer, **several)
        refused(OptionError, "grounding: found", viewer, grounding=-1.0)
        refused(OptionError, "temperature: found -1", viewer, temperature=-1)
        refused(OptionError, "temperature: found nan", viewer, temperature=math.nan)
        refused(OptionError, "seed: found 'x'", viewer, temperature=1.0, seed="x")

    @pytest.mark.parametrize(("prompt", "says"), [(3, "found int"), ("a\udcff", "Unicode")])
    def test_a_prompt_is_text(self, viewer: Viewer, prompt: Any, says: str) -> None:
        refused(OptionError, f"prompt: .*{says}", viewer, prompt=prompt)

    @pytest.mark.parametrize(("count", "says"), [(1, "1 readings"), (3, "2 images")])
    def test_a_reading_for_each(self, viewer: Viewer, count: int, says: str) -> None:
        with pytest.raises(OptionError, match=f"found {says}") as error:
            viewer.read_batch([picture(), picture()], readings=["a"] * count, max_new_tokens=1)
        one_line(error.value)

    @pytest.mark.parametrize("ids", [[3, -1], [1 << 40], ["a"], 5])
    def test_what_is_expected_is_a_text_or_ids(self, place: Path, ids: Any) -> None:
        with mmspec.load(place / "target", "hypothesis") as viewer:
            refused(OptionError, "hypothesis: ", viewer, hypothesis=ids)
            tokens = torch.tensor([3, 4])
            said = viewer.caption(picture(), hypothesis=tokens, **NEW)  # type: ignore[arg-type]
            assert list(said.ids) == of_generate(viewer, picture(), "Describe the image.", **NEW)

    def test_closed(self, place: Path) -> None:
        with mmspec.load(place / "target") as viewer:
            pass
        refused(OptionError, "this viewer is closed", viewer)

    def test_a_streamer_for_several(self, viewer: Viewer) -> None:
        with pytest.raises(OptionError, match="side by side have none"):
            list(viewer.outcomes([{"image": picture(), "streamer": BaseStreamer()}], 2))

    def test_a_model_that_listens(self) -> None:
        with pytest.raises(ModelError, match="listens to a conversation"):
            mmspec.load(tiny_prefix.tiny("qwen2_audio"))

    def test_a_drafter_that_shares_no_vocabulary(self, place: Path, tmp_path: Path) -> None:
        strange = processor("qwen2_vl", characters="αβγδ")
        model("qwen2_vl", 1, 2).save_pretrained(tmp_path)
        strange.save_pretrained(tmp_path)
        with mmspec.load(place / "target", str(tmp_path), gamma=2) as viewer:
            want = of_generate(viewer, picture(), "Describe the image.", **NEW)
            assert list(viewer.caption(picture(), **NEW).ids) == want
