"""Trains the voice sample's language model, its drafter and its frame heads, on one CPU thread.

    python samples/recipe/voice_train.py --work WORK
    python samples/recipe/voice_own.py --work WORK
    python samples/recipe/voice_train.py --work WORK

goes on from `WORK/voice.pt`, at most `_SAVE_EVERY` steps old, and writes `samples/voice-sample/`
when it is done (or at once with `--export`); the first time to `_OWN_STEP`. The drafter and the
heads learn beside the target, from its laws and its states, without a gradient into it.
"""

import argparse
import math
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import MusicgenForCausalLM, MusicgenForConditionalGeneration
from voice_batches import IGNORED, Batch, Batches
from voice_codec import hasten, load_codec
from voice_model import (
    CODEBOOKS,
    OFFSETS,
    FrameHeads,
    build_drafter,
    build_target,
    save_sample,
)
from voice_speech import SAMPLE_RATE_HZ, load

SAMPLE = Path(__file__).parents[1] / "voice-sample"
_SHOWN = 16  # held-out sentences that the sample lists
_SEED = 5
_BATCH = 16
_STEPS = 6200
_OWN_STEP = 4350  # from here on the corpus is the target's own speech, of voice_own.py
_OWN_SHARE = 0.3  # of the target's weights after its own speech, in those that ship
_WARMUP_STEPS = 150
_FOLLOW_STEP, _FOLLOW_EVERY = 1200, 2  # where drafter and heads start, and their steps after it
_PEAK_RATE, _FOLLOWER_RATE, _OWN_RATE = 1e-3, 2e-3, 3e-4
_SAVE_EVERY, _LOG_EVERY, _CHECKED = 150, 50, 32
_FOLLOWERS = ("drafter", *(f"head{offset}" for offset in range(1, OFFSETS + 1)))
# One head of these layers is told which characters a frame says: from the loss on codes alone the
# cross-attention of a small model doesn't learn where to look.
_GUIDED_LAYERS = (2, 4)
_GUIDED_HEAD = 0
_GUIDED_REACH = 2
_GUIDANCE_WEIGHT = 0.2


@dataclass
class Run:
    """Everything a checkpoint of a run holds."""

    target: MusicgenForConditionalGeneration
    drafter: MusicgenForCausalLM
    heads: FrameHeads
    target_optimizer: torch.optim.Optimizer
    follower_optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    _PARTS = ("target", "drafter", "heads", "target_optimizer", "follower_optimizer")

    def save(self, path: Path) -> None:
        """Writes the checkpoint so that a kill while writing leaves the old one."""
        partial = path.with_suffix(".partial")
        state = {part: getattr(self, part).state_dict() for part in self._PARTS}
        torch.save({**state, "step": self.step, "seconds": self.seconds}, partial)
        partial.rename(path)

    def load(self, path: Path) -> None:
        """Continues from a checkpoint."""
        state = torch.load(path, weights_only=True)
        for part in self._PARTS:
            getattr(self, part).load_state_dict(state[part])
        self.step, self.seconds = state["step"], state["seconds"]


def read_text(model: MusicgenForConditionalGeneration, batch: Batch) -> Tensor:
    """The text's states as `generate` hands them on, of shape [B, S, width]: zero where masked."""
    states = model.text_encoder(batch.text, attention_mask=batch.text_mask.clamp(min=0))
    return states.last_hidden_state * batch.text_mask[..., None]


def decode(
    decoder: MusicgenForCausalLM, batch: Batch, states: Tensor, *, attentions: bool = False
) -> tuple[Tensor, Tensor, tuple[Tensor, ...] | None]:
    """Teacher-forced logits [B, K, L, vocabulary], last hidden state, cross-attentions if wanted.

    A row without text reads zeros, masked or not, so its mask is opened: a softmax over nothing
    would not be a number.
    """
    mask = torch.where(batch.text_mask.any(-1, keepdim=True), batch.text_mask, 1)
    outputs = decoder.model.decoder(
        input_ids=batch.inputs.flatten(0, 1),
        encoder_hidden_states=states,
        encoder_attention_mask=mask,
        use_cache=False,
        output_attentions=attentions,
    )
    hidden = outputs.last_hidden_state
    logits = torch.stack([head(hidden) for head in decoder.lm_heads], dim=1)
    return logits.float(), hidden, outputs.cross_attentions if attentions else None


def _guidance(attentions: tuple[Tensor, ...], batch: Batch) -> Tensor:
    """How little of the guided heads' attention lies near the character being said."""
    character = torch.arange(batch.text.shape[1])
    near = (character - batch.places[..., None]).abs() <= _GUIDED_REACH
    said = batch.places != IGNORED
    lost = [
        -(attentions[layer][:, _GUIDED_HEAD].float() * near).sum(-1)[said].clamp_min(1e-4).log()
        for layer in _GUIDED_LAYERS
    ]
    return torch.stack([part.mean() for part in lost]).mean()


def _imitation(logits: Tensor, law: Tensor, labels: Tensor) -> tuple[Tensor, float]:
    """Cross-entropy with the data and with the target's law, in equal parts; and accuracy."""
    known = labels != IGNORED
    log_probs = logits.float().log_softmax(-1)[known]
    from_data = F.nll_loss(log_probs, labels[known])
    from_law = -(law[known] * log_probs).sum(-1).mean()
    hits = (log_probs.argmax(-1) == labels[known]).float().mean().item()
    return 0.5 * (from_data + from_law), hits


def _target_step(run: Run, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    states = read_text(run.target, batch)
    logits, hidden, attentions = decode(run.target.decoder, batch, states, attentions=True)
    entropy = F.cross_entropy(logits.flatten(0, 2), batch.labels.flatten())
    guidance = _guidance(attentions or (), batch)
    loss = entropy + _GUIDANCE_WEIGHT * guidance
    _update(run.target_optimizer, loss)
    hits = accuracy(logits, batch.labels)
    run.sums["ce"] += entropy.item()
    run.sums["lost"] += guidance.item()
    run.sums["hits"] += sum(hits) / CODEBOOKS
    return states.detach(), hidden.detach(), logits.detach()


def _follower_step(run: Run, batch: Batch, states: Tensor, hidden: Tensor, logits: Tensor) -> None:
    law = logits.softmax(-1)
    loss, drafter_hits = _imitation(decode(run.drafter, batch, states)[0], law, batch.labels)
    guessed = run.heads(hidden)
    for offset in range(1, OFFSETS + 1):
        part, head_hits = _imitation(
            guessed[:, offset - 1, :, :-offset], law[:, :, offset:], batch.labels[..., offset:]
        )
        loss = loss + part
        run.sums[f"head{offset}"] += head_hits
    run.sums["drafter"] += drafter_hits
    run.sums["seen"] += 1
    _update(run.follower_optimizer, loss)


def _update(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_([p for group in optimizer.param_groups for p in group["params"]], 1.0)
    optimizer.step()


def accuracy(logits: Tensor, labels: Tensor) -> list[float]:
    """The share of right codes in each codebook."""
    right, known = logits.argmax(-1) == labels, labels != IGNORED
    return [right[:, k][known[:, k]].float().mean().item() for k in range(CODEBOOKS)]


@torch.no_grad()
def reading(
    target: MusicgenForConditionalGeneration, held_out: Batches, count: int
) -> dict[str, list[float]]:
    """Accuracy by codebook on held-out sentences: with their text, without, with another's text."""
    batch = held_out.plain(list(range(count)))
    other = torch.roll(torch.arange(count), 1)
    shown = {
        "text": (batch.text, batch.text_mask),
        "no text": (batch.text, torch.zeros_like(batch.text_mask)),
        "other text": (batch.text[other], batch.text_mask[other]),
    }
    scores: dict[str, list[float]] = {}
    for name, (text, mask) in shown.items():
        seen = replace(batch, text=text, text_mask=mask)
        logits, _, _ = decode(target.decoder, seen, read_text(target, seen))
        scores[name] = accuracy(logits, batch.labels)
    return scores


def _rate(step: int, begin: int, end: int) -> float:
    """The share of the peak rate between two steps: a warm-up, then half a cosine."""
    step, steps = step - begin, end - begin
    if step < _WARMUP_STEPS:
        return (step + 1) / _WARMUP_STEPS
    done = (step - _WARMUP_STEPS) / (steps - _WARMUP_STEPS)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def _set_rates(run: Run) -> None:
    if run.step < _OWN_STEP:
        target = _PEAK_RATE * _rate(run.step, 0, _OWN_STEP)
        follower = _FOLLOWER_RATE * _rate(run.step, _FOLLOW_STEP, _OWN_STEP)
    else:
        share = _rate(run.step, _OWN_STEP, _STEPS)
        target, follower = _OWN_RATE * share, _FOLLOWER_RATE * share
    for optimizer, rate in ((run.target_optimizer, target), (run.follower_optimizer, follower)):
        for group in optimizer.param_groups:
            group["lr"] = rate


def _optimizer(parameters: list[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, betas=(0.9, 0.98), weight_decay=0.01, fused=True)


def start(work: Path) -> Run:
    """A fresh run around the codec of the work folder, or the last checkpoint of one."""
    torch.manual_seed(_SEED)
    target, drafter, heads = build_target(load_codec(work)), build_drafter(), FrameHeads()
    hasten(target.audio_encoder)
    target.decoder.set_attn_implementation("eager")  # the only one that gives the attentions
    learned = [*target.text_encoder.parameters(), *target.decoder.parameters()]
    followers = [*drafter.parameters(), *heads.parameters()]
    run = Run(target, drafter, heads, _optimizer(learned), _optimizer(followers))
    if (work / "voice.pt").exists():
        run.load(work / "voice.pt")
        target.audio_encoder.load_state_dict(load_codec(work).state_dict())
        print(f"resumed at step {run.step}, {run.seconds:.0f} s", flush=True)
    return run


def train(run: Run, work: Path, steps: int) -> None:
    """Trains to `steps`; from `_OWN_STEP` on with what the target said itself."""
    sets = [Batches(work, split, run.target.audio_encoder) for split in ("train", "heldout")]
    last_report = run.step
    if run.step >= _OWN_STEP:
        sets[0].exchange(work / "own-codes.pt")
    while run.step < steps:
        started = time.monotonic()
        own = run.step >= _OWN_STEP
        follows = own or (run.step >= _FOLLOW_STEP and run.step % _FOLLOW_EVERY == 0)
        _set_rates(run)
        batch = sets[0].training(_SEED, run.step, _BATCH)
        with torch.autocast("cpu", torch.bfloat16):
            known = _target_step(run, batch)
            if follows:
                _follower_step(run, batch, *known)
        run.step += 1
        run.seconds += time.monotonic() - started
        if run.step % _LOG_EVERY == 0:
            since = run.step - last_report
            seen = run.sums.pop("seen", since)
            means = " ".join(
                f"{name} {total / (seen if name in _FOLLOWERS else since):.3f}"
                for name, total in run.sums.items()
            )
            print(f"step {run.step}/{steps} {means} time {run.seconds:.0f} s", flush=True)
            run.sums.clear()
            last_report = run.step
        if run.step % _SAVE_EVERY == 0 or run.step == steps:
            run.save(work / "voice.pt")
            if run.step == _OWN_STEP:
                torch.save(run.target.state_dict(), work / "recorded.pt")
            for name, scores in reading(run.target, sets[1], _CHECKED).items():
                print(f"  held out, {name}: " + " ".join(f"{score:.3f}" for score in scores),
                      flush=True)  # fmt: skip


@torch.no_grad()
def _blend(run: Run, work: Path) -> None:
    """Draws the target back to what it was before it heard itself.

    Its own speech makes its law sharp and repeats its mistakes; weights between the two (Wortsman
    et al. 2022) keep the sharpness and lose the mistakes.
    """
    recorded = torch.load(work / "recorded.pt", weights_only=True)
    for name, weight in run.target.state_dict().items():
        if not name.startswith("audio_encoder."):
            weight.lerp_(recorded[name], 1 - _OWN_SHARE)


def _write_sentences(work: Path, out: Path) -> None:
    lines = [
        f"{spoken.text}\t{spoken.samples / SAMPLE_RATE_HZ:.2f}\n"
        for _, spoken in load(work, "heldout")[:_SHOWN]
    ]
    (out / "sentences.txt").write_text("".join(lines))


def main() -> None:
    """Trains, and writes the three folders of the sample."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work", type=Path, default=Path("build/voice"))
    parser.add_argument("--export", action="store_true", help="write the last checkpoint, no more")
    parser.add_argument("--out", type=Path, default=SAMPLE)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    run = start(arguments.work)
    if not arguments.export:
        own = (arguments.work / "own-codes.pt").exists()
        train(run, arguments.work, _STEPS if own else _OWN_STEP)
    if run.step > _OWN_STEP:
        _blend(run, arguments.work)
    save_sample(arguments.out, run.target, run.drafter, run.heads)
    _write_sentences(arguments.work, arguments.out)
    print(f"{run.step} steps, {run.seconds / 60:.0f} min of training")


if __name__ == "__main__":
    main()
