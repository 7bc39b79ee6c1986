import math

import numpy as np
import pytest
import torch

from mmspec.acceptance import derive_seed, gumbel, uniforms
from mmspec.acceptance.noise import _gumbel_from_uniform, _uniform_from_bits

# Quantiles at 1 in 10^5: a fixed seed that fails here is not bad luck.
KS_LIMIT = 2.47  # of sqrt(n) * D
NORMAL_LIMIT = 4.42


def chi_square_limit(degrees: int) -> float:
    """The 1 - 10^-5 quantile by the cube-root approximation (Wilson and Hilferty 1931)."""
    spread = 2 / (9 * degrees)
    return degrees * (1 - spread + 4.265 * math.sqrt(spread)) ** 3


def kolmogorov_distance(values: torch.Tensor) -> float:
    """sqrt(n) times the largest distance between `values` and the uniform distribution."""
    ordered, count = values.flatten().sort().values, values.numel()
    steps = torch.arange(count + 1, dtype=torch.float64) / count
    distance = torch.maximum(steps[1:] - ordered, ordered - steps[:-1]).max()
    return float(distance) * math.sqrt(count)


def test_noise_depends_on_its_position_alone_not_on_the_batch() -> None:
    positions = torch.tensor([[4, 0, 7], [7, 7, 10**12]])
    together = gumbel(3, positions, 11)
    assert together.shape == (2, 3, 11)
    for row in range(2):
        for column in range(3):
            alone = gumbel(3, positions[row, column], 11)
            assert torch.equal(together[row, column], alone)
    assert torch.equal(together[0, 2], together[1, 0])
    assert torch.equal(gumbel(3, positions.T, 11), together.transpose(0, 1))


@pytest.mark.parametrize("kind", [np.int8, np.int32, np.int64, np.uint64])
def test_an_integer_of_numpy_is_a_seed_like_any_other(kind: type) -> None:
    positions = torch.arange(3)
    for seed in (0, 7, kind(-3) if kind is not np.uint64 else kind(2**64 - 3)):
        assert torch.equal(gumbel(kind(seed), positions, 5), gumbel(int(seed), positions, 5))
        assert derive_seed(kind(seed), 4) == derive_seed(int(seed), 4)
        assert derive_seed(4, kind(9)) == derive_seed(4, 9)


def test_noise_of_a_unit_is_the_same_in_a_larger_vocabulary_and_in_pieces() -> None:
    positions = torch.arange(40)
    large = gumbel(3, positions, 5000)
    assert torch.equal(gumbel(3, positions, 7), large[:, :7])
    assert torch.equal(gumbel(3, positions[13:29], 5000), large[13:29])


def test_no_positions_give_no_noise() -> None:
    assert gumbel(0, torch.zeros(0, dtype=torch.int64), 5).shape == (0, 5)
    assert gumbel(0, torch.zeros(2, 0, dtype=torch.int64), 5).shape == (2, 0, 5)


def test_ten_million_values_are_finite() -> None:
    noise = gumbel(1, torch.arange(200), 51_865)
    assert noise.numel() > 10**7
    assert noise.dtype == torch.float64
    assert torch.isfinite(noise).all()


def test_the_extreme_words_stay_strictly_inside_zero_and_one() -> None:
    words = torch.tensor([0, -1, 2**63 - 1, -(2**63)])
    uniform = _uniform_from_bits(words, torch.empty(4, dtype=torch.float64))
    assert uniform[0] == 2.0**-53
    assert uniform[1] == 1 - 2.0**-53
    noise = _gumbel_from_uniform(uniform)
    assert torch.isfinite(noise).all()
    assert (noise > -3.7).all()
    assert (noise < 36.8).all()


@pytest.mark.parametrize("seed", [0, 1, 2**64 - 1])
def test_uniform_numbers_and_noise_follow_their_laws(seed: int) -> None:
    positions = torch.arange(1000)
    assert kolmogorov_distance(uniforms(seed, positions, 200)) < KS_LIMIT
    # exp(-exp(-g)) undoes the Gumbel transform.
    assert kolmogorov_distance((-(-gumbel(seed, positions, 200)).exp()).exp()) < KS_LIMIT
    # Across positions, for one unit: the other way to walk through the hash.
    assert kolmogorov_distance(uniforms(seed, torch.arange(200_000), 1)) < KS_LIMIT


def test_the_uniformity_check_sees_a_small_shift() -> None:
    assert kolmogorov_distance(uniforms(0, torch.arange(1000), 200) * 0.99) > KS_LIMIT


def test_every_bit_of_a_uniform_number_is_fair() -> None:
    words = (uniforms(11, torch.arange(1000), 100) * 2.0**52).long()
    for bit in range(52):
        ones = ((words >> bit) & 1).double().mean()
        assert abs(float(ones) - 0.5) * 2 * math.sqrt(words.numel()) < NORMAL_LIMIT


def test_seeds_positions_units_and_uses_do_not_correlate() -> None:
    positions, tokens = torch.arange(1000), 200
    base = uniforms(5, positions, tokens)
    others = {
        "next seed": uniforms(6, positions, tokens),
        "next position": uniforms(5, positions + 1, tokens),
        "next token": uniforms(5, positions, tokens + 1)[:, 1:],
        "derived seed": uniforms(derive_seed(5, 0), positions, tokens),
        "other use": (-(-gumbel(5, positions, tokens)).exp()).exp(),
    }
    for name, other in others.items():
        stacked = torch.stack([base.flatten(), other.flatten()])
        correlation = float(torch.corrcoef(stacked)[0, 1])
        assert abs(correlation) * math.sqrt(base.numel()) < NORMAL_LIMIT, name


def test_seeds_and_indices_give_distinct_seeds() -> None:
    derived = {derive_seed(seed, index) for seed in range(50) for index in range(50)}
    assert len(derived) == 2500
    assert all(0 <= seed < 2**64 for seed in derived)


def g_statistic(logits: torch.Tensor, bias: torch.Tensor) -> float:
    """Twice the log-likelihood ratio of 200 000 Gumbel-max samples against the softmax."""
    count = 200_000
    samples = (logits + bias + gumbel(2, torch.arange(count), len(logits))).argmax(-1)
    seen = torch.bincount(samples, minlength=len(logits)).double()
    expected = logits.softmax(0) * count
    return 2 * float(torch.special.xlogy(seen, seen / expected).sum())


def test_the_highest_of_scores_plus_noise_is_a_sample_of_the_softmax() -> None:
    logits = torch.tensor([0.0, 1.0, -1.0, 2.0, 0.5, -2.0, -3.0, 0.0], dtype=torch.float64)
    limit = chi_square_limit(len(logits) - 1)
    assert g_statistic(logits, torch.zeros_like(logits)) < limit
    # The same test has the power to see one unit favoured by 3 %.
    bias = torch.zeros_like(logits)
    bias[3] = 0.03
    assert g_statistic(logits, bias) > limit


def test_a_forbidden_unit_is_never_the_highest() -> None:
    logits = torch.tensor([0.0, -torch.inf, -30.0])
    samples = (logits + gumbel(8, torch.arange(10_000), 3)).argmax(-1)
    assert not (samples == 1).any()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, torch.zeros(2), 3), r"positions is torch.float32; expected torch.int64"),
        ((0, torch.zeros(2, dtype=torch.int64), 0), r"is 0; expected at least 1"),
        ((2**64, torch.zeros(2, dtype=torch.int64), 3), r"seed is 18446744073709551616; expected"),
        ((-(2**63) - 1, torch.zeros(2, dtype=torch.int64), 3), r"seed is -9223372036854775809;"),
    ],
)
def test_what_cannot_be_noise_is_refused(arguments: tuple, message: str) -> None:
    for make in (gumbel, uniforms):
        with pytest.raises(ValueError, match=message):
            make(*arguments)


def test_a_negative_seed_is_the_unsigned_one_with_the_same_bits() -> None:
    positions = torch.arange(3)
    assert torch.equal(gumbel(-1, positions, 4), gumbel(2**64 - 1, positions, 4))


def test_noise_is_made_where_it_is_asked_for() -> None:
    made = gumbel(0, torch.arange(3), 5, device="meta")
    assert made.device.type == "meta"
    assert made.shape == (3, 5)
