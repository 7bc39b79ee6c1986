"""Who may import whom, and what core code must not know. Read from the sources, nothing is run."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]

LAYERS: tuple[tuple[str, ...], ...] = (
    ("__main__",),
    ("cli",),
    ("tasks.asr", "tasks.vlm", "tasks.tts"),
    ("bench",),
    ("page",),
    ("compare", "tasks.info"),
    ("tasks", "api", "generation", "drafting", "loading"),
    ("modalities.whisper", "modalities.vlm", "modalities.speech"),
    ("modalities.base",),
    ("modalities",),
    ("modalities.media",),
    ("engine",),
    ("proposals",),
    ("acceptance", "kernels", "output"),
    ("report",),
    ("target",),
    ("state",),
    ("factorizations",),
    ("streaming",),
    ("prefix", "clock", "compat", "errors"),
)
"""Who may import whom: downward only. Rooms of one layer don't know each other, but for the front
door's files, which are one room."""

FRONT_DOOR = {"tasks", "api", "generation", "drafting", "loading"}

CORE = {
    "acceptance",
    "clock",
    "compat",
    "engine",
    "errors",
    "kernels",
    "prefix",
    "proposals",
    "report",
    "state",
    "streaming",
    "target",
}
"""The acceptance core: it knows no model and no modality."""

FACE_LIBRARIES = {"typer", "rich", "jinja2", "PIL", "cyclopts", "tyro", "jsonargparse"}
"""What only those who meet users and files may import."""

MODEL_NAMES = ("whisper", "moonshine", "llama", "qwen", "llava", "musicgen", "mimi", "encodec")
MODALITIES = ("audio", "speech", "image", "vision")


def module_name(path: Path) -> str:
    """The import name of a source file of ours."""
    parts = list(path.relative_to(ROOT).with_suffix("").parts)
    if parts[0] != "mmspec":
        parts.insert(0, "mmspec")
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py"))


def core_sources() -> list[Path]:
    return [path for path in sources("mmspec") if room(module_name(path)) in CORE]


def room(module: str) -> str:
    """The room of `mmspec` that a module lies in, the innermost that is listed."""
    parts = module.split(".")[1:]
    for length in (2, 1):
        if (name := ".".join(parts[:length])) in RANK and len(parts) >= length:
            return name
    return "__init__"


def imports(tree: ast.AST, module: str, is_package: bool = False) -> Iterator[str]:
    """Every module of ours that is imported anywhere, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "mmspec")
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = module.split(".")[: None if is_package else -1]
                package = package[: len(package) - node.level + 1]
                base = ".".join([*package, *([node.module] if node.module else [])])
            if base.split(".")[0] == "mmspec":
                # `from mmspec import acceptance` names a room too.
                yield from (f"{base}.{alias.name}" for alias in node.names)
    for node in ast.walk(tree):  # importlib.import_module("mmspec....") is an import as well
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            for argument in node.args:
                if isinstance(argument, ast.Constant) and str(argument.value).startswith("mmspec"):
                    yield str(argument.value)


def allowed(module: str, imported: str) -> bool:
    """Whether this arrow points the right way."""
    mine, other = room(module), room(imported)
    if "__init__" in (mine, other):  # the front door's names, made when they are asked for
        return mine == "__init__" or RANK[mine] < FRONT
    if mine == other or {mine, other} <= FRONT_DOOR:
        return True
    return RANK[mine] < RANK[other]


RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}
FRONT = RANK["api"]


def wrong_arrows(path: Path) -> list[str]:
    module = module_name(path)
    tree = without_types(ast.parse(path.read_text(encoding="utf-8")))
    found = imports(tree, module, path.name == "__init__.py")
    return [f"{module} -> {name}" for name in found if not allowed(module, name)]


ALL = sources("mmspec", "modalities", "factorizations")
MODULES = {module_name(path): path for path in ALL}


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_points_the_wrong_way(path: Path) -> None:
    assert wrong_arrows(path) == []


def test_every_room_is_known_and_there() -> None:
    """A new room has to be given its place."""
    found = {room(module) for module in MODULES}
    assert found - {"__init__"} <= set(RANK)
    assert set(RANK) - {"modalities", "tasks"} <= found


def without_types(tree: ast.AST) -> ast.AST:
    """The code without what only a type checker reads."""

    class Cut(ast.NodeTransformer):
        def visit_If(self, node: ast.If) -> Any:
            return None if "TYPE_CHECKING" in ast.unparse(node.test) else self.generic_visit(node)

    return Cut().visit(tree)


def arrows() -> dict[str, set[str]]:
    """Which module imports which, inside functions too."""
    graph: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        tree = without_types(ast.parse(path.read_text(encoding="utf-8")))
        named = imports(tree, module, path.name == "__init__.py")
        pairs = ((name, name.rpartition(".")[0]) for name in named)
        graph[module] = {
            next(one for one in pair if one in MODULES)
            for pair in pairs
            if any(one in MODULES for one in pair)
        } - {module}
    return graph


def cycles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Modules that import each other in a ring: strongly connected, by reachability."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        ahead = [start]
        while ahead:
            for module in graph[ahead.pop()] - seen:
                seen.add(module)
                ahead.append(module)
        return seen

    behind = {module: reached(module) for module in graph}
    rings = {
        tuple(sorted(other for other in behind[module] if module in behind[other]))
        for module in graph
        if module in behind[module]
    }
    return sorted(map(list, rings))


def test_no_modules_import_each_other_in_a_ring() -> None:
    """The front door makes its names when they are asked for, so whoever asks it closes no ring."""
    graph = {module: found - {"mmspec"} for module, found in arrows().items()}
    assert cycles(graph) == []


def test_a_ring_is_seen() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}
    assert cycles(graph) == [["a", "b", "c"]]


def private_names(path: Path) -> list[str]:
    """Private names of other modules that a file asks for."""
    tree, module = ast.parse(path.read_text(encoding="utf-8")), module_name(path)
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("mmspec"):
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            found += [f"{module}: {part}" for part in parts if _is_private(part)]
    return found


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_uses_a_private_name_of_another(path: Path) -> None:
    assert private_names(path) == []


LINES, FUNCTION_LINES, PARAMETERS = 350, 60, 8


def sizes(path: Path) -> set[str]:
    """What of a file is larger than it should be."""
    text = path.read_text(encoding="utf-8")
    where = str(path.relative_to(ROOT))
    found = {where} if text.count("\n") > LINES else set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        body = [line for line in node.body if not isinstance(line, ast.Expr)]
        long = body and (node.end_lineno or 0) - body[0].lineno + 1 > FUNCTION_LINES
        given = [one for one in (*node.args.args, *node.args.kwonlyargs) if one.arg != "self"]
        if long or len(given) > PARAMETERS:
            found.add(f"{where}:{node.name}")
    return found


def test_files_and_functions_keep_their_size() -> None:
    """The list of those that don't may only shrink: what is in it without need is taken out."""
    found = {one for path in ALL for one in sizes(path)}
    assert found == TOO_LARGE.keys()


TOO_LARGE = {
    "mmspec/api.py:load": "the front door: each way to load is an argument that users see",
    "mmspec/engine/session.py:__init__": "a session's roles, each made by somebody else",
    "mmspec/generation.py": "to be split: the loop for transformers, a batch taken row by row",
    "mmspec/generation.py:__call__": "transformers' signature of a custom loop",
    "mmspec/generation.py:generate": "the front door: its own options beside transformers'",
    "modalities/base/speculative_decoder.py:session": "a session's roles; it makes the rest",
    "modalities/speech/codec.py": "one codec beside the other: each differs in a few lines",
    "modalities/speech/valle_model.py:__init__": "a transformers config lists all that it holds",
    "modalities/whisper/stream.py": "the buffer, what is committed and the decode move together",
}
"""What is larger than it should be, and why."""

RETIRED = {
    *("contender", "contest", "overhear", "rereading", "survival", "chooser", "account"),
    *("unit", "units", "law", "laws", "lawless", "tower", "towers", "blind", "thinned", "redrawn"),
}
"""Words of our own making that a standard one has replaced."""


def words_of(name: str) -> set[str]:
    """The words that a name is made of, in lower case."""
    return set(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().split("_"))


def public_names(tree: ast.Module) -> Iterator[str]:
    """Classes and functions of a module with their parameters, and the fields of its classes."""
    for node in tree.body:
        if not isinstance(node, ast.ClassDef | ast.FunctionDef) or node.name.startswith("_"):
            continue
        yield node.name
        inner = node.body if isinstance(node, ast.ClassDef) else [node]
        for part in inner:
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
                yield part.target.id
            elif isinstance(part, ast.FunctionDef):
                given = part.args
                yield part.name
                yield from (a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs))


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_public_is_called_by_a_retired_word(path: Path) -> None:
    named = list(public_names(ast.parse(path.read_text(encoding="utf-8"))))
    found = [name for name in named if not name.startswith("_") and words_of(name) & RETIRED]
    assert not found
    assert not RETIRED & set(module_name(path).split("."))


@pytest.mark.parametrize("path", core_sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_the_core_imports_nothing_that_meets_users_or_files(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        assert not {name.split(".")[0] for name in names} & FACE_LIBRARIES


@pytest.mark.parametrize(
    ("module", "line", "fine"),
    [
        ("engine.session", "from mmspec.modalities.whisper.checkpoint import Whisper", False),
        ("engine.session", "import mmspec.modalities", False),
        ("engine.session", "def f():\n    from mmspec.api import load", False),
        ("engine.session", "from mmspec import loading", False),
        ("engine.session", "from mmspec import acceptance", True),
        ("engine.session", "from ..modalities import whisper", False),
        ("engine.session", "from . import costs", True),
        ("engine.session", "importlib.import_module('mmspec.modalities.whisper.decode')", False),
        ("engine.session", "from mmspec.factorizations import TextSteps", True),
        ("engine.session", "from mmspec import load", False),
        ("factorizations.text", "from mmspec.factorizations.base import check_tokens", True),
        ("factorizations.text", "from mmspec.errors import ModelError", True),
        ("factorizations.text", "from mmspec.state import DecoderState", False),
        ("modalities.whisper.decode", "from mmspec.engine import Session", True),
        ("modalities.whisper.decode", "from mmspec.api import load", False),
        ("modalities.speech.csm", "from mmspec.modalities.vlm.llava import FAMILY", False),
        ("modalities.base.pair", "from mmspec.modalities.whisper.decode import Recognition", False),
        ("tasks.asr.bench", "from mmspec.tasks.tts.peers import own", False),
        ("tasks.asr.bench", "from mmspec.bench.plan import Plan", True),
        ("compare.peers", "from mmspec.tasks.asr.peers import own", False),
        ("api", "from mmspec.modalities.whisper.checkpoint import Whisper", True),
        ("cli.info", "from mmspec import __version__", True),
    ],
)
def test_the_walk_sees_a_wrong_arrow(module: str, line: str, fine: bool) -> None:
    found = list(imports(ast.parse(line), f"mmspec.{module}"))
    assert found
    assert all(allowed(f"mmspec.{module}", name) for name in found) == fine


def documentation(tree: ast.AST) -> set[int]:
    """Constants that are docstrings (of attributes too): prose, not code."""
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def words(tree: ast.AST) -> Iterator[str]:
    """Names and strings of the code."""
    prose = documentation(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.ClassDef | ast.alias):
            yield node.name
        elif isinstance(node, ast.Constant) and id(node) not in prose:
            yield str(node.value)


@pytest.mark.parametrize("path", core_sources(), ids=lambda path: str(path.relative_to(ROOT)))
def test_core_code_names_no_model_and_sniffs_for_nothing(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for word in words(tree):
        assert word != "hasattr", "the core asks no object what it is"
        named = [name for name in (*MODEL_NAMES, *MODALITIES) if name in word.lower()]
        assert not named, f"core code says {word!r}"


def test_the_search_for_model_names_sees_one() -> None:
    code = '"""whisper in prose is fine"""\nkind = hf.WhisperTimeStampLogitsProcessor'
    assert "WhisperTimeStampLogitsProcessor" in list(words(ast.parse(code)))
    assert "whisper in prose is fine" not in list(words(ast.parse(code)))


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_contract_rests_on_assert(path: Path) -> None:
    """`python -O` drops assertions, and nothing may change by it."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    lines = [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Assert)]
    assert lines == []
