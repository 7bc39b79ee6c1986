"""A pytest plugin that sends every outermost `generate` of transformers' tests through mmspec.

`--peer-mode`: `as-is`: `custom_generate=`, as the tests stand. `one`: the same with one prompt per
call, nothing of it masked, without a request for attentions, and for more tokens: what our loop
takes. `two`: `mmspec.generate` on the tests' two prompts. `plain` in front, as in `plain-one`:
transformers alone, for which tests call `generate` and pass.
"""

from __future__ import annotations

import copy
import functools
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import mmspec
from benchmarks.peer.judging import Judge, Ours
from mmspec.modalities import task_of

GAMMA = 5
TOKENS = 12
"""In place of the suite's 3, which end inside the first block."""

STATES = ("output_attentions", "output_hidden_states")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--peer-mode", required=True)
    parser.addoption("--peer-draft", default="none")
    parser.addoption("--peer-log", type=Path, required=True)
    parser.addoption("--peer-only", type=Path, help="ids of tests, a line each")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if (only := config.getoption("--peer-only")) is not None:
        wanted = set(only.read_text().splitlines())
        items[:] = [item for item in items if item.nodeid in wanted]


def pytest_collection_finish(session: pytest.Session) -> None:
    """The models are imported now: their `generate` is wrapped, every class that has one."""
    from transformers import PreTrainedModel
    from transformers.generation import GenerationMixin

    option = session.config.getoption
    global peer
    peer = Peer(option("--peer-mode"), option("--peer-draft"), Judge(option("--peer-log")))
    for cls in {GenerationMixin, *_below(GenerationMixin), *_below(PreTrainedModel)}:
        if callable(cls.__dict__.get("generate")):
            cls.generate = peer.wrapped(cls.__dict__["generate"])
    if peer.mode != "as-is":
        _lengthen()
    if peer.mode == "one":
        _one_prompt(session)


def _below(cls: type) -> Iterator[Any]:
    for sub in cls.__subclasses__():
        yield sub
        yield from _below(sub)


def _lengthen() -> None:
    for name, module in list(sys.modules.items()):
        if name.endswith("generation.test_utils"):
            module.GenerationTesterMixin.max_new_tokens = TOKENS


def _one_prompt(session: pytest.Session) -> None:
    name = "prepare_config_and_inputs_for_generate"
    classes = {cls for item in session.items for cls in getattr(item, "cls", object).__mro__}
    for cls in classes:
        if (before := cls.__dict__.get(name)) is not None:

            def one(self: Any, batch_size: int = 1, before: Any = before) -> Any:
                config, inputs = before(self, batch_size=1)
                mask = inputs.get("attention_mask")
                if isinstance(mask, Tensor) and mask.ndim == 2:  # theirs has holes
                    inputs["attention_mask"] = torch.ones_like(mask)
                return config, inputs

            setattr(cls, name, one)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    peer.test = item.nodeid
    yield


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" or report.outcome == "failed":
        text = str(report.longrepr)[-1500:] if report.outcome == "failed" else ""
        peer.judge.write(what="test", test=report.nodeid, outcome=report.outcome, said=text)


class Peer:
    """What stands where transformers' `generate` stood."""

    def __init__(self, mode: str, draft: str, judge: Judge) -> None:
        self.plain, self.mode = mode.startswith("plain-"), mode.removeprefix("plain-")
        self.draft, self.judge = draft, judge
        self.test, self._inside = "", False

    def wrapped(self, original: Any) -> Any:
        """Of a model class."""

        @functools.wraps(original)
        def generate(model: Any, *args: Any, **given: Any) -> Any:
            if self._inside or given.get("custom_generate") is not None:
                return original(model, *args, **given)
            self._inside = True
            try:
                return self._outermost(functools.partial(original, model), model, args, given)
            finally:
                self._inside = False

        return generate

    def _outermost(self, plain: Any, model: Any, args: Any, given: dict[str, Any]) -> Any:
        family = Path(self.test.partition("::")[0]).parent.name
        if self.plain:
            self.judge.write(what="call", test=self.test, family=family, verdict="passed", ours=0)
            return plain(*args, **given)
        twins, twin_options = _copied(args), _copied(given)
        left_out: dict[str, Any] = {}

        def theirs() -> Any:
            left_out["whole"] = whole = plain(*twins, **twin_options)
            return self._comparable(whole, given)

        def ours() -> Ours:
            if self.mode == "two" or task_of(model.config.model_type) == "tts":
                return self._by_mmspec(plain, model, args, given)
            return self._by_loop(plain, model, args, given)

        found = self.judge.call(self.test, family, theirs, ours, sampled=_sampled(model, given))
        return found if self.mode == "as-is" else _filled(left_out.get("whole"), found)

    def _comparable(self, whole: Any, given: dict[str, Any]) -> Any:
        """What of transformers' result was asked of us too."""
        if isinstance(whole, Tensor):
            return whole
        if self.mode == "two":
            return whole["sequences"]
        if self.mode != "one":
            return whole
        states = ("attentions", "hidden_states") if any(given.get(k) for k in STATES) else ()
        return {k: v for k, v in whole.items() if not k.endswith(states)}

    def _drafter(self, model: Any) -> Any:
        return copy.deepcopy(model).eval() if self.draft == "copy" else self.draft

    def _by_loop(self, plain: Any, model: Any, args: Any, given: dict[str, Any]) -> Ours:
        loop = mmspec.custom_generate(self._drafter(model), gamma=GAMMA)
        if self.draft == "copy" and model.config.model_type != "whisper":
            loop.inputs = _inputs_and_options(plain, model, args, given)[0]
        if self.mode == "one":
            given = {k: v for k, v in given.items() if k not in STATES}
        result = plain(*args, custom_generate=loop, **given)
        if self.mode == "one" and not isinstance(result, Tensor):
            result = self._comparable(result, {k: True for k in STATES})
        return Ours(result, len(loop.history), loop.ordinary)

    def _by_mmspec(self, plain: Any, model: Any, args: Any, given: dict[str, Any]) -> Ours:
        inputs, options = _inputs_and_options(plain, model, args, given)
        made = mmspec.generate(model, inputs, self._drafter(model), gamma=GAMMA, **options)
        return Ours(made.sequences, len(made.reports))


def _copied(given: Any) -> Any:
    """Arguments that one side may change without the other seeing it; models stay themselves."""
    if isinstance(given, dict):
        return {key: _copied(value) for key, value in given.items()}
    if isinstance(given, tuple):
        return tuple(_copied(value) for value in given)
    if isinstance(given, torch.nn.Module):
        return given
    return given.clone() if isinstance(given, Tensor) else copy.deepcopy(given)


def _sampled(model: Any, given: dict[str, Any]) -> bool:
    config = given.get("generation_config") or model.generation_config
    warm = given.get("temperature")
    if model.config.model_type == "whisper" and warm is not None:  # by the ladder of temperatures
        return any(one > 0 for one in (warm if isinstance(warm, list | tuple) else [warm]))
    return bool(given.get("do_sample", config.do_sample))


def _inputs_and_options(
    plain: Any, model: Any, args: Any, given: dict[str, Any]
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """(what the processor made, options) of a call of `generate`."""
    names = list(inspect.signature(plain).parameters)
    named = {**dict(zip(names, args, strict=False)), **given}
    first = named.pop("inputs", None)
    if first is not None:
        named.setdefault(model.main_input_name, first)
    inputs = {
        key: value
        for key, value in named.items()
        if isinstance(value, Tensor) and key != "eos_token_id"
    }
    return inputs, {key: value for key, value in named.items() if key not in inputs}


def _filled(whole: Any, found: Any) -> Any:
    """Our result, in transformers' kind, with what wasn't asked of us from its own."""
    if isinstance(whole, Tensor | None) or found is whole:
        return found
    for key, value in ({"sequences": found} if isinstance(found, Tensor) else found).items():
        whole[key] = value
    return whole


peer: Peer
