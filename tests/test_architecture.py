"""Who may import whom, and what core code must not know. Read from the sources, nothing is run."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

CORE = {
    "acceptance",
    "clock",
    "codebooks",
    "compat",
    "engine",
    "errors",
    "grounding",
    "kernels",
    "prefix",
    "proposals",
    "report",
    "state",
    "streaming",
    "target",
    "totals",
    "trace",
}
"""The acceptance core. Whatever else lies in `mmspec/` is the face and may import everything."""

FACE = {
    "__init__",
    "__main__",
    "api",
    "bench",
    "cli",
    "code_files",
    "codec_parity",
    "compare",
    "drafting",
    "transcriber",
    "transcription",
    "contenders",
    "demo",
    "description",
    "formats",
    "generate",
    "generation",
    "hypotheses",
    "live",
    "loaded",
    "loading",
    "page",
    "render",
    "settings",
    "speaker",
    "speech",
    "speech_contenders",
    "viewer",
    "vision_contenders",
}

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
    return [path for path in sources("mmspec") if top(module_name(path)) in CORE]


def top(module: str) -> str:
    """The room of `mmspec` that a module lies in."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "__init__"


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
    room, other = top(module), top(imported)
    if room == "factorizations":
        return other in {"errors", "factorizations"}
    if room in CORE:
        return other in CORE | {"factorizations"}
    if room == "modalities":
        return other in CORE | {"factorizations", "modalities"}
    return True


def wrong_arrows(path: Path) -> list[str]:
    module = module_name(path)
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = imports(tree, module, path.name == "__init__.py")
    return [f"{module} -> {name}" for name in found if not allowed(module, name)]


ALL = sources("mmspec", "modalities", "factorizations")


@pytest.mark.parametrize("path", ALL, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_import_points_the_wrong_way(path: Path) -> None:
    assert wrong_arrows(path) == []


def test_every_room_is_known() -> None:
    """A new room in `mmspec/` has to be put on one side or the other."""
    rooms = {
        path.stem if path.suffix == ".py" else path.name
        for path in (ROOT / "mmspec").iterdir()
        if path.suffix == ".py" or (path.is_dir() and list(path.glob("*.py")))
    }
    assert rooms <= CORE | FACE
    assert rooms >= CORE


@pytest.mark.parametrize(
    ("module", "line", "fine"),
    [
        (
            "mmspec.engine.session",
            "from mmspec.modalities.whisper.checkpoint import Whisper",
            False,
        ),
        ("mmspec.engine.session", "import mmspec.modalities", False),
        ("mmspec.engine.session", "def f():\n    from mmspec.api import load", False),
        ("mmspec.engine.session", "from mmspec import loading", False),
        ("mmspec.engine.session", "from mmspec import acceptance", True),
        ("mmspec.engine.session", "from ..modalities import whisper", False),
        ("mmspec.engine.session", "from . import costs", True),
        (
            "mmspec.engine.session",
            "importlib.import_module('mmspec.modalities.whisper.checkpoint')",
            False,
        ),
        ("mmspec.engine.session", "from mmspec.factorizations import TextSteps", True),
        ("mmspec.factorizations.text", "from mmspec.factorizations.base import check_units", True),
        ("mmspec.factorizations.text", "from mmspec.errors import ModelError", True),
        ("mmspec.factorizations.text", "from mmspec.prefix import Prefix", False),
        ("mmspec.modalities.whisper.checkpoint", "from mmspec.engine import Session", True),
        ("mmspec.modalities.whisper.checkpoint", "from mmspec.api import load", False),
        ("mmspec.api", "from mmspec.modalities.whisper.checkpoint import Whisper", True),
    ],
)
def test_the_walk_sees_a_wrong_arrow(module: str, line: str, fine: bool) -> None:
    found = list(imports(ast.parse(line), module))
    assert found
    assert all(allowed(module, name) for name in found) == fine


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
