"""What a round costs behind a short and behind a long visual prefix, and who copies the prefix.

    python benchmarks/visual_prefix.py CONFIG [--pairs 5] [--json FILE]

CONFIG is a folder with the configuration of a Qwen2-VL whose weights are drawn here: what it says
is of no interest, and its tower is left one layer. Prompts are images of 64 to 4,096 visual tokens.
Interleaved in one process, one thread, after a warm-up pass:

    copy      the target itself drafts four units a round; all are kept
    stranger  a model of other weights drafts four; none is kept, every round is rolled back
    none      mmspec without a drafter
    hf        transformers' `generate`

Figures are ratios within a pass: a phase of a round behind N visual tokens over the same behind
the fewest, and transformers' time per token over mmspec's without a drafter. Time is the process's
own: what else runs on the machine isn't in it.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, GenerationConfig, Qwen2VLConfig, Qwen2VLForConditionalGeneration
from transformers.generation.streamers import BaseStreamer

from mmspec.bench.spread import Spread
from mmspec.clock import Clock
from mmspec.compat import quiet
from mmspec.engine import BlockCosts, FixedPolicy, Sampling, run_alone
from mmspec.engine.stats import RequestStats
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.draft import ModelDraft
from mmspec.modalities.base.encoder_runs import watched
from mmspec.modalities.base.preparation import prepare
from mmspec.modalities.base.request import decoded
from mmspec.modalities.base.speculative_decoder import NoDraft, SpeculativeDecoder

GRIDS = ((8, 8), (16, 16), (32, 32), (32, 64), (64, 64))
"""Height and width in visual tokens."""

GAMMA, NEW_TOKENS, WORDS = 4, 41, (97, 98, 99)
PHASES = ("draft", "verify", "reconcile")


class ProcessorClock(Clock):
    """Counts the process's seconds instead of the wall's."""

    def now(self) -> float:
        return time.process_time()


class FirstToken(BaseStreamer):
    """Notes when the first token behind the prompt came."""

    def __init__(self) -> None:
        self.puts, self.at_s = 0, 0.0

    def put(self, value: Tensor) -> None:
        self.puts += 1
        if self.puts == 2:  # the prompt was the first
            self.at_s = time.process_time()

    def end(self) -> None:
        self.seconds = time.process_time() - self.at_s


def drawn(config: Any, seed: int) -> Any:
    """A model of its own that never ends by itself."""
    torch.manual_seed(seed)
    model = Qwen2VLForConditionalGeneration(config).eval()
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                torch.nn.init.normal_(weight, std=0.1)
    model.generation_config = GenerationConfig(do_sample=False, pad_token_id=0)
    return model


def prompt(config: Any, grid: tuple[int, int]) -> dict[str, Tensor]:
    """What the processor would make of an image that takes `grid` visual tokens."""
    eye, (height, width) = config.vision_config, grid
    merge = eye.spatial_merge_size
    patches, tokens = height * width * merge**2, height * width
    values = eye.in_channels * eye.temporal_patch_size * eye.patch_size**2
    before = [config.vision_start_token_id, *tokens * [config.image_token_id]]
    ids = torch.tensor([[*before, config.vision_end_token_id, *WORDS]])
    return {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "mm_token_type_ids": (ids == config.image_token_id).long(),
        "pixel_values": torch.randn(
            patches, values, generator=torch.Generator().manual_seed(tokens)
        ),
        "image_grid_thw": torch.tensor([[1, height * merge, width * merge]]),
    }


@dataclass
class Moves:
    """Where a decoder's first layer keeps its keys, pass after pass.

    Attributes:
        places: address of the first position's.
        room: positions that memory is set aside for, after the last pass.
    """

    places: list[int] = field(default_factory=list)
    room: int = 0

    def note(self, cache: Any) -> None:
        """A pass is over."""
        keys = cache.layers[0].keys
        position = keys[:, :, 0].numel() * keys.element_size()
        self.places.append(keys.data_ptr())
        self.room = keys.untyped_storage().nbytes() // position

    def to_dict(self) -> dict[str, Any]:
        """Passes behind the prompt, and how many left the prefix elsewhere than they found it."""
        moved = sum(here != there for here, there in itertools.pairwise(self.places))
        passes = len(self.places) - 1
        return {"passes": passes, "moved_the_prefix": moved, "positions_set_aside": self.room}


@contextmanager
def watching(decoder: Any) -> Iterator[Moves]:
    """Note after every pass where its keys are."""
    moves = Moves()

    def note(module: Any, given: Any, named: dict[str, Any], output: Any) -> None:
        moves.note(next(value for value in named.values() if isinstance(value, Cache)))

    hook = decoder.register_forward_hook(note, with_kwargs=True)
    try:
        yield moves
    finally:
        hook.remove()


def drafted(pair: SpeculativeDecoder[Checkpoint], inputs: dict[str, Tensor]) -> dict[str, Any]:
    """One request of mmspec's: ids, seconds by phase and round, what happened to the prefix."""
    model = pair.checkpoint.model
    stats, greedy = RequestStats(ProcessorClock(model.device)), Sampling(False)
    encoder_names = pair.checkpoint.family.encoders(model)
    with (
        watching(model.get_decoder()) as moves,
        watched(encoder_names, Clock(model.device)) as runs,
    ):
        prepared = prepare(model, inputs, max_new_tokens=NEW_TOKENS)
        ids = run_alone(decoded(pair, prepared, stats, sampling=greedy, inputs=lambda _: inputs))
    report = stats.report(greedy, pair.costs)
    seconds = {phase: report.seconds[phase] / report.rounds for phase in PHASES}
    return {
        "ids": ids,
        "seconds": seconds | {"token": report.decode_seconds / (report.tokens - 1)},
        "facts": {
            "rounds": report.rounds,
            "accepted_share": report.draft_acceptance_rate,
            "tower_runs": runs.count,
            "reconcile_share": report.seconds["reconcile"] / report.decode_seconds,
            **moves.to_dict(),
        },
    }


def generated(model: Any, inputs: dict[str, Tensor]) -> dict[str, Any]:
    """The same request by transformers."""
    watch = FirstToken()
    with watching(model.get_decoder()) as moves, quiet():
        ids = model.generate(**inputs, max_new_tokens=NEW_TOKENS, streamer=watch)
    ids = ids[0, inputs["input_ids"].shape[1] :].tolist()
    seconds = {"token": watch.seconds / (len(ids) - 1)}
    return {"ids": ids, "seconds": seconds, "facts": moves.to_dict()}


Ways = dict[str, Callable[[dict[str, Tensor]], dict[str, Any]]]
Runs = dict[str, list[list[dict[str, Any]]]]
"""By way, by pass, by prompt."""


def ways_of(config: Any) -> Ways:
    """Who decodes."""
    model, stranger = drawn(config, 0), drawn(config, 1)
    target = Checkpoint.of(model, packed=False)

    def way(draft: Any) -> Callable[[dict[str, Tensor]], dict[str, Any]]:
        pair = SpeculativeDecoder(target, draft, FixedPolicy(GAMMA), BlockCosts())
        return lambda inputs: drafted(pair, inputs)

    def drafter(of: Any, name: str) -> ModelDraft:
        return ModelDraft(target, Checkpoint.of(of, packed=False), name, sure=0.0)

    return {
        "copy": way(drafter(copy.deepcopy(model), "copy")),
        "stranger": way(drafter(stranger, "stranger")),
        "none": way(NoDraft()),
        "hf": lambda inputs: generated(model, inputs),
    }


def measured(ways: Ways, prompts: list[dict[str, Tensor]], pairs: int) -> Runs:
    """Every way on every prompt, pass after pass; the first pass warms up."""
    runs: Runs = {name: [] for name in ways}
    for number in range(pairs + 1):
        for name in ways:
            runs[name].append([])
        for inputs in prompts:
            said = {name: way(inputs) for name, way in ways.items()}
            if any(one["ids"] != said["hf"]["ids"] for one in said.values()):
                raise SystemExit("the ids differ")
            for name, one in said.items():
                runs[name][number].append(one)
        print(f"pass {number} of {pairs}", flush=True)
    return {name: passes[1:] for name, passes in runs.items()}


def summary(runs: Runs) -> list[dict[str, Any]]:
    """By prompt: growth of every phase, transformers over mmspec, and the facts."""
    rows = []
    for number, (height, width) in enumerate(GRIDS):

        def seconds(name: str, phase: str, one: int) -> list[float]:
            return [done[one]["seconds"][phase] for done in runs[name]]

        def over(above: list[float], below: list[float]) -> dict[str, Any]:
            return Spread.of(a / b for a, b in zip(above, below, strict=True)).to_dict()

        growth = {
            name: {
                phase: over(seconds(name, phase, number), seconds(name, phase, 0))
                for phase in runs[name][0][number]["seconds"]
            }
            for name in runs
        }
        rows.append(
            {
                "visual_tokens": height * width,
                "over_the_shortest": growth,
                "hf_over_none_per_token": over(
                    seconds("hf", "token", number), seconds("none", "token", number)
                ),
                "facts": {name: runs[name][-1][number]["facts"] for name in runs},
            }
        )
    return rows


def table(rows: list[dict[str, Any]]) -> str:
    """For a page."""

    def cell(spread: dict[str, Any]) -> str:
        return str(Spread(**spread))

    lines = [
        "| visual tokens | reconcile, all kept | reconcile, all rolled back | verify five "
        "| a step | `hf`, a step | `hf` over `none` |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        growth = row["over_the_shortest"]
        cells = [
            growth["copy"]["reconcile"],
            growth["stranger"]["reconcile"],
            growth["copy"]["verify"],
            growth["none"]["token"],
            growth["hf"]["token"],
            row["hf_over_none_per_token"],
        ]
        lines.append(f"| {row['visual_tokens']:,} | {' | '.join(map(cell, cells))} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("config", type=Path)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    config = Qwen2VLConfig.from_pretrained(given.config)
    config.vision_config.depth = 1
    runs = measured(ways_of(config), [prompt(config, grid) for grid in GRIDS], given.pairs)
    rows = summary(runs)
    print(table(rows))
    if given.json:
        text = config.text_config
        settings = {
            "layers": text.num_hidden_layers,
            "width": text.hidden_size,
            "gamma": GAMMA,
            "new_tokens": NEW_TOKENS,
            "pairs": given.pairs,
            "threads": 1,
            "dtype": "float32",
            "versions": {name: metadata.version(name) for name in ("torch", "transformers")},
            "load_average": [round(load, 2), round(os.getloadavg()[0], 2)],
        }
        found = {"settings": settings, "prefixes": rows}
        given.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
