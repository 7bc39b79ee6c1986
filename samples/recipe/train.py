"""Trains the sample target, then its drafter, on one CPU thread.

    python samples/recipe/train.py target --work WORK
    python samples/recipe/train.py drafter --work WORK

A run goes on from its last checkpoint in `WORK`, at most `_SAVE_EVERY` steps old, and writes the
checkpoint folder to `samples/whisper-sample/` when it is done (or at once with `--export`).
"""

import argparse
import math
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from batches import CHARACTERS, IGNORED, Batch, Batches
from checkpoint import (
    DRAFTER_DECODER_LAYERS,
    TARGET_DECODER_LAYERS,
    build_model,
    build_tokenizer,
    save,
)
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import WhisperForConditionalGeneration

SAMPLE = Path(__file__).parents[1] / "whisper-sample"
_SEED = 20
_BATCH = 16
_WARMUP_STEPS = 200
_SAVE_EVERY = 200
_LOG_EVERY = 50
_PEAK_RATE = {"target": 1.0e-3, "drafter": 2e-3}
_STEPS = {"target": 3800, "drafter": 1600}
# With next-token loss alone the cross-attention never learns where to look; a CTC loss makes the
# encoder write the letters into its states first.
_CTC_ONLY_STEPS = 700
_CTC_WEIGHT = 0.3


@dataclass
class Run:
    """Everything a checkpoint of a run holds."""

    model: WhisperForConditionalGeneration
    ctc_head: nn.Linear
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0
    sums: dict[str, float] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes the checkpoint so that a kill while writing leaves the old one."""
        partial = path.with_suffix(".partial")
        parts = ("model", "ctc_head", "optimizer")
        state = {part: getattr(self, part).state_dict() for part in parts}
        torch.save({**state, "step": self.step, "seconds": self.seconds}, partial)
        partial.rename(path)

    def load(self, path: Path) -> None:
        """Continues from a checkpoint."""
        state = torch.load(path, weights_only=True)
        for part in ("model", "ctc_head", "optimizer"):
            getattr(self, part).load_state_dict(state[part])
        self.step, self.seconds = state["step"], state["seconds"]


def encode(model: WhisperForConditionalGeneration, features: Tensor) -> Tensor:
    """The encoder's own layers over a window shorter than the one Whisper insists on.

    Returns:
        States of shape [B, W / 2, width].
    """
    encoder = model.model.encoder
    states = F.gelu(encoder.conv2(F.gelu(encoder.conv1(features)))).transpose(1, 2)
    states = states + encoder.embed_positions.weight[: states.shape[1]]
    for layer in encoder.layers:
        states = layer(states, None)
    return encoder.layer_norm(states)


def decode(model: WhisperForConditionalGeneration, ids: Tensor, states: Tensor) -> Tensor:
    """Teacher-forced logits of shape [B, L, vocabulary]."""
    decoder = model.model.decoder
    hidden = decoder(input_ids=ids, encoder_hidden_states=states, use_cache=False)
    return model.proj_out(hidden.last_hidden_state).float()


def _ctc(head: nn.Linear, states: Tensor, batch: Batch) -> Tensor:
    log_probs = head(states).float().log_softmax(-1).transpose(0, 1)
    return F.ctc_loss(
        log_probs,
        batch.ctc_targets,
        batch.speech_positions,
        batch.ctc_lengths,
        zero_infinity=True,
    )


def _hits(logits: Tensor, labels: Tensor) -> float:
    decided = labels != IGNORED
    return (logits.argmax(-1) == labels)[decided].float().mean().item()


def _target_loss(run: Run, batch: Batch) -> Tensor:
    states = encode(run.model, batch.features)
    ctc = _ctc(run.ctc_head, states, batch)
    run.sums["ctc"] = run.sums.get("ctc", 0) + ctc.item()
    if run.step < _CTC_ONLY_STEPS:
        return ctc
    logits = decode(run.model, batch.decoder_ids, states)
    cross_entropy = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten())
    run.sums["ce"] = run.sums.get("ce", 0) + cross_entropy.item()
    run.sums["hits"] = run.sums.get("hits", 0) + _hits(logits, batch.labels)
    return cross_entropy + _CTC_WEIGHT * ctc


def _drafter_loss(run: Run, batch: Batch, target: WhisperForConditionalGeneration) -> Tensor:
    with torch.no_grad():
        states = encode(target, batch.features)
        wanted = decode(target, batch.decoder_ids, states)
    logits = decode(run.model, batch.decoder_ids, states)
    decided = batch.labels != IGNORED
    log_probs = logits[decided].log_softmax(-1)
    imitation = F.kl_div(
        log_probs, wanted[decided].log_softmax(-1), log_target=True, reduction="batchmean"
    )
    cross_entropy = F.nll_loss(log_probs, batch.labels[decided])
    for name, value in (("kl", imitation.item()), ("ce", cross_entropy.item())):
        run.sums[name] = run.sums.get(name, 0) + value
    run.sums["hits"] = run.sums.get("hits", 0) + _hits(logits, batch.labels)
    return imitation + 0.5 * cross_entropy


@torch.no_grad()
def _listening(model: WhisperForConditionalGeneration, held_out: Batches) -> str:
    """Teacher-forced accuracy on held-out clips, and the same with silence in their place."""
    batch = held_out.plain(range(64), timestamps=False)
    with torch.autocast("cpu", torch.bfloat16):
        heard = decode(model, batch.decoder_ids, encode(model, batch.features))
        silence = torch.full_like(batch.features, batch.features.min().item())
        blind = decode(model, batch.decoder_ids, encode(model, silence))
    return f"held-out {_hits(heard, batch.labels):.3f}, blind {_hits(blind, batch.labels):.3f}"


def _rate(step: int, steps: int, peak: float) -> float:
    if step < _WARMUP_STEPS:
        return peak * (step + 1) / _WARMUP_STEPS
    done = (step - _WARMUP_STEPS) / max(1, steps - _WARMUP_STEPS)
    return peak * (0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * done)))


def _start(role: str) -> tuple[Run, WhisperForConditionalGeneration | None]:
    torch.manual_seed(_SEED)
    tokenizer = build_tokenizer()
    if role == "target":
        model, target = build_model(tokenizer, TARGET_DECODER_LAYERS), None
    else:
        model = build_model(tokenizer, DRAFTER_DECODER_LAYERS)
        # The stored (float16) target, so that the copy of its encoder is equal bit for bit.
        target = WhisperForConditionalGeneration.from_pretrained(
            SAMPLE / "target", dtype=torch.float32
        ).eval()
        _inherit(model, target)
    head = nn.Linear(model.config.d_model, 1 + len(CHARACTERS))
    trained = [p for p in [*model.parameters(), *head.parameters()] if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, betas=(0.9, 0.98), weight_decay=0.01, fused=True)
    return Run(model, head, optimizer), target


def _inherit(
    model: WhisperForConditionalGeneration, target: WhisperForConditionalGeneration
) -> None:
    """Gives the drafter the target's encoder, frozen, its embeddings and its last decoder layer."""
    model.model.encoder.load_state_dict(target.model.encoder.state_dict())
    model.model.encoder.requires_grad_(False)
    ours, theirs = model.model.decoder, target.model.decoder
    for name in ("embed_tokens", "embed_positions", "layer_norm"):
        getattr(ours, name).load_state_dict(getattr(theirs, name).state_dict())
    ours.layers[0].load_state_dict(theirs.layers[-1].state_dict())


def _report(run: Run, steps: int, rate: float, since: int) -> str:
    means = " ".join(f"{name} {total / since:.3f}" for name, total in run.sums.items())
    run.sums.clear()
    return f"step {run.step}/{steps} {means} rate {rate:.5f} time {run.seconds:.0f} s"


def train(role: str, work: Path, steps: int) -> Run:
    """Trains to `steps`, from the last checkpoint in `work` if there is one."""
    run, target = _start(role)
    path = work / f"{role}.pt"
    if path.exists():
        run.load(path)
        print(f"resumed at step {run.step}, {run.seconds:.0f} s", flush=True)
    tokenizer = build_tokenizer()
    batches = Batches(work, "train", tokenizer, seed=_SEED)
    held_out = Batches(work, "heldout", tokenizer, seed=_SEED)
    last_report = run.step
    while run.step < steps:
        started = time.monotonic()
        rate = _rate(run.step, steps, _PEAK_RATE[role])
        for group in run.optimizer.param_groups:
            group["lr"] = rate
        # The last part sees only the full window, the one `generate` uses.
        share = 0.15 if run.step < 0.85 * steps else 1.0
        batch = batches.training(run.step, _BATCH, share)
        with torch.autocast("cpu", torch.bfloat16):
            loss = _drafter_loss(run, batch, target) if target else _target_loss(run, batch)
        run.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        run.optimizer.step()
        run.step += 1
        run.seconds += time.monotonic() - started
        if run.step % _LOG_EVERY == 0:
            print(_report(run, steps, rate, run.step - last_report), flush=True)
            last_report = run.step
        if run.step % _SAVE_EVERY == 0:
            run.save(path)
        if run.step % 500 == 0 and run.step > _CTC_ONLY_STEPS * (target is None):
            print(f"  {_listening(run.model, held_out)}", flush=True)
    run.save(path)
    return run


def main() -> None:
    """Trains one of the two models and writes its folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["target", "drafter"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="steps of the whole run")
    parser.add_argument("--export", action="store_true", help="write the last checkpoint, no more")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.export:
        run, _ = _start(arguments.role)
        run.load(arguments.work / f"{arguments.role}.pt")
    else:
        run = train(arguments.role, arguments.work, arguments.steps or _STEPS[arguments.role])
    save(run.model, build_tokenizer(), SAMPLE / arguments.role)
    print(f"{arguments.role}: {run.step} steps, {run.seconds / 60:.0f} min of training")


if __name__ == "__main__":
    main()
