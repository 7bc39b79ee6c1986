"""transformers' own generation tests with our loop in place of theirs, and the same for voices.

    python -m benchmarks.peer_suite [--transformers DIR] [--modes ...] [--drafts ...]
        [--families ...] [--keep FOLDER]

DIR is a checkout of transformers at the version that is installed; its tests also want
`parameterized`, `datasets`, `httpx` and `timeout-decorator`. Every call of `generate` in them is
made twice, by transformers and through mmspec, and compared field by field (`peer/judging.py`).
Which tests count is found out first: those that call `generate` and pass without us.

Modes: `as-is` hands the loop to the calls as they stand (most have two prompts or ask for
attentions, and stay with transformers' loop); `one` makes them one prompt without attentions, for
12 tokens; `two` sends two prompts through `mmspec.generate`. Mode `asked` needs no checkout: the
families that those tests don't reach, voices above all, are asked the same questions on tiny models
(`peer/questions.py`, `peer/beds.py`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import transformers

from benchmarks.peer.beds import beds
from benchmarks.peer.judging import VERDICTS, Count, Judge, tally
from benchmarks.peer.questions import ask
from mmspec.modalities import ADAPTERS

ASKED = "asked"
MODES = ("as-is", "one", "two", ASKED)
DRAFTS = ("none", "ngram", "early-exit:1", "copy")
FOLDERS = {"vision-encoder-decoder": "vision_encoder_decoder", "blip_text_model": "blip"}
"""Where a model type's tests stand, if not in a folder of its name."""
GENERATING = (
    "(generat or greedy or sample or assisted or lookup or beam or longform or language or padding"
    " or cache or 4d or past)"
    " and not (compil or export or flash or offload or model_parallel)"
)
LISTENING = ("qwen2_audio", "voxtral", "whisper")
SPEAKING = [kind for kind, row in ADAPTERS.items() if row.task == "tts"]
VOICES = (*SPEAKING, "orpheus", "valle")
QUIET = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--transformers", type=Path, help="a checkout; without: mode asked alone")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--drafts", nargs="+", choices=DRAFTS, default=list(DRAFTS))
    parser.add_argument(
        "--families", nargs="+", help="folders of tests; default: all that we claim"
    )
    parser.add_argument("--keep", type=Path, help="a folder for the records of every call")
    asked = parser.parse_args()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}")
    groups: dict[tuple[str, str, str], Count] = defaultdict(Count)
    with tempfile.TemporaryDirectory() as folder:
        keep = (asked.keep or Path(folder)).absolute()
        keep.mkdir(parents=True, exist_ok=True)
        for mode in asked.modes:
            run = _runner(mode, asked.transformers, keep, asked.families)
            for draft in asked.drafts if run is not None else ():
                counts = run(draft)
                show(f"{mode}, {draft}", {(family,): count for family, count in counts.items()})
                for family, count in counts.items():
                    groups[mode, group_of(family), draft] += count
    show("in all", groups)


def _runner(
    mode: str, checkout: Path | None, keep: Path, families: list[str] | None
) -> Callable[[str], dict[str, Count]] | None:
    """What counts a mode by family for a drafter; None where a checkout is missing."""
    if mode == ASKED:
        return lambda draft: ask_beds(draft, keep, families)
    if checkout is None:
        return None
    suite = Suite(checkout.absolute(), keep, families)
    suite.find_known(mode)
    return lambda draft: suite.run(mode, draft)


def ask_beds(draft: str, keep: Path, families: list[str] | None) -> dict[str, Count]:
    """Counts by family of what the tiny models were asked."""
    log = keep / f"{ASKED}.{draft}.jsonl"
    log.write_text("")
    torch.set_num_threads(1)
    wanted = {name: bed for name, bed in beds().items() if families is None or name in families}
    ask(Judge(log), draft, wanted)
    return tally(map(json.loads, log.read_text().splitlines()))


def group_of(family: str) -> str:
    """What a family does."""
    if family in VOICES:
        return "voices"
    return "listening" if family in LISTENING else "looking"


def test_folders(families: Iterable[str] | None) -> list[str]:
    """Folders of transformers' tests for the families that look or listen."""
    claimed = [kind for kind in ADAPTERS if kind not in SPEAKING]
    return sorted(set(families or (FOLDERS.get(kind, kind) for kind in claimed)))


class Suite:
    """transformers' tests in a checkout, and records of their runs in a folder."""

    def __init__(self, checkout: Path, keep: Path, families: Iterable[str] | None) -> None:
        self._checkout, self._keep = checkout, keep
        self._files = [
            str(file)
            for folder in test_folders(families)
            for file in sorted((checkout / "tests/models" / folder).glob("test_modeling_*.py"))
        ]
        if not self._files:
            raise SystemExit(f"{checkout}: no tests/models/*/test_modeling_*.py of these families")

    def find_known(self, mode: str) -> None:
        """Run transformers alone: the tests that call `generate` and pass are those that count."""
        records = self._records(f"plain-{mode}", "none")
        passed = {r["test"] for r in records if r["what"] == "test" and r["outcome"] == "passed"}
        calling = {record["test"] for record in records if record["what"] == "call"}
        self._known(mode).write_text("\n".join(sorted(passed & calling)))

    def run(self, mode: str, draft: str) -> dict[str, Count]:
        """Counts by family."""
        known = self._known(mode)
        records = self._records(mode, draft, "--peer-only", str(known))
        return tally(records, known=known.read_text().splitlines())

    def _known(self, mode: str) -> Path:
        return self._keep / f"known.{mode}.txt"

    def _records(self, mode: str, draft: str, *more: str) -> list[dict[str, Any]]:
        log = self._keep / f"{mode}.{draft}.jsonl"
        log.write_text("")
        command = [
            *(sys.executable, "-m", "pytest", "-q", "--tb=short", "-W", "ignore"),
            *("-p", "benchmarks.peer.plugin", "-p", "no:cacheprovider", "-o", "log_cli=0"),
            *("--peer-mode", mode, "--peer-draft", draft, "--peer-log", str(log)),
            *(*more, "-k", GENERATING, *self._files),
        ]
        root = Path(__file__).parents[1]
        with log.with_suffix(".out").open("w") as out:
            code = subprocess.run(
                command,
                cwd=self._checkout,
                env={**os.environ, **QUIET, "PYTHONPATH": str(root), "CUDA_VISIBLE_DEVICES": ""},
                stdout=out,
                stderr=subprocess.STDOUT,
                check=False,
            ).returncode
        if code not in (0, 1):  # 1: tests failed, which is what is counted
            raise SystemExit(f"pytest ended with {code}: see {out.name} (--keep keeps it)")
        return [json.loads(line) for line in log.read_text().splitlines()]


def show(title: str, counts: Mapping[tuple[str, ...], Count]) -> None:
    """One table: a line per family, or per mode, group and drafter, and one of all."""
    print(f"\n{title}\n")
    for line in table(counts):
        print(line, flush=True)


def table(counts: Mapping[tuple[str, ...], Count]) -> Iterator[str]:
    """Lines of a Markdown table."""
    first = next(iter(counts), ("family",))
    names = ("family",) if len(first) == 1 else ("mode", "group", "drafter")
    heads = (*names, "tests", *VERDICTS, "calls", "through our loop")
    yield "| " + " | ".join(heads) + " |"
    yield "|---" * len(heads) + "|"
    whole = ("all", *("",) * (len(names) - 1))
    for name, count in [*sorted(counts.items()), (whole, sum(counts.values(), Count()))]:
        tests = [count.tests.total(), *(count.tests[verdict] for verdict in VERDICTS)]
        yield "| " + " | ".join(map(str, (*name, *tests, count.calls, count.ours))) + " |"


if __name__ == "__main__":
    main()
