"""Scores a head on recordings: error rates, and tokens a round by simulation.

    python samples/recipe/ctc/score.py OUT/head.safetensors --target TARGET CLIP...

Clips are of 30 s at most. The target's own text is known, so a round is simulated: the draft is
what the head hears behind the committed text, the best path from where that text most likely ends;
kept is what agrees with the target, and one token more. An error is against the target's text, case
and punctuation left out.
"""

import argparse
import itertools
from collections.abc import Callable
from pathlib import Path

import jiwer
import librosa
import numpy as np
import torch
from head import CHARACTERS, encode, greedy, load
from states import RATE_HZ, Listener
from torch import Tensor
from train import joined_states, plain
from transformers import GenerationMixin, WhisperForConditionalGeneration, WhisperProcessor


class Forward:
    """The forward variables of a growing text over the frames (CTC's b and n), in logarithms.

    With enter = b + n, or b alone for a repeated unit, the text longer by a unit has
    n'[t] = p[t, unit] · (n'[t - 1] + enter[t - 1]), b'[t] = p[t, blank] · (b'[t - 1] + n'[t - 1]):
    in logarithms both are cumulative sums.
    """

    def __init__(self, log_probs: Tensor) -> None:
        first = torch.full_like(log_probs[:1], -torch.inf)
        self.log_probs = torch.cat((first, log_probs)).double()  # row t: after t frames
        self.log_probs[0, 0] = 0
        self.sums = self.log_probs[1:].cumsum(0)
        blank = self.log_probs[:, 0].cumsum(0)
        self.units: list[int] = []
        self.states = [(blank, torch.full_like(blank, -torch.inf))]

    def _follow(self, enter: Tensor, unit: int) -> Tensor:
        """x[t] = p[t, unit] + log(x[t - 1] + enter[t - 1]), x[0] = 0."""
        sums = torch.cat((self.sums.new_zeros(1), self.sums[:, unit]))
        sums = sums.clamp(min=-1e6)
        inner = (enter - sums)[:-1].logcumsumexp(0) + sums[1:]
        return torch.cat((inner.new_full((1,), -torch.inf), inner))

    def to(self, units: list[int]) -> tuple[Tensor, Tensor]:
        """b and n, each [T + 1], of another text; what it shares with the last one is kept."""
        same = 0
        while same < min(len(units), len(self.units)) and units[same] == self.units[same]:
            same += 1
        self.units, self.states = self.units[:same], self.states[: same + 1]
        for unit in units[same:]:
            b, n = self.states[-1]
            repeated = bool(self.units) and self.units[-1] == unit
            n = self._follow(b if repeated else torch.logaddexp(b, n), unit)
            self.states.append((self._follow(n, 0), n))
            self.units.append(unit)
        return self.states[-1]

    def continuation(self, units: list[int], least: float, most: int = 60) -> tuple[str, bool]:
        """The best path's text behind `units`, and whether it reaches the end.

        It is cut before the character at which the product of the path's probabilities falls under
        `least`.
        """
        b, n = self.to(units)
        best, path = self.log_probs[1:].max(-1)
        tail = torch.cat((best.flip(0).cumsum(0).flip(0), best.new_zeros(1)))
        start = int((torch.maximum(b, n) + tail).argmax())
        last = units[-1] if units and n[start] > b[start] else 0
        text, sure, blank = "", 1.0, 1.0
        rest = zip(path[start:].tolist(), best[start:].exp().tolist(), strict=True)
        for unit, probability in rest:
            if unit and unit != last:
                sure, blank = sure * probability * blank, 1.0
                if sure < least or len(text) >= most:
                    return text, False
                text += CHARACTERS[unit - 1]
            elif not unit and probability < 0.9:
                blank = min(blank, probability)
            last = unit
        return text, True


def rounds(ids: list[int], draft: Callable[[list[int]], list[int]]) -> tuple[int, int]:
    """Rounds until `ids` are committed, and drafted tokens."""
    done = count = drafted = 0
    while done < len(ids):
        proposed = draft(ids[:done])
        pairs = zip(proposed, ids[done:], strict=False)
        agreed = len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
        done, count, drafted = done + agreed + 1, count + 1, drafted + len(proposed)
    return count, drafted


def drafter(
    forward: Forward, tokenizer: WhisperProcessor, least: float, most: int
) -> Callable[[list[int]], list[int]]:
    """Committed tokens → drafted tokens."""

    def draft(done: list[int]) -> list[int]:
        text = tokenizer.decode(done)
        more, ended = forward.continuation(encode(text.removeprefix(" ")), least)
        more = more if text else " " + more.lstrip()
        ids = tokenizer.encode(text + more, add_special_tokens=False)
        if ids[: len(done)] == done:
            ids = ids[len(done) :]
        else:
            ids = tokenizer.encode(more, add_special_tokens=False)
        # The last token of a cut text may be half a word.
        ids = [*ids, tokenizer.eos_token_id] if ended else ids[:-1] if len(ids) > 1 else ids
        return ids[:most]

    return draft


def own_text(model: GenerationMixin, processor: WhisperProcessor, samples: np.ndarray) -> str:
    """What the target writes, greedily."""
    features = processor(samples, sampling_rate=RATE_HZ, return_tensors="pt").input_features
    options = (
        {"language": "en", "task": "transcribe"} if model.generation_config.is_multilingual else {}
    )
    return processor.batch_decode(model.generate(features, **options), skip_special_tokens=True)[0]


def main() -> None:
    """Prints the scores."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("head", type=Path)
    options.add_argument("--target", required=True)
    options.add_argument("--most", type=int, default=12, help="tokens of a draft")
    options.add_argument("clips", type=Path, nargs="+")
    asked = options.parse_args()
    torch.set_num_threads(1)
    head, config = load(asked.head)
    listen = Listener(asked.target, torch.float32)
    if config["encoder"] != listen.digest:
        raise SystemExit(
            f"{asked.head} was trained for another encoder than that of {asked.target}"
        )
    model = WhisperForConditionalGeneration.from_pretrained(asked.target, dtype=torch.float32)
    processor = WhisperProcessor.from_pretrained(asked.target)
    truths, heard, totals = [], [], {least: np.zeros(3, int) for least in (0.0, 0.03, 0.1, 0.25)}
    for clip in asked.clips:
        samples, _ = librosa.load(clip, sr=RATE_HZ)
        truth = own_text(model, processor, samples).strip()
        states, lengths = joined_states([listen(samples)])
        with torch.inference_mode():
            logits = head(states, lengths)[0, : lengths[0]]
        truths.append(plain(truth))
        heard.append(plain(greedy(logits)))
        print(f"{clip.name}\n  target {truth}\n  head   {greedy(logits)}")
        forward = Forward(logits.log_softmax(-1))
        ids = processor.tokenizer.encode(" " + truth, add_special_tokens=False)
        ids.append(processor.tokenizer.eos_token_id)
        for least, total in totals.items():
            draft = drafter(forward, processor.tokenizer, least, asked.most)
            total += [len(ids), *rounds(ids, draft)]
    print(f"CER {jiwer.cer(truths, heard):.3f} WER {jiwer.wer(truths, heard):.3f}", end="")
    for least, (tokens, count, drafted) in totals.items():
        shown = f"{tokens / count:.2f} tokens, {drafted / count:.1f} drafted"
        print(f" | cut at {least}: {shown} a round", end="")
    print(f" | step {config['step']}, {config['hours']} h seen")


if __name__ == "__main__":
    main()
