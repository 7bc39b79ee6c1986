"""Drafts from a CTC output: forward variables against all paths, and what is drafted from them."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from mmspec.engine import AdaptivePolicy, BlockCosts
from mmspec.prefix import Prefix
from mmspec.proposals import Alphabet, CtcDrafter, ForwardVariables
from mmspec.proposals.forward_variables import Array

TOKENS = [" the", " c", "at", " cat", " sat", "s", ".", ",", " The", " Cat", " see", "e", " on"]
TOKENS += [" mat", " On", "t", "<|end|>", "<|0|>"]
END, TIME = TOKENS.index("<|end|>"), TOKENS.index("<|0|>")
LETTERS = ["", *" acehmnost.,TC"]


class ToySpelling:
    """Tokens of a small vocabulary, the longest first."""

    def text(self, token: int) -> str:
        return "" if token in (END, TIME) else TOKENS[token]

    def tokens(self, text: str) -> list[int]:
        found: list[int] = []
        while text:
            fits = [t for t in TOKENS if text.startswith(t)]
            if fits:
                found.append(TOKENS.index(max(fits, key=len)))
            text = text[len(max(fits, key=len, default=" ")) :]
        return found

    def due(self, emitted: Sequence[int]) -> list[int]:
        return []

    def end(self, emitted: Sequence[int]) -> list[int]:
        return [END]


def ids(*texts: str) -> list[int]:
    return [TOKENS.index(text) for text in texts]


def random_frames(frames: int, symbols: int, seed: int = 0) -> Array:
    probs: Array = np.random.default_rng(seed).random((frames, symbols)) ** 3 + 1e-3
    return np.asarray(np.log(probs / probs.sum(1, keepdims=True)))


def spoken(
    text: str, alphabet: Sequence[str] = LETTERS, sure: float = 0.95, gaps: int = 2
) -> Array:
    """Frames that say a text, a letter a frame with blanks around it."""
    rest = (1 - sure) / (len(alphabet) - 1)
    frames = np.full((len(text) * (gaps + 1) + gaps, len(alphabet)), rest)
    frames[:, 0] = sure
    for at, letter in enumerate(text):
        row = frames[gaps + at * (gaps + 1)]
        row[0], row[alphabet.index(letter)] = rest, sure
    return np.asarray(np.log(frames))


def drafter_on(log_probs: Array, alphabet: Sequence[str] = LETTERS, **options: float) -> CtcDrafter:
    heard = ForwardVariables(log_probs)
    return CtcDrafter(lambda: heard, Alphabet(alphabet), ToySpelling(), **options)


def drafted_behind(drafter: CtcDrafter, prefix: Prefix, committed: Sequence[int]) -> list[int]:
    prefix.extend(committed)
    drafter.commit(prefix, len(prefix))
    available = drafter.outlook(prefix).available
    return list(drafter.propose(prefix, max(1, available), None).ids)  # type: ignore[arg-type]


def empty_prefix() -> Prefix:
    return Prefix([TIME], capacity=64, device=torch.device("cpu"))


def said(path: Sequence[int]) -> tuple[int, ...]:
    return tuple(u for t, u in enumerate(path) if u and (t == 0 or path[t - 1] != u))


@pytest.mark.parametrize(("frames", "symbols"), [(1, 3), (4, 4), (5, 3), (6, 3)])
def test_what_follows_is_what_all_paths_say(frames: int, symbols: int) -> None:
    """The next symbol's distribution behind every text, repeated symbols included."""
    log_probs = random_frames(frames, symbols)
    mass: dict[tuple[int, ...], float] = defaultdict(float)
    begun: dict[tuple[int, ...], float] = defaultdict(float)
    for path in itertools.product(range(symbols), repeat=frames):
        probability = float(np.exp(sum(log_probs[t, u] for t, u in enumerate(path))))
        text = said(path)
        mass[text] += probability
        for length in range(len(text) + 1):
            begun[text[:length]] += probability
    for text in mass:
        heard = ForwardVariables(log_probs)
        heard.extend(text)
        expected = [mass[text], *(begun[*text, u] for u in range(1, symbols))]
        difference = np.abs(heard.following() - np.array(expected) / begun[text]).sum() / 2
        assert difference < 1e-12, text


def test_another_blank() -> None:
    log_probs = random_frames(5, 3)
    first, last = ForwardVariables(log_probs), ForwardVariables(log_probs[:, [1, 2, 0]], blank=2)
    first.extend([1, 1, 2])
    last.extend([0, 0, 1])
    np.testing.assert_allclose(first.following()[[1, 2, 0]], last.following(), atol=1e-12)


def test_a_text_is_changed_where_it_differs() -> None:
    log_probs = random_frames(40, 4)
    changed, fresh = ForwardVariables(log_probs), ForwardVariables(log_probs)
    changed.extend([1, 2, 3, 1, 2])
    changed.say(1, [2, 2, 3])
    fresh.extend([1, 2, 2, 3])
    assert changed.symbols == fresh.symbols
    np.testing.assert_array_equal(changed.following(), fresh.following())


def test_frames_that_cannot_matter_change_nothing() -> None:
    """Where the text may end is a few frames of a long recording: the others are left out."""
    log_probs = spoken("the cat sat on the mat." * 4, sure=0.9)
    text = Alphabet(LETTERS).symbols("the cat sat on the mat.the cat s")
    narrow, whole = ForwardVariables(log_probs), ForwardVariables(log_probs, within=np.inf)
    narrow.extend(text)
    whole.extend(text)
    np.testing.assert_allclose(narrow.following(), whole.following(), atol=1e-12)


def test_silence_counts_as_one_frame() -> None:
    """A pause of any length parts a doubled letter."""
    log_probs = spoken("see", sure=0.9995, gaps=60)
    heard = ForwardVariables(log_probs, sure=0.999)
    heard.extend(Alphabet(LETTERS).symbols("se"))
    assert LETTERS[int(heard.following().argmax())] == "e"


def test_what_is_impossible_is_survived() -> None:
    """More letters than frames: nothing is left, and nothing is not a number."""
    heard = ForwardVariables(random_frames(2, 3))
    heard.extend([1, 2, 1, 2])
    assert np.isfinite(heard.following()).all()


def test_a_text_is_drafted_to_its_end() -> None:
    drafter = drafter_on(spoken("the cat sat."))
    drafted = drafted_behind(drafter, empty_prefix(), [])
    assert drafted == [*ids(" the", " cat", " sat", "."), END]


def test_half_a_word_is_gone_on_with() -> None:
    drafter = drafter_on(spoken("the cat sat."))
    drafted = drafted_behind(drafter, empty_prefix(), ids(" the", " c"))
    assert drafted == [*ids("at", " sat", "."), END]


def test_the_condition_moves_the_draft() -> None:
    """Whatever the target says instead, the draft goes on behind what it stands for."""
    drafter, prefix = drafter_on(spoken("the cat sat on the mat."), least=0.01), empty_prefix()
    assert drafted_behind(drafter, prefix, [])[0] == TOKENS.index(" the")
    assert drafted_behind(drafter, prefix, ids(" The", ","))[:2] == ids(" cat", " sat")
    assert drafted_behind(drafter, prefix, ids(" mat"))[0] == TOKENS.index(" sat")


def test_a_draft_ends_where_the_model_is_unsure() -> None:
    log_probs = spoken("the cat sat.")
    unsure = slice(3 * len("the cat "), None)
    log_probs[unsure] = np.log(1 / len(LETTERS))
    drafter = drafter_on(log_probs, least=0.2)
    assert drafted_behind(drafter, empty_prefix(), []) == ids(" the", " cat")
    outlook = drafter_on(log_probs, least=0.2).outlook(empty_prefix())
    assert outlook.available == 2
    assert 0.5 < outlook.first <= 1


def test_an_alphabet_of_capitals() -> None:
    """The committed text is put in the model's letters, its text in the target's case."""
    capitals = ["", *" ACEHMNOST"]
    drafter = drafter_on(spoken("THE CAT SAT ON THE MAT", capitals), capitals, least=0.01)
    prefix = empty_prefix()
    assert drafted_behind(drafter, prefix, [])[:2] == ids(" The", " cat")
    drafted = drafted_behind(drafter, prefix, ids(" The", " cat", " sat", "."))
    assert drafted == [*ids(" On", " the", " mat"), END]


def test_pieces_that_begin_words() -> None:
    pieces = ["", " the", " ca", "t", " s", "a", "."]
    alphabet = Alphabet(pieces)
    assert [pieces[symbol] for symbol in alphabet.symbols(" the cat.")] == [" the", " ca", "t", "."]
    rest = 0.01
    frames = np.full((6, len(pieces)), rest)
    for row, piece in zip(frames, [" the", "", " ca", "t", ".", ""], strict=True):
        row[pieces.index(piece)] = 1 - rest * (len(pieces) - 1)
    drafter = drafter_on(np.asarray(np.log(frames)), pieces)
    assert drafted_behind(drafter, empty_prefix(), ids(" the")) == [*ids(" cat", "."), END]


def test_what_the_alphabet_lacks_is_left_out() -> None:
    assert Alphabet(LETTERS).symbols("the — cat") == Alphabet(LETTERS).symbols("the cat")


def test_who_is_never_wanted_rests() -> None:
    """Ever longer, until a draft is wanted again; what was committed meanwhile is caught up on."""
    drafter, prefix = drafter_on(spoken("the cat sat on the mat." * 3)), empty_prefix()
    listened = []
    for token in ids(" the", " cat", " sat", " on", " the", " mat", ".", " the", " cat", " sat"):
        listened.append(drafter.outlook(prefix).available > 0)
        prefix.extend([token])
        drafter.commit(prefix, len(prefix))
    assert listened == [True] * 4 + [False, True, False, False, True, False]
    while not drafter.outlook(prefix).available:
        drafter.commit(prefix, len(prefix))
    assert drafter.propose(prefix, 2, None).ids == tuple(ids(" on", " the"))  # type: ignore[arg-type]


def test_a_policy_is_told_how_sure_each_token_is() -> None:
    """It drafts up to the doubtful one, whatever the others are like on average."""
    log_probs = spoken("the cat sat on the mat.", sure=0.999)
    doubtful = 2 + 3 * len("the cat ")
    log_probs[doubtful] = np.log(0.01)
    log_probs[doubtful, [LETTERS.index("s"), LETTERS.index("m")]] = np.log([0.5, 0.38])
    prefix = empty_prefix()
    outlook = drafter_on(log_probs).outlook(prefix)
    assert outlook.available > 4
    assert min(outlook.later) == outlook.later[1] < 0.6 < 0.85 < outlook.rest
    costs = BlockCosts()
    for rows in range(1, 10):
        for _ in range(9):
            costs.add(rows, 0.01 * (1 + 0.9 * (rows - 1)))  # a row costs nearly a step
    assert AdaptivePolicy(costs).choose(outlook, 0.0, room=20).depth == 2
