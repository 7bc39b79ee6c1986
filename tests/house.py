"""Counts how the package is built, beside what is wanted: `python -m tests.house [--run]`.

With `--run`, requests on the samples count the files that a request goes through.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

from tests import test_architecture as house

TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in house.ALL}
WANTED_LINES = 36_000

REQUESTS = {
    "a Whisper window": """
model = mmspec.load("sample")
request = lambda: model.transcribe(np.sin(np.arange(16000)), sampling_rate=16000)
""",
    "an image question": """
from PIL import Image
model = mmspec.load("vision-sample")
request = lambda: model.answer(Image.new("RGB", (64, 64)), "What is it?", max_new_tokens=4)
""",
    "a sentence to say": """
model = mmspec.load("voice-sample")
request = lambda: model.speak("seven", seconds=1, sound=False)
""",
}
"""What is done in a process of its own, a model at hand."""

FOLLOWED = """
import sys, numpy as np, mmspec
from pathlib import Path
{code}
root, seen = Path({root!r}), set()
rooms = [str(root / name) + "/" for name in ("mmspec", "modalities", "factorizations")]
sys.setprofile(lambda frame, event, value: seen.add(frame.f_code.co_filename))
request()
sys.setprofile(None)
print(sum(any(name.startswith(room) for room in rooms) for name in seen))
"""


def files_on_the_way(code: str) -> int:
    """Files of ours some of whose code runs between the call of a loaded model and its result."""
    program = FOLLOWED.format(code=code, root=str(house.ROOT))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return int(done.stdout.split()[-1])


def flat_files() -> int:
    """Files right in `mmspec/`."""
    return len(list((house.ROOT / "mmspec").glob("*.py")))


def three_ways() -> list[str]:
    """Files, but the table of tasks, whose code knows of each of the three kinds of model."""
    found = []
    for path, tree in TREES.items():
        said = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        named = set(house.imports(tree, house.module_name(path), path.name == "__init__.py"))
        kinds = (("asr", "whisper"), ("vlm", "vlm"), ("tts", "speech"))
        if all(
            task in said
            or any(f".tasks.{task}" in name or f".modalities.{room}" in name for name in named)
            for task, room in kinds
        ):
            found.append(str(path.relative_to(house.ROOT)))
    return [name for name in found if name != "mmspec/tasks/registry.py"]


def siblings() -> int:
    """Imports of `modalities/vlm` by `modalities/speech`."""
    return sum(
        name.startswith("mmspec.modalities.vlm")
        for path, tree in TREES.items()
        if "speech" in path.parts
        for name in set(house.imports(tree, house.module_name(path)))
    )


def fields_of(node: ast.ClassDef) -> set[str]:
    """Annotated attributes of a class."""
    lines = (line for line in node.body if isinstance(line, ast.AnnAssign))
    return {line.target.id for line in lines if isinstance(line.target, ast.Name)}


def classes() -> Iterator[tuple[Path, ast.ClassDef]]:
    """Every class with its file."""
    for path, tree in TREES.items():
        yield from ((path, node) for node in tree.body if isinstance(node, ast.ClassDef))


def forms(name: str) -> list[str]:
    """Classes that hold at least half of the attributes of the class of this name, itself too."""
    wanted = next(fields_of(node) for _, node in classes() if node.name == name)
    return [node.name for _, node in classes() if 2 * len(fields_of(node) & wanted) >= len(wanted)]


def functions() -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Every function."""
    for tree in TREES.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield node


def long_functions() -> list[str]:
    """Functions over 60 lines, docstring left out."""
    bodies = ((node, [x for x in node.body if not isinstance(x, ast.Expr)]) for node in functions())
    return [
        node.name
        for node, body in bodies
        if body and (node.end_lineno or 0) - body[0].lineno + 1 > house.FUNCTION_LINES
    ]


def parameter_lists() -> list[int]:
    """Lengths of parameter lists over 8."""
    given = (
        len([one for one in (*node.args.args, *node.args.kwonlyargs) if one.arg != "self"])
        for node in functions()
    )
    return sorted(count for count in given if count > house.PARAMETERS)


def rings() -> int:
    """Cycles between modules."""
    return len(house.cycles({name: to - {"mmspec"} for name, to in house.arrows().items()}))


def private_names() -> int:
    """Private names that other modules ask for."""
    return sum(len(house.private_names(path)) for path in TREES)


def words_of(paths: set[Path]) -> dict[str, int]:
    """How often each word stands in files."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in paths)
    return Counter(re.findall(r"\w+", text))


def only_tested() -> dict[str, int]:
    """Functions and classes that only tests name, each with its lines."""
    others = [
        path for name in ("docs", "samples", "benchmarks", "mmspec/page") for path in files(name)
    ]
    words = words_of({*TREES, *others})
    return {
        node.name: (node.end_lineno or 0) - node.lineno + 1
        for tree in TREES.values()
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and words[node.name] == 1
        and not node.decorator_list
        and not node.name.startswith("__")
    }


def files(folder: str) -> list[Path]:
    """Pages, programs and templates below a folder."""
    return [
        path for path in (house.ROOT / folder).rglob("*") if path.suffix in (".py", ".md", ".j2")
    ]


def several_meanings() -> dict[str, int]:
    """Names of public classes that several modules define."""
    found: dict[str, int] = defaultdict(int)
    for _, node in classes():
        found[node.name] += not node.name.startswith("_")
    return {name: count for name, count in sorted(found.items()) if count > 1}


def lines() -> int:
    """Lines of the package."""
    return sum(path.read_text(encoding="utf-8").count("\n") for path in TREES)


def shown(found: int | list[str] | list[int] | dict[str, int]) -> str:
    """A count, with what was counted where it is known."""
    if isinstance(found, int):
        return f"{found:,}"
    what = found.items() if isinstance(found, dict) else found
    named = ", ".join(f"{x[0]} {x[1]}" if isinstance(x, tuple) else str(x) for x in what)
    return f"{len(found)}" + (f" ({named})" if found else "")


ROWS: dict[str, tuple[Callable[[], int | list[str] | list[int] | dict[str, int]], str]] = {
    "flat files in mmspec/": (flat_files, "rooms"),
    "files that know all three kinds of model": (three_ways, "1 table"),
    "imports of vlm by speech": (siblings, "0"),
    "files that begin with whisper_": (
        lambda: sum(path.name.startswith("whisper_") for path in TREES),
        "0",
    ),
    "forms of a transcription's request": (lambda: forms("TranscriptionRequest"), "2"),
    "forms of a transcription": (lambda: forms("Transcription"), "1"),
    "functions over 60 lines": (long_functions, "1"),
    "parameter lists over 8": (parameter_lists, "2"),
    "cycles between modules": (rings, "0"),
    "private names used by other modules": (private_names, "0"),
    "functions that only tests name, with their lines": (only_tested, "0"),
    "class names with several meanings": (several_meanings, "0"),
    "entries of TOO_LARGE": (lambda: len(house.TOO_LARGE), "10"),
    "files of the package": (lambda: len(TREES), "235"),
    "lines of the package": (lines, f"{WANTED_LINES:,}"),
}


def main() -> None:
    """Print the table."""
    rows = [(what, shown(count()), wanted) for what, (count, wanted) in ROWS.items()]
    if "--run" in sys.argv:
        rows += [
            (f"files on the way of {what}", shown(files_on_the_way(code)), "50")
            for what, code in REQUESTS.items()
        ]
    print("| | today | wanted |\n|---|---|---|")
    for row in rows:
        print("| " + " | ".join(row) + " |")


if __name__ == "__main__":
    main()
