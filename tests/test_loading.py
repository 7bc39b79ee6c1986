"""From a name to a checkpoint, or to one line that says what is wrong and how to go on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import mmspec
from mmspec.loading import load_whisper
from tests.modalities.tiny import saved, shared, tiny, tiny_processor
from tests.test_generation import one_line


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("tiny") / "whisper", tiny(1))


def refused(name: Any, says: str, **options: Any) -> None:
    with pytest.raises(mmspec.MMSpecError, match=says) as error:
        mmspec.load(name, **options)
    one_line(error.value)
    assert str(error.value).startswith(("target: ", "draft: ", "dtype", "gamma", "target: dtype"))


class TestDirectories:
    def test_a_checkpoint_loads_as_it_was_saved(self, checkpoint: Path) -> None:
        for name in (checkpoint, str(checkpoint)):
            whole = mmspec.load(name)
            torch.testing.assert_close(whole.model.state_dict(), shared(1).state_dict())
            assert not whole.model.training
            assert whole.model.dtype == torch.float32
            assert whole.descriptor.vocab_size == 108

    @pytest.mark.parametrize("dtype", ["bfloat16", torch.bfloat16])
    def test_a_dtype(self, checkpoint: Path, dtype: Any) -> None:
        assert mmspec.load(checkpoint, dtype=dtype).model.dtype == torch.bfloat16

    @pytest.mark.parametrize("dtype", ["int8", "no-such", "load"])
    def test_no_dtype(self, checkpoint: Path, dtype: str) -> None:
        refused(checkpoint, "expected float32, float16 or bfloat16", dtype=dtype)

    def test_a_missing_directory(self, tmp_path: Path) -> None:
        refused(tmp_path / "nothing", "nothing: no such directory")
        refused("./nothing/there", "no such directory")
        refused("nothing", "no such directory")

    def test_a_file(self, tmp_path: Path) -> None:
        path = tmp_path / "model.bin"
        path.write_bytes(b"x")
        refused(path, "expected a directory with a checkpoint, found a file")

    def test_a_missing_vocabulary(self, checkpoint: Path, tmp_path: Path) -> None:
        shutil.copytree(checkpoint, tmp_path / "whisper")
        for name in ("tokenizer.json", "vocab.json"):
            (tmp_path / "whisper" / name).unlink(missing_ok=True)
        refused(tmp_path / "whisper", "found a tokenizer without a vocabulary")

    def test_no_config(self, tmp_path: Path) -> None:
        refused(tmp_path, "no config.json in this directory")

    @pytest.mark.parametrize("content", ["{", "{}", "[]", "7", "\x00", '{"model_type": [1]}'])
    def test_a_config_without_a_type(self, tmp_path: Path, content: str) -> None:
        (tmp_path / "config.json").write_text(content)
        refused(tmp_path, "names no model_type")

    def test_another_family(self, tmp_path: Path) -> None:
        (tmp_path / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
        refused(tmp_path, "no adapter for model type 'gpt2'; mmspec knows: .*whisper")

    def test_pickled_weights_are_not_opened(self, checkpoint: Path, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> Any:
                return (os.mkdir, (str(tmp_path / "sprung"),))

        folder = saved(tmp_path / "pickled", tiny(1))
        (folder / "model.safetensors").unlink()
        torch.save({"weight": Trap()}, folder / "pytorch_model.bin")
        refused(folder, r"no \*.safetensors; mmspec doesn't load pickled weights")
        assert not (tmp_path / "sprung").exists()

    def test_broken_weights(self, checkpoint: Path, tmp_path: Path) -> None:
        folder = saved(tmp_path / "broken", tiny(1))
        whole = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
        refused(folder, "broken: can't be loaded")

    def test_no_processor(self, checkpoint: Path, tmp_path: Path) -> None:
        tiny(1).save_pretrained(tmp_path / "bare")
        refused(tmp_path / "bare", "bare: can't be loaded")

    def test_remote_code_stays_off(self, checkpoint: Path, tmp_path: Path) -> None:
        folder = saved(tmp_path / "code", tiny(1))
        config = json.loads((folder / "config.json").read_text())
        config["auto_map"] = {"AutoConfig": "trap.Config"}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "trap.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w').close()\n")
        mmspec.load(folder)
        assert not (tmp_path / "sprung").exists()


class TestPairs:
    def test_a_drafter_is_named_in_its_error(self, checkpoint: Path, tmp_path: Path) -> None:
        refused(checkpoint, "draft: .*no such directory", draft=str(tmp_path / "nothing"))
        refused(checkpoint, "draft: .*no config.json", draft=str(tmp_path))
        refused(checkpoint, "draft: found an empty name", draft="")

    def test_a_tokenizer_that_shares_nothing(self, checkpoint: Path, tmp_path: Path) -> None:
        processor = tiny_processor()
        strange = tmp_path / "strange"
        saved(strange, tiny(2), processor)
        table = json.loads((strange / "tokenizer.json").read_text())
        table["model"]["vocab"] = {
            f"~{index}": index for index in range(len(table["model"]["vocab"]))
        }
        table["model"]["merges"] = []
        table["added_tokens"] = []
        (strange / "tokenizer.json").write_text(json.dumps(table))
        with pytest.raises(mmspec.MMSpecError, match="draft: ") as error:
            mmspec.load(checkpoint, str(strange))
        one_line(error.value)

    @pytest.mark.parametrize(
        ("draft", "says"),
        [
            ("early-exit", "early-exit:N"),
            ("early-exit:x", "early-exit:N"),
            ("early-exit:-1", "early-exit:N"),
            ("early-exit:3", "1 to 2"),
            ("n-gram", "no such directory"),
        ],
    )
    def test_names_that_are_none(self, checkpoint: Path, draft: str, says: str) -> None:
        with pytest.raises(mmspec.MMSpecError, match=says) as error:
            mmspec.load(checkpoint, draft)
        one_line(error.value)

    @pytest.mark.parametrize("gamma", [-1, "-3", "many", None, 1.5])
    def test_gammas_that_are_none(self, checkpoint: Path, gamma: Any) -> None:
        with pytest.raises(mmspec.MMSpecError, match="gamma must be") as error:
            mmspec.load(checkpoint, gamma=gamma)
        one_line(error.value)

    def test_what_is_known_of_a_pair(self, checkpoint: Path) -> None:
        with mmspec.load(checkpoint, str(checkpoint)) as whole:
            assert whole.shares_encoder
            assert whole.drafter_model is not None
            assert whole.drafter_processor is not None
        with mmspec.load(checkpoint, "ngram") as whole:
            assert whole.draft_name == "ngram"
            assert whole.drafter_model is None
            assert not whole.shares_encoder


class TestObjects:
    def test_a_loaded_model(self) -> None:
        model = tiny(1)
        assert mmspec.load(model).model is model

    def test_no_model_at_all(self) -> None:
        refused(7, "expected a name, a directory or a model, got int")

    def test_training_mode(self) -> None:
        refused(tiny(1).train(), r"training mode: call \.eval")


def test_a_hub_that_gives_nothing(tmp_path: Path) -> None:
    """In a process of its own: the hub client reads its switches when it is imported."""
    code = (
        "import mmspec\n"
        "try:\n"
        "    mmspec.load('nobody/whisper-nothing')\n"
        "except mmspec.MMSpecError as error:\n"
        "    print(error)\n"
    )
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = done.stdout.splitlines()
    assert len(lines) == 1
    assert "nobody/whisper-nothing: not in the local cache" in lines[0]
    assert "'sample'" in lines[0]


def test_a_processor_comes_with_a_directory(checkpoint: Path) -> None:
    whisper = load_whisper(checkpoint)
    assert whisper.processor.tokenizer.get_vocab() == tiny_processor().tokenizer.get_vocab()
    assert whisper.window_s == 1.0


class TestWholeness:
    def test_a_config_of_more_layers_than_there_are_weights(
        self, checkpoint: Path, tmp_path: Path
    ) -> None:
        shutil.copytree(checkpoint, tmp_path / "more")
        path = tmp_path / "more" / "config.json"
        facts = json.loads(path.read_text())
        facts["decoder_layers"] += 1
        facts.pop("num_hidden_layers", None)
        path.write_text(json.dumps(facts))
        says = r"found no weights for \d+ of the parameters .*layers\.3.*expected all"
        refused(tmp_path / "more", says)
        with pytest.raises(mmspec.MMSpecError, match=says):
            mmspec.load(checkpoint, tmp_path / "more")

    def test_what_no_decoding_reads_may_be_missing(
        self, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from transformers import WhisperForConditionalGeneration as Kind

        real = Kind.from_pretrained

        def without_pooler(*args: Any, **options: Any) -> Any:
            model, found = real(*args, **options)
            return model, {**found, "missing_keys": {"vision_model.pooler.dense.weight"}}

        monkeypatch.setattr(Kind, "from_pretrained", without_pooler)
        mmspec.load(checkpoint).close()
