"""What every rule promises its caller beside the law: refusals, no waiting, no large copies."""

from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from mmspec.acceptance import Decision, block, default_rule, greedy, gumbel, keyed, token, uniforms
from mmspec.acceptance.distributions import draw

Given = dict[str, Any]
RULES = (greedy, keyed, token, block)
EVERY_RULE = pytest.mark.parametrize("rule", RULES)


def arguments(rule: Callable[..., Decision], device: str = "cpu", width: int = 3) -> Given:
    rows, tokens = 2, 5
    given: Given = {
        "target_logits": torch.zeros(rows, width + 1, tokens, device=device),
        "draft_ids": torch.zeros(rows, width, dtype=torch.int64, device=device),
        "draft_lengths": torch.full((rows,), width, device=device),
    }
    if rule is keyed:
        given["noise"] = torch.zeros(rows, width + 1, tokens, device=device)
    if rule in (token, block):
        given["draft_probs"] = torch.full((rows, width, tokens), 1 / tokens, device=device)
        given["uniforms"] = torch.full((rows, width + 1), 0.5, device=device)
    return given


def refusals() -> Iterator[tuple[Callable[..., Decision], str, Tensor, str]]:
    for rule in RULES:
        yield rule, "target_logits", torch.zeros(2, 5), r"target_logits is torch.float32 \[2, 5\]"
        integers = torch.zeros(2, 4, 5, dtype=torch.int64)
        yield rule, "target_logits", integers, r"target_logits is torch.int64"
        yield rule, "target_logits", torch.zeros(2, 0, 5), r"at least one scored row"
        yield rule, "target_logits", torch.zeros(2, 4, 0), r"at least one scored row"
        long_ids = torch.zeros(2, 4, dtype=torch.int64)
        yield (
            rule,
            "draft_ids",
            long_ids,
            r"draft_ids is .* \[2, 4\]; expected .* \[2, 3\]",
        )
        yield rule, "draft_ids", torch.zeros(2, 3), r"draft_ids is torch.float32"
        yield rule, "draft_lengths", torch.zeros(2, 1).long(), r"draft_lengths is .* \[2, 1\]"
        yield rule, "draft_lengths", torch.zeros(2).int(), r"draft_lengths is torch.int32"
        meta_ids = torch.zeros(2, 3, dtype=torch.int64, device="meta")
        yield rule, "draft_ids", meta_ids, r"draft_ids is on meta, target_logits on cpu"
    yield keyed, "noise", torch.zeros(2, 3, 5), r"noise is torch.float32 \[2, 3, 5\]"
    yield keyed, "noise", torch.zeros(2, 4, 5).half(), r"noise is torch.float16"
    for rule in (token, block):
        yield rule, "uniforms", torch.zeros(2, 3), r"uniforms is .* \[2, 3\]; expected .* \[2, 4\]"
        yield rule, "uniforms", torch.zeros(2, 4).bfloat16(), r"uniforms is torch.bfloat16"
        yield rule, "draft_probs", torch.zeros(2, 4, 5), r"draft_probs is .* \[2, 4, 5\]"
        yield rule, "draft_probs", torch.zeros(2, 3, 5).half(), r"draft_probs is torch.float16"


@pytest.mark.parametrize(("rule", "name", "wrong", "message"), list(refusals()))
def test_what_does_not_fit_is_refused_with_what_was_given_and_expected(
    rule: Callable[..., Decision], name: str, wrong: Tensor, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        rule(**(arguments(rule) | {name: wrong}))


@EVERY_RULE
@pytest.mark.parametrize("width", [0, 1, 3])
@pytest.mark.parametrize("deterministic", [False, True])
def test_no_rule_waits_for_the_device(
    rule: Callable[..., Decision], width: int, deterministic: bool
) -> None:
    # Tensors on this device have no values, so whoever asks for one raises.
    given = arguments(rule, "meta", width)
    if deterministic and "draft_probs" in given:
        given["draft_probs"] = None
    decision = rule(**given)
    assert decision.accepted.shape == decision.next_ids.shape == (2,)
    assert decision.next_ids.device.type == "meta"


@pytest.mark.parametrize("ask", [lambda x: x.max().item(), lambda x: bool((x > 0).any())])
def test_the_device_without_values_does_refuse_a_rule_that_waits(ask: Callable[..., Any]) -> None:
    given = arguments(greedy, "meta")
    with pytest.raises(RuntimeError, match="meta tensor"):
        ask(given["target_logits"])


class LargestResult(TorchDispatchMode):
    """Notes the size of the largest tensor that any operation makes."""

    largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for part in result if isinstance(result, tuple) else (result,):
            if isinstance(part, Tensor) and part._base is None:
                self.largest = max(self.largest, part.numel())
        return result


def largest_result(rule: Callable[..., Decision], given: Given) -> int:
    with LargestResult() as seen:
        rule(**given)
    return seen.largest


def test_greedy_makes_nothing_larger_than_one_number_per_scored_row() -> None:
    given = arguments(greedy, width=16)
    assert largest_result(greedy, given) <= 2 * 17

    def copying(target_logits: Tensor, **rest: Tensor) -> Decision:
        return greedy(target_logits.clone(), **rest)

    assert largest_result(copying, given) == given["target_logits"].numel()


@pytest.mark.parametrize("rule", [keyed, token, block])
def test_rules_with_randomness_work_on_one_column_at_a_time(rule: Callable[..., Decision]) -> None:
    given = arguments(rule, width=16)
    assert largest_result(rule, given) < given["target_logits"].numel() / 4


@EVERY_RULE
def test_arguments_are_left_as_they_were(rule: Callable[..., Decision]) -> None:
    given = arguments(rule)
    before = {name: value.clone() for name, value in given.items()}
    rule(**given)
    for name, value in given.items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)


@EVERY_RULE
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_scores_of_every_precision_are_taken(
    rule: Callable[..., Decision], dtype: torch.dtype
) -> None:
    given = arguments(rule)
    given["target_logits"] = given["target_logits"].to(dtype)
    assert rule(**given).accepted.dtype == torch.int64


@EVERY_RULE
def test_an_empty_batch_is_decided(rule: Callable[..., Decision]) -> None:
    given = {name: value[:0] for name, value in arguments(rule).items()}
    assert rule(**given).rows == 0


@pytest.mark.parametrize("rule", [greedy, keyed])
def test_equal_scores_go_to_the_first_unit(rule: Callable[..., Decision]) -> None:
    decision = rule(**arguments(rule))
    assert decision.accepted.tolist() == [3, 3]
    assert decision.next_ids.tolist() == [0, 0]


@pytest.mark.parametrize("rule", [token, block])
@pytest.mark.parametrize("real_laws", [True, False])
def test_a_drafted_unit_that_the_target_forbids_is_rejected_at_every_coin(
    rule: Callable[..., Decision], real_laws: bool
) -> None:
    given = arguments(rule)
    given["draft_probs"] = torch.full((2, 3, 5), 0.2, dtype=torch.float64)
    given["target_logits"][:, 1, 0] = -torch.inf
    if not real_laws:
        given["draft_probs"] = None
        given["target_logits"][:, 0, 1:] = -torch.inf
    for coin in (0.0, 0.3, 1 - 2.0**-53):
        given["uniforms"] = torch.full((2, 4), coin, dtype=torch.float64)
        decision = rule(**given)
        assert decision.accepted.tolist() == [1, 1]
        assert (decision.next_ids != 0).all()


@pytest.mark.parametrize("rule", [token, block])
@pytest.mark.parametrize("target_allows", [True, False])
def test_a_drafted_unit_that_its_own_law_forbids_is_never_nan(
    rule: Callable[..., Decision], target_allows: bool
) -> None:
    given = arguments(rule, width=1)
    given["draft_probs"] = torch.tensor([[[0.0, 0.25, 0.25, 0.25, 0.25]]] * 2)
    if not target_allows:
        given["target_logits"][:, 0, 0] = -torch.inf
    decision = rule(**given)
    assert decision.accepted.tolist() == [int(target_allows)] * 2
    assert ((decision.next_ids >= 0) & (decision.next_ids < 5)).all()


def test_the_draw_never_lands_on_weight_zero_nor_beside_the_table() -> None:
    weights = torch.tensor([[0.0, 0.1, 0.0, 0.2, 0.7, 0.0, 0.0]], dtype=torch.float64)
    for uniform in (0.0, 2.0**-1074, 0.1, 0.3, 0.5, 1 - 2.0**-53, 1.0):
        drawn = draw(weights, torch.tensor([uniform], dtype=torch.float64))
        assert drawn.item() in (1, 3, 4)
    assert draw(weights, torch.tensor([1 - 2.0**-53], dtype=torch.float64)).item() == 4


def test_the_draw_reaches_the_end_of_a_long_tail_but_not_the_suppressed_part() -> None:
    weights = torch.full((1, 50_000), 1 / 49_000, dtype=torch.float64)
    weights[0, 49_000:] = 0.0
    for precision in (torch.float32, torch.float64):
        top = torch.nextafter(torch.ones(1, dtype=precision), torch.zeros(1, dtype=precision))
        assert draw(weights, top).item() == 48_999


def test_the_draw_survives_a_running_sum_that_is_not_monotone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Parallel sums on an accelerator may round a later entry below an earlier one.
    weights = torch.tensor([[0.5, 0.0, 0.5, 0.0]], dtype=torch.float64)
    rounded = torch.tensor([[0.5, 0.5 + 1e-16 * 2, 1.0 - 1e-16, 1.0]], dtype=torch.float64)
    monkeypatch.setattr(Tensor, "cumsum", lambda self, dim: rounded)
    uniform_grid = [0.0, 0.5 - 1e-16, 0.5, 0.5 + 1e-16, 1 - 2.0**-53]
    drawn = [draw(weights, torch.tensor([u], dtype=torch.float64)).item() for u in uniform_grid]
    assert set(drawn) == {0, 2}


def test_a_decision_is_a_frozen_pair_of_equal_shapes() -> None:
    decision = Decision(torch.tensor([1]), torch.tensor([2]))
    assert decision.rows == 1
    with pytest.raises(FrozenInstanceError, match="accepted"):
        decision.accepted = torch.tensor([0])  # type: ignore[misc]
    with pytest.raises(ValueError, match=r"next_ids is torch.int64 of shape \[2\]"):
        Decision(torch.tensor([1]), torch.tensor([2, 3]))
    with pytest.raises(ValueError, match=r"accepted is torch.float32"):
        Decision(torch.tensor([1.0]), torch.tensor([2]))
    with pytest.raises(ValueError, match=r"accepted is torch.int64 of shape \[\]"):
        Decision(torch.tensor(1), torch.tensor(2))


@pytest.mark.parametrize(
    ("temperature_is_zero", "seeded", "has_draft_probs", "expected"),
    [
        (True, False, False, "greedy"),
        (True, True, True, "greedy"),
        (False, True, False, "keyed"),
        (False, True, True, "keyed"),
        (False, False, True, "block"),
        (False, False, False, "token"),
    ],
)
def test_the_default_is_the_rule_that_keeps_most(
    temperature_is_zero: bool, seeded: bool, has_draft_probs: bool, expected: str
) -> None:
    assert default_rule(temperature_is_zero, seeded, has_draft_probs) == expected


def test_noise_and_uniform_numbers_fit_the_rules_as_they_come() -> None:
    positions = torch.arange(4).expand(2, 4)
    noisy = arguments(keyed) | {"noise": gumbel(0, positions, 5)}
    assert keyed(**noisy).rows == 2
    coins = arguments(block) | {"uniforms": uniforms(0, positions, 1).squeeze(-1)}
    assert block(**coins).rows == 2
