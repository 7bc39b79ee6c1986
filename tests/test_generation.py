"""`generate` and `custom_generate`: what they take, what they tell, what they refuse."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel
from transformers.generation.streamers import BaseStreamer
from transformers.modeling_outputs import BaseModelOutput

import mmspec
from tests.modalities.drafting import FORCED_HIT, same_ids
from tests.modalities.test_whisper_parity import StopAfterCalls
from tests.modalities.tiny import (
    EN,
    EOS,
    NO_TIMES,
    PREVIOUS,
    START,
    TRANSCRIBE,
    english_only,
    features,
    shared,
    tiny,
    tiny_decoder,
    tiny_processor,
)


def one_line(error: BaseException) -> None:
    assert "\n" not in str(error), str(error)


class Collecting(BaseStreamer):
    def __init__(self) -> None:
        self.ids: list[int] = []
        self.ends = 0

    def put(self, value: torch.Tensor) -> None:
        self.ids += value.flatten().tolist()

    def end(self) -> None:
        self.ends += 1


class TestInputs:
    def test_a_processors_output_goes_in_as_it_is(self) -> None:
        want = shared().generate(features(), language="en")
        inputs = {"input_features": features()}
        same_ids(mmspec.generate(shared(), inputs, language="en").sequences, want)
        given = {"inputs": features(), "attention_mask": torch.ones(1, 100, dtype=torch.long)}
        same_ids(mmspec.generate(shared(), given, language="en").sequences, want)

    def test_encoder_states_instead_of_features(self) -> None:
        model = shared()
        with torch.no_grad():
            states = model.get_encoder()(features())
        want = model.generate(encoder_outputs=states, language="en")
        for draft in ("ngram", "early-exit:1", tiny_decoder(2, layers=1)):
            loop = mmspec.custom_generate(draft, gamma=3)
            outputs = BaseModelOutput(last_hidden_state=states.last_hidden_state)
            got = model.generate(encoder_outputs=outputs, custom_generate=loop, language="en")
            same_ids(got, want)
            assert not loop.report.faults
            outputs = BaseModelOutput(last_hidden_state=states.last_hidden_state)
            made = mmspec.generate(model, {"encoder_outputs": outputs}, draft, language="en")
            same_ids(made.sequences, want)

    def test_a_drafter_with_ears_of_its_own_needs_features(self) -> None:
        model = shared()
        with torch.no_grad():
            states = model.get_encoder()(features())
        loop = mmspec.custom_generate(shared(11), gamma=3)
        with pytest.raises(
            mmspec.MMSpecError, match=r"draft: .*only the target's encoder"
        ) as error:
            model.generate(encoder_outputs=states, custom_generate=loop, language="en")
        one_line(error.value)

    def test_a_generation_config_is_taken_as_it_is(self) -> None:
        model = shared()
        config = model.generation_config.__class__.from_dict(model.generation_config.to_dict())
        config.max_new_tokens, config.no_repeat_ngram_size = 9, 2
        want = model.generate(features(), generation_config=config, language="en")
        got = mmspec.generate(
            model, features(), draft="ngram", gamma=3, generation_config=config, language="en"
        )
        same_ids(got.sequences, want)


class TestStreaming:
    @pytest.mark.parametrize("draft", ["none", "ngram", "early-exit:1"])
    def test_committed_ids_arrive_one_by_one(self, draft: str) -> None:
        streamer = Collecting()
        made = mmspec.generate(
            shared(), features(), draft, gamma=3, streamer=streamer, language="en"
        )
        emitted = streamer.ids[-made.report.tokens :]
        assert emitted[: made.sequences.shape[1]] == made.sequences[0].tolist()
        assert streamer.ends == 1

    def test_the_same_ids_as_transformers_streams(self) -> None:
        mine, theirs = Collecting(), Collecting()
        shared().generate(features(), language="en", streamer=theirs)
        mmspec.generate(shared(), features(), "ngram", gamma=3, streamer=mine, language="en")
        assert mine.ids == theirs.ids


class TestReports:
    def test_counts_add_up(self) -> None:
        report = mmspec.generate(shared(), features(), shared(11), gamma=3, language="en").report
        assert report.tokens == report.accepted + report.recovered + report.bonus
        assert report.rounds <= report.target_forwards <= report.rounds + 1
        assert report.encoder_runs == 0  # transformers ran it before the loop began
        assert report.drafter_encoder_runs == 1
        assert report.parity == "L0"
        assert set(report.drafters) == {"model"}
        assert report.drafters["model"].conditioning == "own"

    def test_same_weights_are_accepted_whole(self) -> None:
        made = mmspec.generate(shared(), features(), shared(), gamma=4, language="en")
        assert made.report.accepted == made.report.proposed
        assert made.report.mean_acceptance_length >= 2  # it stops after a unit it isn't sure of
        assert made.report.drafters["model"].conditioning == "shared"

    def test_every_go_at_a_window_has_its_own(self) -> None:
        made = mmspec.generate(
            shared(5), features(), "ngram", gamma=3, language="en", return_timestamps=True
        )
        assert len(made.reports) == 3
        with pytest.raises(mmspec.MMSpecError, match="3 reports"):
            _ = made.report

    def test_a_loop_tells_of_its_last_call_and_of_all(self) -> None:
        loop = mmspec.custom_generate("ngram", gamma=3)
        with pytest.raises(mmspec.MMSpecError, match="0 rows"):
            _ = loop.report
        for _ in range(2):
            shared().generate(features(), custom_generate=loop, language="en")
        assert len(loop.reports) == 1
        assert len(loop.history) == 2
        shared().generate(features(rows=2), custom_generate=loop, language="en")
        with pytest.raises(mmspec.MMSpecError, match="2 rows"):
            _ = loop.report


class TestOrdinaryDecoding:
    """What can't be taken apart is left to transformers' own loop, and that is told."""

    def check(self, because: str, batch: Any, options: dict[str, Any]) -> None:
        loop = mmspec.custom_generate("ngram", gamma=3)
        got = shared().generate(batch, custom_generate=loop, **options)
        want = shared().generate(batch, **options)
        if not isinstance(want, torch.Tensor):
            got, want = got["sequences"], want["sequences"]
        same_ids(got, want)
        assert because in str(loop.ordinary)
        assert loop.reports == ()

    def test_a_padded_prompt(self) -> None:
        for prompts in (
            [[EOS, 50, 51, 53, 56]],
            [[EOS, 50, 51, 53, 56], [PREVIOUS, 50, 51, 53, 56]],
        ):
            ids = torch.tensor(prompts)
            mask = (ids != EOS).long()
            options = {"decoder_input_ids": ids, "decoder_attention_mask": mask}
            options["max_new_tokens"] = 6
            self.check("padded", features(rows=len(ids)), options)

    def test_attentions(self) -> None:
        options = {
            "language": "en",
            "return_dict_in_generate": True,
            "output_hidden_states": True,
        }
        self.check("hidden states", features(), options)

    def test_token_times(self) -> None:
        model = tiny(1, attention="eager", says={"alignment_heads": [[0, 0], [1, 1]]})
        options = {"language": "en", "return_token_timestamps": True}
        want = model.generate(features(), **options)
        loop = mmspec.custom_generate("ngram", gamma=3)
        got = model.generate(features(), custom_generate=loop, **options)
        same_ids(got["sequences"], want["sequences"])
        torch.testing.assert_close(got["token_timestamps"], want["token_timestamps"])

    def test_a_batch_with_an_unknown_criterion(self) -> None:
        loop = mmspec.custom_generate("ngram", gamma=3)
        asked = {"language": "en"}
        got = shared().generate(
            features(rows=2), custom_generate=loop, stopping_criteria=[StopAfterCalls(7)], **asked
        )
        want = shared().generate(features(rows=2), stopping_criteria=[StopAfterCalls(7)], **asked)
        same_ids(got, want)
        assert "StopAfterCalls" in str(loop.ordinary)

    def test_a_batch_with_a_penalty_beside_a_mask(self) -> None:
        """transformers' penalty then holds how much padding each row has, where there is none."""
        ids = torch.tensor([[START, EN, TRANSCRIBE, NO_TIMES]] * 2)
        options = {"decoder_input_ids": ids, "decoder_attention_mask": torch.ones_like(ids)}
        options |= {"repetition_penalty": 1.3, "max_new_tokens": 6}
        self.check("RepetitionPenalty", torch.cat([features(5), features(6)]), options)

    def test_a_seed_is_not_silently_dropped(self) -> None:
        with pytest.raises(mmspec.MMSpecError, match="seed") as error:
            mmspec.generate(
                shared(),
                features(rows=2),
                seed=3,
                language="en",
                temperature=1.0,
                stopping_criteria=[StopAfterCalls(7)],
            )
        one_line(error.value)

    def test_a_batch_with_penalties_is_still_taken_apart(self) -> None:
        options = {"language": "en", "repetition_penalty": 1.3, "no_repeat_ngram_size": 3}
        batch = torch.cat([features(5), features(6)])
        made = mmspec.generate(shared(), batch, "ngram", gamma=3, **options)
        same_ids(made.sequences, shared().generate(batch, **options))
        assert len(made.reports) >= 2


class TestThresholds:
    """transformers' fallbacks call the loop again; they go on working."""

    def test_a_failed_threshold_with_one_temperature_keeps_the_output(self) -> None:
        options = {"language": "en", "logprob_threshold": 0.0, "temperature": 0.0}
        want = shared().generate(features(), **options)
        got = mmspec.generate(shared(), features(), "ngram", gamma=3, **options)
        same_ids(_ids(got.sequences), _ids(want))

    def test_no_speech_detection_observes_and_changes_nothing(self) -> None:
        options = {"language": "en", "logprob_threshold": -5.0, "no_speech_threshold": 0.9}
        options |= {"return_timestamps": True, "temperature": 0.0}
        want = shared().generate(features(), **options)
        got = mmspec.generate(shared(), features(), shared(11), gamma=3, **options)
        same_ids(_ids(got.sequences), _ids(want))

    def test_when_every_temperature_fails_the_last_output_is_kept(self) -> None:
        options = {"language": "en", "logprob_threshold": 0.0, "temperature": (0.0, 0.4, 0.8)}
        made = mmspec.generate(shared(), features(), "ngram", gamma=3, seed=2, **options)
        again = mmspec.generate(shared(), features(), "none", seed=2, **options)
        same_ids(_ids(made.sequences), _ids(again.sequences))
        assert len(made.reports) == len(again.reports)
        assert len(made.reports) % 3 == 0


def _ids(output: Any) -> torch.Tensor:
    return output if isinstance(output, torch.Tensor) else output["sequences"]


class TestRefusals:
    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"gamma": -1}, "gamma must be 0 or more, got -1"),
            ({"gamma": "fast"}, "gamma must be 'adaptive' or a number"),
            ({"draft": "early-exit"}, "expected early-exit:N"),
            ({"draft": "early-exit:3"}, "1 to 2"),
            ({"draft": "early-exit:0"}, "1 to 2"),
            ({"draft": "no/such/place"}, "draft: .*no such directory"),
            ({"draft": 7}, "draft: expected a name"),
            ({"num_beams": 2}, "num_beams=1"),
        ],
    )
    def test_options(self, options: dict[str, Any], says: str) -> None:
        with pytest.raises(mmspec.MMSpecError, match=says) as error:
            mmspec.generate(shared(), features(), language="en", **options)
        one_line(error.value)

    def test_another_family_is_refused_with_the_known_ones(self) -> None:
        model = GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=1, n_embd=8, vocab_size=20)).eval()
        with pytest.raises(mmspec.MMSpecError, match=r"'gpt2'; mmspec knows: .*whisper") as error:
            mmspec.generate(model, torch.tensor([[1, 2]]))
        one_line(error.value)

    def test_training_mode(self) -> None:
        model = tiny(1).train()
        with pytest.raises(mmspec.MMSpecError, match=r"training mode: call \.eval") as error:
            mmspec.generate(model, features(), language="en")
        one_line(error.value)
        drafter = tiny(1).train()
        with pytest.raises(mmspec.MMSpecError, match="training mode") as error:
            mmspec.generate(shared(), features(), drafter, language="en")
        one_line(error.value)

    def test_another_vocabulary_without_processors(self) -> None:
        drafter = tiny(2, says={"no_timestamps_token_id": 48})
        with pytest.raises(mmspec.MMSpecError, match=r"108 tokens.*mark 48.*load both") as error:
            mmspec.generate(shared(), features(), drafter, language="en")
        one_line(error.value)

    def test_a_decoder_of_another_width(self) -> None:
        with pytest.raises(mmspec.MMSpecError, match="target's width 16, this one has 24") as error:
            mmspec.generate(shared(), features(), tiny_decoder(2, width=24), language="en")
        one_line(error.value)

    def test_a_generation_config_without_a_start(self) -> None:
        model = tiny(1)
        model.generation_config.decoder_start_token_id = None
        with pytest.raises(mmspec.MMSpecError, match="decoder_start_token_id") as error:
            mmspec.load(model)
        one_line(error.value)

    def test_marks_outside_the_vocabulary(self) -> None:
        model = tiny(1)
        model.generation_config.no_timestamps_token_id = 500
        with pytest.raises(mmspec.MMSpecError, match="500") as error:
            mmspec.generate(model, features(), return_timestamps=False, max_new_tokens=2)
        one_line(error.value)

    def test_a_rule_that_does_not_go_with_the_sampling(self) -> None:
        for rule, options in (("block", {}), ("greedy", {"temperature": 1.0})):
            loop = mmspec.custom_generate("ngram", rule=rule)
            with pytest.raises(mmspec.MMSpecError, match="doesn't go with") as error:
                shared().generate(features(), custom_generate=loop, language="en", **options)
            one_line(error.value)
        loop = mmspec.custom_generate("ngram", rule="best")
        with pytest.raises(mmspec.MMSpecError, match="unknown acceptance rule"):
            shared().generate(features(), custom_generate=loop, language="en")


@pytest.mark.parametrize("kind", [list, tuple, torch.tensor, np.array])
def test_a_hypothesis_may_be_the_row_that_generate_returned(kind: Callable[[Any], Any]) -> None:
    want = shared().generate(features(), language="en")
    made = mmspec.generate(
        shared(),
        features(),
        "hypothesis",
        gamma=4,
        hypothesis=kind(want[0].tolist()),
        language="en",
    )
    same_ids(made.sequences, want)
    assert made.report.accepted > 0


@pytest.mark.parametrize("wrong", [torch.tensor([[5, 6]]), [0.5], "a text"])
def test_a_hypothesis_that_is_no_row_of_ids(wrong: Any) -> None:
    with pytest.raises(mmspec.MMSpecError, match="expected one row of ids") as error:
        mmspec.generate(shared(), features(), "hypothesis", hypothesis=wrong, language="en")
    one_line(error.value)


def test_a_forced_hit_is_proposed() -> None:
    made = mmspec.generate(
        shared(), features(), "ngram", gamma=4, language="en", prompt_ids=FORCED_HIT
    )
    assert made.report.proposed >= 3


def test_a_processor_bridges_to_another_tokenizer(tmp_path: Any) -> None:
    """A drafter named by its directory brings its processor; the target's is given."""
    from tests.modalities.tiny import TEXT_PIECES, saved

    pieces = ("Ġ", *TEXT_PIECES[:26][::-1], *TEXT_PIECES[27:])
    drafter = saved(tmp_path / "drafter", tiny(3), tiny_processor(pieces=pieces))
    made = mmspec.generate(
        shared(), features(), str(drafter), gamma=3, processor=tiny_processor(), language="en"
    )
    same_ids(made.sequences, shared().generate(features(), language="en"))
    assert not made.report.faults
    assert made.report.proposed > 0


def test_english_only_drafts_for_english_only() -> None:
    model = english_only()
    made = mmspec.generate(model, features(), english_only(4), gamma=3)
    same_ids(made.sequences, model.generate(features()))
    assert not made.reports[0].faults
