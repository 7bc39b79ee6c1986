"""What a decoding run reads, writes and leaves behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import LogitsProcessor

import mmspec
from mmspec.engine import Session
from mmspec.modalities.base.decoder import DecoderTarget
from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.proposals import ModelDrafter

from .drafting import DRAFTERS, drafter_options, emitted, same_ids
from .tiny import EN, NO_TIMES, START, TRANSCRIBE, features, shared, tiny

PROMPT = [START, EN, TRANSCRIBE, NO_TIMES]
BLOCK = [7, 31, 4, 60, 12, 9]
MODES = [("sdpa", True), ("sdpa", False), ("eager", True)]


def opened(model: Any, packed: bool = True) -> tuple[DecoderTarget, Tensor]:
    whisper = Whisper.of(model, packed=packed)
    states = whisper.encode(features())
    return whisper.open(states), states


@contextmanager
def counting(modules: list[nn.Module]) -> Iterator[list[int]]:
    """Count calls without hooks, which would turn the faster passes off."""
    calls = [0]

    def wrap(forward: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            calls[0] += 1
            return forward(*args, **kwargs)

        return counted

    for module in modules:
        module.forward = wrap(module.forward)
    try:
        yield calls
    finally:
        for module in modules:
            del module.forward


def cross_projections(model: Any) -> list[nn.Module]:
    return [layer.encoder_attn.k_proj for layer in model.get_decoder().layers]


class TestBlocks:
    @pytest.mark.parametrize(("attention", "packed"), MODES)
    @pytest.mark.parametrize("read", [1, 2, 4])
    def test_every_row_is_the_full_forward_without_cache(
        self, attention: str, packed: bool, read: int
    ) -> None:
        model = tiny(1, attention=attention)
        target, states = opened(model, packed)
        target.score(PROMPT[:read], keep=0)
        rows = target.score([*PROMPT[read:], *BLOCK], keep=len(BLOCK))
        target.close()
        with torch.no_grad():
            full = model(
                encoder_outputs=(states,),
                decoder_input_ids=torch.tensor([[*PROMPT, *BLOCK]]),
                use_cache=False,
            ).logits[0, -len(BLOCK) :]
        torch.testing.assert_close(rows, full, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize(("attention", "packed"), MODES)
    def test_no_row_depends_on_a_later_drafted_unit(self, attention: str, packed: bool) -> None:
        model = tiny(1, attention=attention)
        target, _ = opened(model, packed)
        target.score(PROMPT, keep=1)
        for last in range(len(BLOCK)):
            seen = []
            for token in (3, 44, 90):
                block = [*BLOCK[:last], token, *BLOCK[last + 1 :]]
                seen.append(target.score(block, keep=len(block)))
                target.state.rollback(len(PROMPT))
            for rows in seen[1:]:
                torch.testing.assert_close(rows[:last], seen[0][:last], rtol=0, atol=1e-6)
                assert not torch.allclose(rows[last], seen[0][last])
        target.close()

    def test_a_step_back_and_again_gives_the_same_rows(self) -> None:
        target, _ = opened(shared())
        target.score(PROMPT, keep=1)
        before = target.score(BLOCK, keep=len(BLOCK))
        target.state.rollback(len(PROMPT))
        target.score([88, 20, 3], keep=3)
        target.state.rollback(len(PROMPT))
        after = target.score(BLOCK, keep=len(BLOCK))
        target.close()
        torch.testing.assert_close(after, before, rtol=0, atol=0)


class TestConditioning:
    @pytest.mark.parametrize("drafter", ["none", "ngram", "early-exit:1", "other-seed"])
    def test_cross_attention_is_projected_once_per_window(self, drafter: str) -> None:
        model = tiny(1)
        chosen = drafter_options(drafter, model, [])
        with counting(cross_projections(model)) as calls:
            mmspec.generate(model, features(), gamma=3, language="en", **chosen)
        assert calls[0] == model.config.decoder_layers

    def test_once_per_go_where_a_window_takes_several(self) -> None:
        model = tiny(5)
        with counting(cross_projections(model)) as calls:
            made = mmspec.generate(
                model, features(), draft="ngram", gamma=3, language="en", return_timestamps=True
            )
        assert len(made.reports) == 3
        assert calls[0] == 3 * model.config.decoder_layers

    @pytest.mark.parametrize(
        ("drafter", "drafter_runs"), [("other-seed", 1), ("larger", 1), ("shared-encoder", 0)]
    )
    def test_every_encoder_runs_once_and_a_shared_one_not_again(
        self, drafter: str, drafter_runs: int
    ) -> None:
        model = tiny(1)
        chosen = drafter_options(drafter, model, [])
        encoders = [model.get_encoder()], [chosen["draft"].get_encoder()]
        with counting(encoders[0]) as target_runs, counting(encoders[1]) as runs:
            made = mmspec.generate(model, features(), gamma=3, language="en", **chosen)
        assert target_runs[0] == 1
        assert runs[0] == drafter_runs == made.report.drafter_encoder_runs

    def test_an_unused_drafter_costs_no_encoder_run(self) -> None:
        drafter = tiny(11)
        with counting([drafter.get_encoder()]) as runs:
            mmspec.generate(shared(), features(), draft=drafter, gamma=0, language="en")
        assert runs[0] == 0

    @pytest.mark.parametrize("drafter", ["same-weights", "other-seed", "early-exit:1"])
    def test_conditioning_stays_where_it_is(
        self, drafter: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Nothing copies or crops cross-attention keys and values (D7), in no round."""
        seen: set[tuple[int, int]] = set()
        growing: set[int] = set()
        whole_round = Session.steps

        def watched(session: Session) -> Any:
            tokens = yield from whole_round(session)
            cache = session._target.state.cache
            for layer in cache.cross_attention_cache.layers:  # type: ignore[attr-defined]
                for tensor in (layer.keys, layer.values):
                    seen.add((tensor.data_ptr(), tensor.shape[2]))
            for layer in cache.self_attention_cache.layers:  # type: ignore[attr-defined]
                growing.add(layer.keys.data_ptr())
            return tokens

        monkeypatch.setattr(Session, "steps", watched)
        model = shared()
        mmspec.generate(
            model, features(), gamma=4, language="en", **drafter_options(drafter, model, [])
        )
        layers = model.config.decoder_layers
        assert len(seen) == 2 * layers
        assert {length for _, length in seen} == {model.config.max_source_positions}
        assert len(growing) == layers  # written in place: never reallocated


@pytest.mark.parametrize(
    "drafter", ["same-weights", "other-seed", "larger", "early-exit:2", "ngram"]
)
@pytest.mark.parametrize("timestamps", [False, True])
def test_slots_past_the_committed_length_are_never_read(
    drafter: str, timestamps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole_round, whole_propose = Session.steps, ModelDrafter.propose

    def poisoned_round(session: Session) -> Any:
        session._target.state.poison_unused()
        return whole_round(session)

    def poisoned_propose(self: ModelDrafter, *args: Any) -> Any:
        if self.model.state.length:
            self.model.state.poison_unused()
        return whole_propose(self, *args)

    model = shared(5)
    asked = {"language": "en", "return_timestamps": timestamps}
    want = model.generate(features(), **asked)
    monkeypatch.setattr(Session, "steps", poisoned_round)
    monkeypatch.setattr(ModelDrafter, "propose", poisoned_propose)
    chosen = drafter_options(drafter, model, [])
    made = mmspec.generate(model, features(), gamma=4, **asked, **chosen)
    same_ids(made.sequences, want)
    assert not [fault for report in made.reports for fault in report.faults]


def test_the_poison_is_seen_where_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above would prove nothing."""
    model = shared()
    want = model.generate(features(), language="en")
    whole_round = Session.steps

    def poisoned(session: Session) -> Any:
        layer = session._target.state.cache.self_attention_cache.layers[0]  # type: ignore[attr-defined]
        layer.keys[:, :, session._target.state.length - 1 :] = torch.nan
        return whole_round(session)

    monkeypatch.setattr(Session, "steps", poisoned)
    got = mmspec.generate(model, features(), language="en").sequences
    assert not torch.equal(got, want)


def traces(model: Any) -> dict[str, Any]:
    """What a run could leave behind on a model."""
    return {
        "config": model.config.to_dict(),
        "generation_config": model.generation_config.to_dict(),
        "weights": {name: weight.clone() for name, weight in model.state_dict().items()},
        "attributes": {
            name: sorted(set(vars(module)) - {"_modules", "_parameters"})
            for name, module in model.named_modules()
        },
        "hooks": sum(
            len(module._forward_hooks) + len(module._forward_pre_hooks)
            for module in model.modules()
        ),
        "training": model.training,
    }


def unchanged(model: Any, before: dict[str, Any]) -> None:
    now = traces(model)
    torch.testing.assert_close(now.pop("weights"), before["weights"], rtol=0, atol=0)
    assert now == {name: value for name, value in before.items() if name != "weights"}


@pytest.mark.parametrize("drafter", DRAFTERS)
def test_models_are_as_they_were(drafter: str) -> None:
    model = tiny(1)
    want = model.generate(features(), language="en")
    chosen = drafter_options(drafter, model, emitted(want))
    helper = chosen["draft"] if isinstance(chosen["draft"], nn.Module) else model
    before, helper_before = traces(model), traces(helper)
    mmspec.generate(model, features(), gamma=3, language="en", **chosen)
    unchanged(model, before)
    unchanged(helper, helper_before)
    same_ids(model.generate(features(), language="en"), want)


class Bursting(LogitsProcessor):
    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        self.left -= 1
        if self.left < 0:
            raise RuntimeError("burst")
        return scores


@pytest.mark.parametrize("drafter", ["none", "ngram", "early-exit:1", "other-seed", "same-weights"])
@pytest.mark.parametrize("after", [0, 1, 6])
def test_a_run_that_raises_leaves_the_models_clean(drafter: str, after: int) -> None:
    model = tiny(1)
    want = model.generate(features(), language="en")
    chosen = drafter_options(drafter, model, [])
    before = traces(model)
    with pytest.raises(RuntimeError, match="burst"):
        mmspec.generate(
            model,
            features(),
            gamma=3,
            language="en",
            logits_processor=[Bursting(after)],
            **chosen,
        )
    unchanged(model, before)
    made = mmspec.generate(model, features(), gamma=3, language="en", **chosen)
    same_ids(made.sequences, want)
    same_ids(model.generate(features(), language="en"), want)
