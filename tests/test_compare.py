"""Peers: the same recording by others, ids compared, times put in relation, nothing left behind."""

from __future__ import annotations

import copy
import time
from typing import Any

import pytest
import torch
from transformers import WhisperForConditionalGeneration

from mmspec.compare.comparison import Comparer, ratio
from mmspec.compare.differences import first_difference
from mmspec.compare.peers import DecodeWatch, Outcome, Unavailable, untouched
from mmspec.drafting import draft_for
from mmspec.errors import OptionError
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.request import TranscriptionRequest
from mmspec.tasks.asr.peers import MMSpecPeer, TransformersPeer, assisted, quiet
from mmspec.tasks.asr.transcriber import Transcriber
from tests.modalities.tiny import speech, tiny, tiny_processor

PEERS = ("plain", "hf", "hf-assisted")


def transcriber(draft: Any = "none", gamma: int | str = 3) -> Transcriber:
    whisper = Whisper.of(tiny(1), tiny_processor())
    if draft == "model":
        from mmspec.modalities.whisper.draft import ModelDraft

        kind: Any = ModelDraft(whisper, Whisper.of(tiny(2), tiny_processor()))
    else:
        kind = draft_for(draft, whisper, False)
    return Transcriber(whisper, kind, gamma)


def compared(
    ours: Transcriber, request: TranscriptionRequest, peers: Any = PEERS
) -> dict[str, Any]:
    outcome = MMSpecPeer(ours, "ours").run(speech(), request)
    return Comparer(ours, peers).compare(speech(), request, outcome)


class TestPeers:
    @pytest.mark.parametrize("draft", ["none", "ngram", "early-exit:1", "model"])
    @pytest.mark.parametrize("timestamps", [False, True])
    def test_ids_equal_plain_decoding_and_generate(self, draft: str, timestamps: bool) -> None:
        request = TranscriptionRequest(language="en", timestamps=timestamps)
        found = compared(transcriber(draft), request)
        for peer in ("plain", "hf"):
            assert found[peer].ids_equal, found[peer]
            assert found[peer].first_difference is None
            assert found[peer].decode_ratio > 0
            assert found[peer].end_to_end_ratio > 0

    @pytest.mark.parametrize("timestamps", [False, True])
    def test_a_prompt_and_a_limit_are_handed_on(self, timestamps: bool) -> None:
        request = TranscriptionRequest(
            "de", "translate", timestamps, prompt=" the cat ", max_new_tokens=5
        )
        found = compared(transcriber("ngram"), request, ["plain", "hf"])
        assert all(peer.ids_equal for peer in found.values()), found

    def test_assistance_has_the_same_drafter(self) -> None:
        for draft, wanted in (("ngram", "prompt_lookup_num_tokens"), ("model", "assistant_model")):
            peer = assisted(transcriber(draft))
            assert isinstance(peer, TransformersPeer)
            assert list(peer._assistance) == [wanted]
        found = compared(transcriber("ngram"), TranscriptionRequest(language="en"))["hf-assisted"]
        assert found.available, found.why

    def test_another_tokenizer_is_handed_on(self) -> None:
        whisper = Whisper.of(tiny(1), tiny_processor())
        pieces = tuple(reversed(("a", "b", "c", "d", "e", "the", "Ġ", "t", "h", "th")))
        other = tiny_processor(pieces=pieces)
        ours = transcriber("model")
        ours.draft.drafter = Whisper.of(tiny(2), other)  # type: ignore[attr-defined]
        peer = assisted(ours)
        assert isinstance(peer, TransformersPeer)
        assert {"tokenizer", "assistant_tokenizer"} < set(peer._assistance)
        assert whisper.processor is not other

    @pytest.mark.parametrize(
        ("draft", "why"),
        [
            ("none", "no drafter"),
            ("early-exit:1", "no early-exit"),
            ("hypothesis", "no hypothesis"),
        ],
    )
    def test_what_transformers_has_not_is_named(self, draft: str, why: str) -> None:
        peer = assisted(transcriber(draft))
        assert isinstance(peer, Unavailable)
        assert why in str(peer.why_not)
        with pytest.raises(OptionError, match=why):
            peer.run(speech(), TranscriptionRequest())

    def test_a_peer_that_raises_is_an_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: Any, **__: Any) -> None:
            raise ValueError("\nit\nbroke")

        monkeypatch.setattr(WhisperForConditionalGeneration, "generate", broken)
        found = compared(transcriber(), TranscriptionRequest(), ["hf"])["hf"]
        assert found.to_dict() == {"available": False, "why": "hf raised ValueError: it"}

    def test_unknown_peers(self) -> None:
        with pytest.raises(OptionError, match="found 'whisperx', expected names among plain, hf"):
            Comparer(transcriber(), ["whisperx"])


class TestSampling:
    def test_other_noise_is_no_comparison(self) -> None:
        found = compared(transcriber(), TranscriptionRequest(temperature=1.0))
        assert not any(peer.available for peer in found.values())
        assert all("can't be compared" in str(found[peer].why) for peer in ("plain", "hf"))

    def test_a_seed_makes_plain_comparable(self) -> None:
        found = compared(transcriber("model"), TranscriptionRequest(temperature=1.0, seed=4))
        assert found["plain"].ids_equal
        assert not found["hf"].available


class TestDifferences:
    def test_where_and_how_far_apart(self) -> None:
        ours, request = transcriber(), TranscriptionRequest(language="en")
        heard = MMSpecPeer(ours, "ours").run(speech(), request)
        changed = (*heard.ids[:2], (heard.ids[2] + 1) % 40, *heard.ids[3:])
        other = Outcome(changed, "", 1.0, 1.0)
        found = Comparer(ours, ["hf"]).difference(speech(), request, heard, other)
        assert found is not None
        assert (found.index, found.ours, found.peer) == (2, heard.ids[2], changed[2])
        assert found.gap is not None
        assert found.gap > 1e-3
        assert not found.tie
        shorter = Outcome(heard.ids[:-1], "", 1.0, 1.0)
        found = Comparer(ours, ["hf"]).difference(speech(), request, heard, shorter)
        assert found is not None
        assert (found.index, found.peer) == (len(heard.ids) - 1, None)

    def test_a_tie_is_named(self) -> None:
        ours, request = transcriber(), TranscriptionRequest(language="en")
        peer = MMSpecPeer(ours, "ours")
        first = peer.run(speech(), request).ids[0]
        twin = 5 if first != 5 else 6
        with torch.no_grad():  # two tokens that the target can't tell apart
            weights = ours.model.get_output_embeddings().weight
            weights[twin] = weights[first]
        heard = peer.run(speech(), request)
        (peer,) = {first, twin} - {heard.ids[0]}
        other = Outcome((peer, *heard.ids[1:]), "", 1.0, 1.0)
        found = Comparer(ours, ["hf"]).difference(speech(), request, heard, other)
        assert found is not None
        assert (found.index, found.tie) == (0, True)

    @pytest.mark.parametrize(
        ("ours", "peer", "index"),
        [((), (), None), ((1,), (), 0), ((1, 2), (1, 2), None), ((1, 2), (1, 3), 1)],
    )
    def test_first_difference(self, ours: Any, peer: Any, index: int | None) -> None:
        assert first_difference(ours, peer) == index

    def test_nothing_timed_is_no_ratio(self) -> None:
        assert ratio(0.0, 1.0) is None
        assert ratio(1.0, 0.0) is None
        assert ratio(3.0, 2.0) == 1.5


class TestWatch:
    def test_windows_add_up_and_prompts_are_not_tokens(self) -> None:
        watch = DecodeWatch()
        for prompt in ((1, 2), (3,)):
            time.sleep(0.05)
            watch.put(torch.tensor([prompt]))
            time.sleep(0.05)  # the prefill isn't counted
            watch.put(torch.tensor([7]))
            time.sleep(0.01)
            watch.put(torch.tensor([8, 9]))
            watch.end()
        assert watch.prompts == [(1, 2), (3,)]
        assert 0.02 <= watch.decode_s < 0.09

    def test_nothing_but_a_prompt(self) -> None:
        watch = DecodeWatch()
        watch.put(torch.tensor([[1]]))
        watch.end()
        assert watch.decode_s == 0

    def test_the_prompt_is_what_transformers_builds(self) -> None:
        ours = transcriber()
        peer = TransformersPeer(ours.model, ours.processor, "hf")
        steps = ours.descriptor
        wanted = steps.prompt(language=51, task="transcribe", timestamps=False)
        assert (
            peer.prompt(speech(), TranscriptionRequest(language="en", task="transcribe")) == wanted
        )


class TestNothingIsLeftBehind:
    def test_configs_are_as_before(self) -> None:
        ours = transcriber("model")
        models = [ours.model, ours.drafter_model]
        before = [copy.deepcopy(vars(model.generation_config)) for model in models]
        linears = [vars(module).keys() for module in ours.model.modules()]
        compared(ours, TranscriptionRequest(language="en"))
        assert [vars(model.generation_config) for model in models] == before
        assert [vars(module).keys() for module in ours.model.modules()] == linears

    def test_also_where_the_peer_raises(self) -> None:
        model = tiny(1)

        def write_and_raise() -> None:
            with untouched([model, None]):
                model.generation_config.force_unique_generate_call = True
                raise RuntimeError("stop")

        with pytest.raises(RuntimeError, match="stop"):
            write_and_raise()
        assert not hasattr(model.generation_config, "force_unique_generate_call")

    def test_verbosity_is_given_back(self) -> None:
        from transformers.utils import logging

        before = logging.get_verbosity()
        with quiet():
            assert logging.get_verbosity() == logging.ERROR
        assert logging.get_verbosity() == before
