"""Processors and prompts: what each family is told, and what can't become an image by a word."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers.processors import TemplateProcessing
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

from mmspec.compat import quiet
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.modalities import ADAPTERS, adapter_for
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.processors import FILMS, ImageAndText, load_processor
from mmspec.modalities.base.prompting import Instruction, chat, inputs_of
from mmspec.modalities.unsupported import why
from tests.modalities import tiny_crossing, tiny_prefix
from tests.modalities.tiny_looking import (
    TEMPLATE,
    model,
    picture,
    processor,
    saved,
    tokenizer,
)

CAPTION, READ = Instruction("caption"), Instruction("read")
LOOKING = [
    name for name, row in ADAPTERS.items() if row.task == "vlm" and name != "blip_text_model"
]
SIGHT = {"size": {"height": 8, "width": 8}}


def told(made: Any) -> str:
    """A prompt as text, a run of placeholders as one."""
    text = tokenizer().decode(made["input_ids"][0].tolist())
    while "<|image_pad|><|image_pad|>" in text:
        text = text.replace("<|image_pad|><|image_pad|>", "<|image_pad|>")
    return text


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    return Checkpoint.of(model("qwen2_vl"), processor("qwen2_vl"), packed=False)


class TestProcessors:
    @pytest.mark.parametrize("name", LOOKING)
    def test_what_films_need_is_the_last_part_of_a_processor(self, name: str) -> None:
        """So a processor is whole without it."""
        with quiet():
            kind = PROCESSOR_MAPPING.get(CONFIG_MAPPING[name], None)
            parts = [] if kind is None else kind.get_attributes()
        assert FILMS not in parts[:-1]

    def test_one_with_a_part_for_films_loads_without(self, tmp_path: Path) -> None:
        folder = saved(tmp_path, "qwen2_vl")
        config = transformers.AutoConfig.from_pretrained(folder)
        loaded = load_processor(str(folder), config)
        assert type(loaded).__name__ == "Qwen2VLProcessor"
        assert not hasattr(loaded, FILMS)
        assert loaded.chat_template == TEMPLATE
        again = saved(tmp_path / "again", "qwen2_vl")
        loaded.save_pretrained(again)
        ours = chat(load_processor(str(again), config), [picture()], "Who?")
        want = chat(processor("qwen2_vl"), [picture()], "Who?")
        torch.testing.assert_close(dict(ours), dict(want))

    def test_two_halves_that_no_processor_joins(self, tmp_path: Path) -> None:
        tiny_crossing.tiny("vit-gpt2").save_pretrained(tmp_path)
        transformers.ViTImageProcessorPil(**SIGHT).save_pretrained(tmp_path)
        tokenizer().save_pretrained(tmp_path)
        config = transformers.AutoConfig.from_pretrained(tmp_path)
        loaded = load_processor(str(tmp_path), config)
        assert isinstance(loaded, ImageAndText)
        made = loaded([picture()], "Who?", return_tensors="pt")
        assert made["pixel_values"].shape == (1, 3, 8, 8)
        assert told(made) == "Who?"

    def test_a_missing_package_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(*_: Any, **__: Any) -> None:
            raise ImportError("spam is required,\nrun pip install spam.")

        monkeypatch.setattr(transformers.AutoProcessor, "from_pretrained", missing)
        config = transformers.LlavaConfig()
        with pytest.raises(ModelError, match="that is missing: spam is required, run pip install"):
            load_processor("anywhere", config)


class TestInstructions:
    def test_a_conversation_begins_once(self) -> None:
        """Whether the template writes the beginning or the tokenizer."""
        for begins in ("{{ bos_token }}", ""):
            template = TEMPLATE.replace("{{ bos_token }}", begins)
            qwen = processor("qwen2_vl", chat_template=template)
            qwen.tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
                single="<bos> $A", special_tokens=[("<bos>", tiny_prefix.BOS)]
            )
            said = told(chat(qwen, [picture()], "Who?"))
            assert said == "<bos><open><|image_pad|><close>Who?: "

    def test_of_several_templates_the_default_is_taken(self) -> None:
        names = {"tool_use": "{{ bos_token }}tool", "default": TEMPLATE}
        one, several = (processor("qwen2_vl", chat_template=t) for t in (TEMPLATE, names))
        assert told(chat(several, [picture()], "Who?")) == told(chat(one, [picture()], "Who?"))

    def test_paligemma_is_told_a_task(self) -> None:
        eyes = transformers.SiglipImageProcessorPil(**SIGHT)
        eyes.image_seq_length = 4
        gemma = transformers.PaliGemmaProcessor(eyes, tokenizer(image="<image>"))
        checkpoint = Checkpoint.of(tiny_prefix.tiny("paligemma"), gemma, packed=False)
        made = inputs_of(checkpoint, [picture()], READ)
        assert told(made) == "<|image_pad|><bos>ocr"
        assert (made["input_ids"] == tiny_prefix.MEDIA).sum() == 4
        assert "labels" not in made
        assert told(inputs_of(checkpoint, [picture()], CAPTION)).endswith("caption en")

    def test_florence_is_told_a_tasks_name(self) -> None:
        family = adapter_for("florence2").FAMILY
        assert family.instructions == {"caption": "<CAPTION>", "read": "<OCR>"}

    def test_a_reader_captions_nothing(self) -> None:
        checkpoint = Checkpoint.of(tiny_prefix.tiny("got_ocr2"), processor("llava"), packed=False)
        with pytest.raises(OptionError, match="got_ocr2 isn't made to caption: expected read"):
            inputs_of(checkpoint, [picture()], CAPTION)
        with pytest.raises(OptionError, match="takes no instruction of yours"):
            inputs_of(checkpoint, [picture()], Instruction("read", "Tables, please."))

    def test_donuts_task_begins_the_answer(self) -> None:
        both = ImageAndText(transformers.ViTImageProcessorPil(**SIGHT), tokenizer())
        checkpoint = Checkpoint.of(tiny_crossing.tiny("donut"), both, packed=False)
        made = inputs_of(checkpoint, [picture()], Instruction("answer", "Who?"))
        assert tokenizer().decode(made["decoder_input_ids"][0]) == "Who?"
        assert set(inputs_of(checkpoint, [picture()], READ)) == {"pixel_values"}

    @pytest.mark.parametrize("name", LOOKING)
    def test_every_family_says_what_it_is_told(self, name: str) -> None:
        family = adapter_for(name).FAMILY
        assert set(family.instructions) <= {"caption", "read"}
        assert family.hears or family.instructions


class TestRefusals:
    @pytest.mark.parametrize("words", ["<|image_pad|>", "a<|image_pad|>b", "<|video_pad|>"])
    def test_a_placeholder_in_the_text(self, checkpoint: Checkpoint, words: str) -> None:
        with pytest.raises(OptionError, match="which stands for an image: expected words"):
            inputs_of(checkpoint, [picture()], Instruction("answer", words))

    def test_one_that_only_the_tokenizer_knows(self) -> None:
        """The processor calls it otherwise, and what counts is the id."""
        named = processor("llava")
        named.image_token = "<another>"
        checkpoint = Checkpoint.of(model("llava"), named, packed=False)
        with pytest.raises(OptionError, match=r"found '<\|image_pad\|>' in the prompt"):
            inputs_of(checkpoint, [picture()], Instruction("answer", "a <|image_pad|>"))

    def test_as_many_places_as_images(self, checkpoint: Checkpoint) -> None:
        made = inputs_of(checkpoint, [picture(), picture(1)], CAPTION)
        assert len(made["image_grid_thw"]) == 2
        assert told(made).count("<open><|image_pad|><close>") == 2

    def test_a_prompt_without_a_place(self) -> None:
        lost = processor("qwen2_vl")
        lost.image_token = None
        lost.chat_template = "{{ bos_token }}nothing"
        checkpoint = Checkpoint.of(model("qwen2_vl"), lost, packed=False)
        with pytest.raises(ModelError, match="leaves the image out of the prompt"):
            inputs_of(checkpoint, [picture()], CAPTION)

    def test_more_images_than_the_family_takes(self) -> None:
        both = ImageAndText(transformers.ViTImageProcessorPil(**SIGHT), tokenizer())
        checkpoint = Checkpoint.of(tiny_crossing.tiny("blip"), both, packed=False)
        with pytest.raises(InputError, match="found 2 images, expected 1"):
            inputs_of(checkpoint, [picture()] * 2, CAPTION)

    def test_why_a_family_has_no_adapter(self) -> None:
        assert why("blip-2").startswith("looks and writes")
        assert why("speech_to_text").startswith("listens and writes")
        assert why("llama") == "reads and writes text only"
        assert why("vit").startswith("writes no text")
        assert "is no family that transformers" in why("nonsense")
