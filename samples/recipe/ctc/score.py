"""Scores a head on recordings: error rates, and tokens a round by simulation.

    python samples/recipe/ctc/score.py OUT/head.safetensors --target TARGET CLIP...

Clips are of 30 s at most. The target's own text is known, so a round is simulated: kept is what of
a draft agrees with the target, and one token more. An error is against the target's text, case
and punctuation left out.
"""

import argparse
import itertools
from functools import partial
from pathlib import Path

import jiwer
import librosa
import numpy as np
import torch
from states import RATE_HZ, Listener
from train import joined_states, plain
from transformers import GenerationMixin, WhisperForConditionalGeneration, WhisperProcessor

from mmspec.modalities.whisper.checkpoint import Whisper
from mmspec.modalities.whisper.ctc_draft import SURE_BLANK, WindowSpelling, WordTokens
from mmspec.modalities.whisper.ctc_head import greedy, load
from mmspec.prefix import Prefix
from mmspec.proposals import Alphabet, CtcDrafter, ForwardVariables


def rounds(drafter: CtcDrafter, ids: list[int], most: int) -> tuple[int, int]:
    """Rounds until `ids` are committed, and drafted tokens."""
    prefix = Prefix([0], len(ids) + 1, torch.device("cpu"))
    count = drafted = 0
    while len(prefix.emitted) < len(ids):
        rest = ids[len(prefix.emitted) :]
        limit = min(most, drafter.outlook(prefix).available)
        proposed = drafter.propose(prefix, limit, None).ids if limit else ()
        agreed = len(
            list(
                itertools.takewhile(
                    lambda pair: pair[0] == pair[1], zip(proposed, rest, strict=False)
                )
            )
        )
        prefix.extend(rest[: agreed + 1])
        drafter.commit(prefix, len(prefix))
        count, drafted = count + 1, drafted + len(proposed)
    return count, drafted


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
    whisper = Whisper.of(model, processor)
    spelling = WindowSpelling(
        WordTokens(whisper),
        whisper.steps,
        whisper.steps.prompt(language=None, task=None, timestamps=False),
    )
    alphabet = Alphabet(["", *config["characters"]])
    truths, texts, totals = [], [], {least: np.zeros(3, int) for least in (0.0, 0.03, 0.1, 0.25)}
    for clip in asked.clips:
        samples, _ = librosa.load(clip, sr=RATE_HZ)
        truth = own_text(model, processor, samples).strip()
        states, lengths = joined_states([listen(samples)])
        with torch.inference_mode():
            logits = head(states, lengths)[0, : lengths[0]]
        truths.append(plain(truth))
        texts.append(plain(greedy(logits)))
        print(f"{clip.name}\n  target {truth}\n  head   {greedy(logits)}")
        log_probs = logits.log_softmax(-1).double().numpy()
        ids = processor.tokenizer.encode(" " + truth, add_special_tokens=False)
        ids.append(processor.tokenizer.eos_token_id)
        for least, total in totals.items():
            heard = partial(ForwardVariables, log_probs, sure=SURE_BLANK)
            drafter = CtcDrafter(heard, alphabet, spelling, least=least)
            total += [len(ids), *rounds(drafter, ids, asked.most)]
    print(f"CER {jiwer.cer(truths, texts):.3f} WER {jiwer.wer(truths, texts):.3f}", end="")
    for least, (tokens, count, drafted) in totals.items():
        shown = f"{tokens / count:.2f} tokens, {drafted / count:.1f} drafted"
        print(f" | cut at {least}: {shown} a round", end="")
    print(f" | step {config['step']}, {config['hours']} h seen")


if __name__ == "__main__":
    main()
