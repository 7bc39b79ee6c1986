"""Trains the vision target, then its drafter, on one CPU thread.

    python samples/recipe/vision_train.py target --work WORK
    python samples/recipe/vision_train.py drafter --work WORK

A run goes on from its last checkpoint in `WORK`, at most `_SAVE_EVERY` steps old.
"""

import argparse
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import Qwen2VLForConditionalGeneration
from vision_batches import (
    BLANK,
    CHARACTER_CLASSES,
    IGNORED,
    OFFSETS,
    THING_CLASSES,
    Batch,
    draw_batch,
)
from vision_checkpoint import build_model, build_tokenizer, save
from vision_forward import Reader, hits, see, text_ids
from vision_start import look_at_neighbours

SAMPLE = Path(__file__).parents[1] / "vision-sample"
_SEED = 7
_STEPS = {"target": 3850, "drafter": 1000}
_PEAK_RATE = {"target": 1.5e-3, "drafter": 1.5e-3}
_WARMUP_STEPS = 100
_DECAY_SHARE = 0.35  # of the steps, at the end: the rate falls to nothing
_SAVE_EVERY, _LOG_EVERY, _LOOK_EVERY = 100, 25, 250
# With next-character loss alone the decoder learns to spell and never looks. We drew the images, so
# the tower first learns what lies on each patch, and later one head of some layers is told where
# the next character is to be seen.
_TOWER_ONLY_STEPS = 1500  # of the target
_GROWN_STEP = 1750  # from here on print is as long as it gets
_GUIDED_LAYERS = {"target": (1, 3), "drafter": (1,)}
_DENSE_WEIGHT, _LOOKING_WEIGHT = 1.0, 0.5
_BLANK_WEIGHT = 0.2


class DenseHead(nn.Module):
    """Says what lies on a patch; thrown away after training."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.characters = nn.Linear(width, len(OFFSETS) * CHARACTER_CLASSES)
        self.things = nn.Linear(width, sum(THING_CLASSES))

    def forward(self, visual: Tensor, batch: Batch) -> Tensor:
        """Mean cross-entropy over visual tokens [B, N, width] and what is known of each."""
        if batch.is_print:
            logits = self.characters(visual).unflatten(-1, (len(OFFSETS), CHARACTER_CLASSES))
            weight = torch.ones(CHARACTER_CLASSES)
            weight[BLANK] = _BLANK_WEIGHT
            return F.cross_entropy(
                logits.flatten(0, -2), batch.dense.flatten(), weight, ignore_index=IGNORED
            )
        parts = self.things(visual).split(THING_CLASSES, -1)
        losses = []
        for kind, (classes, logits) in enumerate(zip(THING_CLASSES, parts, strict=True)):
            weight = torch.ones(classes)
            weight[BLANK] = _BLANK_WEIGHT
            wanted = batch.dense[..., kind].flatten()
            losses.append(F.cross_entropy(logits.flatten(0, 1), wanted, weight))
        return torch.stack(losses).mean()


@dataclass
class Run:
    """Everything a checkpoint of a run holds."""

    model: Qwen2VLForConditionalGeneration
    dense_head: DenseHead
    optimizer: torch.optim.Optimizer
    step: int = 0
    seconds: float = 0.0
    seen: dict[str, list[float]] = field(default_factory=dict)

    def save(self, path: Path) -> None:
        """Writes the checkpoint so that a kill while writing leaves the old one."""
        partial = path.with_suffix(".partial")
        parts = ("model", "dense_head", "optimizer")
        state = {part: getattr(self, part).state_dict() for part in parts}
        torch.save({**state, "step": self.step, "seconds": self.seconds}, partial)
        partial.rename(path)

    def load(self, path: Path) -> None:
        """Continues from a checkpoint."""
        state = torch.load(path, weights_only=True)
        for part in ("model", "dense_head", "optimizer"):
            getattr(self, part).load_state_dict(state[part])
        self.step, self.seconds = state["step"], state["seconds"]

    def note(self, name: str, value: float) -> None:
        """Keeps a figure for the next report."""
        self.seen.setdefault(name, []).append(value)

    def report(self) -> str:
        """Means since the last report."""
        means = [f"{name} {sum(x) / len(x):.3f}" for name, x in sorted(self.seen.items())]
        self.seen.clear()
        return " ".join(means)


def rate(step: int, steps: int, peak: float) -> float:
    """Learning rate: warm-up, constant, then linear decay to nothing."""
    left = (steps - step) / (_DECAY_SHARE * steps)
    return peak * min(1.0, (step + 1) / _WARMUP_STEPS, left)


def target_batch(step: int) -> Batch:
    """The target's batch: print grows longer once the decoder learns, and less at rest."""
    grown = 0.1 + (step - _TOWER_ONLY_STEPS) / (_GROWN_STEP - _TOWER_ONLY_STEPS)
    growth = 0.4 if step < _TOWER_ONLY_STEPS else min(1.0, grown)
    return draw_batch(_SEED, step, growth, min(1.0, 0.75 * step / _TOWER_ONLY_STEPS))


def _spell(run: Run, reader: Reader, batch: Batch, visual: Tensor) -> tuple[Tensor, Tensor]:
    """Logits, and the loss of the next character and of where it is looked for."""
    kind = "print" if batch.is_print else "scene"
    logits = reader.read(batch, visual)
    loss = F.cross_entropy(logits.flatten(0, 1), text_ids(batch).flatten())
    run.note(f"ce-{kind}", loss.item())
    run.note(f"hits-{kind}", hits(logits, batch))
    if batch.cover.any():
        looking = reader.looking(batch)
        run.note(f"look-{kind}", looking.item())
        loss = loss + _LOOKING_WEIGHT * looking
    return logits, loss


def target_loss(run: Run, reader: Reader, batch: Batch) -> Tensor:
    """What lies on the patches; after the first stage, the next character too."""
    visual = see(run.model, batch.images)
    dense = run.dense_head(visual, batch)
    run.note(f"dense-{'print' if batch.is_print else 'scene'}", dense.item())
    if run.step < _TOWER_ONLY_STEPS:
        return dense
    return _spell(run, reader, batch, visual)[1] + _DENSE_WEIGHT * dense


def drafter_loss(run: Run, reader: Reader, batch: Batch, target: Reader) -> Tensor:
    """The target's distributions and the text; the visual tokens are the target's."""
    with torch.no_grad():
        visual = see(target.model, batch.images)
        wanted = target.read(batch, visual)
    logits, loss = _spell(run, reader, batch, visual)
    decided = batch.text != IGNORED
    ours, theirs = logits[decided].log_softmax(-1), wanted[decided].log_softmax(-1)
    imitation = F.kl_div(ours, theirs, log_target=True, reduction="batchmean")
    run.note("kl", imitation.item())
    run.note("agreed", (ours.argmax(-1) == theirs.argmax(-1)).float().mean().item())
    return imitation + 0.5 * loss


@torch.no_grad()
def looks(reader: Reader) -> str:
    """Teacher-forced accuracy on held-out images, and with blank ones in their place."""
    shares: dict[str, list[float]] = {}
    for step in range(12):
        batch = draw_batch(_SEED, step, held_out=True)
        blank = batch.images.float().mean((1, 2), keepdim=True).byte().expand_as(batch.images)
        for name, images in (("held-out", batch.images), ("blind", blank)):
            share = hits(reader.read(batch, see(reader.model, images)), batch)
            kind = "print" if batch.is_print else "scene"
            shares.setdefault(f"{name} {kind}", []).append(share)
    return " ".join(f"{name} {sum(x) / len(x):.3f}" for name, x in sorted(shares.items()))


def start(role: str) -> tuple[Run, Qwen2VLForConditionalGeneration | None]:
    """A fresh run, and the target if there is one to learn from."""
    torch.manual_seed(_SEED)
    model, target = build_model(build_tokenizer(), role), None
    look_at_neighbours(model)
    if role == "drafter":
        target = Qwen2VLForConditionalGeneration.from_pretrained(
            SAMPLE / "target", dtype=torch.float32
        ).eval()
        # Its tower and layers are the target's (the layers its first ones); the tower stays so.
        theirs = target.state_dict()
        model.load_state_dict({name: theirs[name] for name in model.state_dict()})
        model.model.visual.requires_grad_(False)
    head = DenseHead(model.config.text_config.hidden_size)
    trained = [p for p in [*model.parameters(), *head.parameters()] if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, betas=(0.9, 0.95), weight_decay=0.01, fused=True)
    return Run(model, head, optimizer), target


def train(role: str, work: Path, steps: int) -> Run:
    """Trains to `steps`, from the last checkpoint in `work` if there is one."""
    run, target = start(role)
    path = work / f"vision-{role}.pt"
    if path.exists():
        run.load(path)
        print(f"resumed at step {run.step}, {run.seconds:.0f} s", flush=True)
    reader = Reader(run.model, _GUIDED_LAYERS[role])
    example = Reader(target, ()) if target else None
    while run.step < steps:
        started = time.monotonic()
        speed = rate(run.step, steps, _PEAK_RATE[role])
        for group in run.optimizer.param_groups:
            group["lr"] = speed
        if example:
            loss = drafter_loss(run, reader, draw_batch(_SEED + 1, run.step), example)
        else:
            loss = target_loss(run, reader, target_batch(run.step))
        run.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(run.model.parameters(), 1.0)
        run.optimizer.step()
        run.step += 1
        run.seconds += time.monotonic() - started
        if run.step % _LOG_EVERY == 0:
            means = f"{run.report()} rate {speed:.5f} time {run.seconds:.0f} s"
            print(f"step {run.step}/{steps} {means}", flush=True)
        if run.step % _SAVE_EVERY == 0:
            run.save(path)
        if run.step % _LOOK_EVERY == 0 and (example or run.step > _TOWER_ONLY_STEPS):
            print(f"  {looks(reader)}", flush=True)
    run.save(path)
    return run


def main() -> None:
    """Trains one of the two models and writes its folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["target", "drafter"])
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--steps", type=int, help="steps of the whole run")
    parser.add_argument("--out", type=Path, help="folder to write, instead of the sample's own")
    parser.add_argument("--export", action="store_true", help="write the last checkpoint, no more")
    arguments = parser.parse_args()
    role, work = arguments.role, arguments.work
    torch.set_num_threads(1)
    work.mkdir(parents=True, exist_ok=True)
    if arguments.export:
        run, _ = start(role)
        run.load(work / f"vision-{role}.pt")
    else:
        run = train(role, work, arguments.steps or _STEPS[role])
    save(run.model, role, arguments.out or SAMPLE / role)
    print(f"{role}: {run.step} steps, {run.seconds / 60:.0f} min of training")


if __name__ == "__main__":
    main()
