"""Which rule to use when the caller names none."""


def default_rule(temperature_is_zero: bool, seeded: bool, has_draft_probs: bool) -> str:
    """Names the exact rule that keeps most for the kind of decoding asked for.

    Args:
        temperature_is_zero: The target always takes its highest-scored token.
        seeded: The caller gave a seed and so expects the same ids whatever the drafter.
        has_draft_probs: The drafter samples and gives the distributions it sampled from.

    Returns:
        `"greedy"`, `"keyed"`, `"block"` or `"token"`.

    Example:
        >>> default_rule(temperature_is_zero=False, seeded=False, has_draft_probs=True)
        'block'
    """
    if temperature_is_zero:
        return "greedy"
    if seeded:
        return "keyed"
    return "block" if has_draft_probs else "token"
