"""Times two commits beside each other, input by input in turn: new to old, and equal ids.

    python benchmarks/two_commits.py OLD NEW TARGET INPUT... [--draft D]... [--times 9]

OLD and NEW are Pythons that have a commit of mmspec installed each. TARGET is a checkpoint or a
sample; INPUT are recordings, images (a model that sees reads them) or sentences (a model that
speaks says them). The draft `none` comes first; for `hypothesis` its text is given. One thread
each; while one works, the other waits.
"""

import argparse
import json
import statistics
import subprocess
import sys
from typing import Any

WORKER = """
import json, sys, torch, mmspec
torch.set_num_threads(1)
target, drafts = sys.argv[1], sys.argv[2:]
opened = {draft: mmspec.load(target, draft=draft) for draft in drafts}

def result_of(model, given, text):
    how = {} if text is None else {"hypothesis": text}
    if hasattr(model, "transcribe"):
        return model.transcribe(given, **how)
    if hasattr(model, "read"):
        return model.read(given, **how)
    return model.speak(given, **how)

print(json.dumps("ready"), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    result = result_of(opened[asked["draft"]], asked["given"], asked["text"])
    ids = result.codes.tolist() if hasattr(result, "codes") else list(result.ids)
    report = result.report
    print(json.dumps({"ids": ids, "text": result.text, "decode": report.decode_seconds,
                      "all": report.total_seconds, "rounds": report.rounds}), flush=True)
"""


class Commit:
    """A process in which one commit works."""

    def __init__(self, python: str, target: str, drafts: list[str]) -> None:
        command = [python, "-c", WORKER, target, *drafts]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        self.answer()

    def answer(self) -> Any:
        """The next line that it writes."""
        line = self.process.stdout.readline() if self.process.stdout else ""
        if not line:
            sys.exit("a commit stopped; its error stands above")
        return json.loads(line)

    def run(self, draft: str, given: str, text: str | None) -> dict[str, Any]:
        """One request."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps({"draft": draft, "given": given, "text": text}) + "\n")
        self.process.stdin.flush()
        return dict(self.answer())


def main() -> None:
    """Prints a row for each draft; ends with 1 where ids or rounds differ."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("old")
    options.add_argument("new")
    options.add_argument("target")
    options.add_argument("inputs", nargs="+")
    options.add_argument("--draft", action="append")
    options.add_argument("--times", type=int, default=9)
    asked = options.parse_args()
    drafts = ["none", *(draft for draft in asked.draft or () if draft != "none")]
    old, new = (Commit(python, asked.target, drafts) for python in (asked.old, asked.new))
    texts: dict[str, str] = {}
    different = 0
    print("| draft | decode, new / old | all, new / old | ids |\n|---|---|---|---|")
    for draft in drafts:
        ratios: dict[str, list[float]] = {"decode": [], "all": []}
        unequal = set()
        for given in asked.inputs:
            text = texts[given] if draft == "hypothesis" else None
            times: dict[str, list[float]] = {"decode": [], "all": []}
            for turn in range(asked.times + 1):
                order = (old, new) if turn % 2 else (new, old)
                done = {commit: commit.run(draft, given, text) for commit in order}
                texts.setdefault(given, done[old]["text"])
                if done[old]["ids"] != done[new]["ids"]:
                    unequal.add(given)
                if turn:  # the first is a warm-up
                    for name, found in times.items():
                        found.append(done[new][name] / done[old][name])
            for name, found in times.items():
                ratios[name].append(statistics.median(found))
        decode, whole = (statistics.median(ratios[name]) for name in ("decode", "all"))
        print(f"| {draft} | {decode:.3f} | {whole:.3f} | {len(unequal) or 'equal'} |", flush=True)
        different += len(unequal)
    sys.exit(bool(different))


if __name__ == "__main__":
    main()
