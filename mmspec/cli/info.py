"""`mmspec info`: what can be done with a model, and why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from mmspec.cli.groups import Only, argument, given, grouped
from mmspec.cli.settings import OutputSettings
from mmspec.errors import MMSpecError, ModelError
from mmspec.output.console import offline_if_unreachable, quiet_libraries
from mmspec.tasks.settings import ModelSettings

Facts = list[tuple[str, str]]


@grouped
def info(
    model: Annotated[
        str | None,
        argument(
            "MODEL",
            "A directory, a hub id, sample, vision-sample or voice-sample; without one, all "
            "families.",
        ),
    ] = None,
    /,
    *,
    draft: Annotated[
        list[str] | None,
        given(
            "Would this one fit as a drafter? May be given several times.",
            metavar="DRAFT",
            short="-d",
        ),
    ] = None,
    models: Annotated[ModelSettings, Only("device", "trust_remote_code")],
    output: Annotated[OutputSettings, Only("verbose")],
) -> int:
    """Say what mmspec can do with a model, and why not.

    mmspec info
    mmspec info sample --draft sample
    mmspec info DIR/whisper-base --draft DIR/whisper-tiny.en --draft early-exit:3
    """
    if model is None:
        from mmspec.tasks.vlm.info import families

        _show("Families, by transformers' model type", families())
        return 0
    offline_if_unreachable([model, *(draft or [])])
    with quiet_libraries(output.verbose):
        facts = _facts(model, draft or [], models.device, models.trust_remote_code)
    _show(model, facts)
    return 0


def _facts(name: str, drafts: list[str], device: str | None, trust_remote_code: bool) -> Facts:
    from mmspec.loading import load_model
    from mmspec.modalities.speech.checkpoint import Checkpoint as Voice
    from mmspec.modalities.whisper.checkpoint import Whisper

    try:
        model = load_model(name, device, None, True, trust_remote_code)
    except ModelError as error:
        kind = _model_type(name)
        if kind is None:
            raise
        return [("type", kind), ("usable", f"no: {error}")]
    if not isinstance(model, Whisper):
        from mmspec.tasks.tts import info as info_speech
        from mmspec.tasks.vlm import info as info_vision

        about: Any = info_speech if isinstance(model, Voice) else info_vision
        machine = _machine_facts(model)
        fits = [(f"draft {draft}", about.fit(model, draft, trust_remote_code)) for draft in drafts]
        return [*about.facts_of(model), *machine, *fits]
    whisper = model
    facts = _model_facts(whisper)
    facts += _machine_facts(whisper)
    facts += _drafters(whisper)
    return facts + [(f"draft {draft}", _fit(whisper, draft, trust_remote_code)) for draft in drafts]


def _model_type(name: str) -> str | None:
    """The type that a local checkpoint names, None where there is none."""
    try:
        return str(json.loads((Path(name) / "config.json").read_text())["model_type"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _model_facts(whisper: Any) -> Facts:
    config, steps = whisper.model.config, whisper.steps
    size = sum(weight.numel() for weight in whisper.model.parameters())
    codes = [token.strip("<|>") for token, _ in steps.languages]
    shown = ", ".join(codes[:12]) + (f", … ({len(codes)})" if len(codes) > 12 else "")
    return [
        ("type", f"{config.model_type}, {size / 1e6:.1f} M parameters"),
        ("transcribe", f"yes, recordings of up to {whisper.window_s:g} s"),
        ("languages", shown or "English only (takes no --language and no --task)"),
        ("tasks", ", ".join(dict(steps.tasks)) or "transcribe"),
        ("timestamps", "yes" if steps.no_timestamps is not None else "no: its config names none"),
        (
            "prompt",
            "yes" if steps.previous_text is not None else "no: its config has no mark for it",
        ),
        ("vocabulary", f"{steps.vocab_size} ids"),
        ("mel bins", str(config.num_mel_bins)),
        ("context", f"{steps.context} positions, prompt included"),
        ("layers", f"encoder {config.encoder_layers}, decoder {config.decoder_layers}"),
    ]


def _machine_facts(whisper: Any) -> Facts:
    import torch

    from mmspec.kernels import packing_pays, worth_packing

    weight = next(whisper.model.parameters())
    if packing_pays(weight.device, weight.dtype):
        large = len(worth_packing(whisper.model.modules()))
        packed = f"{large} large layers (oneDNN)" if large else "no: every layer is small"
    elif weight.device.type != "cpu":
        packed = f"no need on {weight.device}"
    elif weight.dtype != torch.float32:
        packed = f"no: the weights are {weight.dtype}, packing takes float32"
    else:
        packed = "no: this build of torch has no oneDNN"
    where = f"{weight.device}, {weight.dtype}, {torch.get_num_threads()} threads"
    return [("runs on", where.replace("torch.", "")), ("packed layers", packed)]


def _drafters(whisper: Any) -> Facts:
    layers = whisper.model.config.decoder_layers
    exits = f"early-exit:1 to early-exit:{layers - 1}" if layers > 1 else "no early exit (1 layer)"
    return [("drafters", f"none, ngram, hypothesis:FILE, overlap, {exits}, another Whisper")]


def _fit(whisper: Any, draft: str, trust_remote_code: bool) -> str:
    """Whether a drafter fits, and how."""
    from mmspec.drafting import draft_for
    from mmspec.modalities.whisper.draft import ModelDraft

    def ears(kind: ModelDraft) -> str:
        if kind.shares_encoder:
            return "same encoder: the audio is encoded once"
        bins = kind.drafter.model.config.num_mel_bins
        return f"an encoder of its own ({bins} mel bins): the audio is encoded twice"

    return how_it_fits(lambda: draft_for(draft, whisper, trust_remote_code), ModelDraft, ears)


def how_it_fits(
    open_kind: Callable[[], Any], model_draft: type, senses: Callable[[Any], str]
) -> str:
    """Whether a drafter fits, and how.

    Args:
        open_kind: makes the kind of drafter, or says why not.
        model_draft: the class of those that are models of their own.
        senses: what such a one knows of the input.
    """
    from mmspec.proposals import SameVocabulary

    try:
        kind = open_kind()
    except MMSpecError as error:
        return f"no: {str(error).removeprefix('draft: ')}"
    if not isinstance(kind, model_draft):
        return "fits"
    vocabulary = kind.vocabulary  # type: ignore[attr-defined]
    if isinstance(vocabulary, SameVocabulary):
        words = "same vocabulary"
    else:
        words = f"another vocabulary, bridged: {getattr(vocabulary, 'shared', 0)} shared tokens"
    return f"fits: {words}; {senses(kind)}"


def _show(model: str, facts: Facts) -> None:
    from rich.console import Console
    from rich.text import Text

    from mmspec.output.render import new_table, plain_text

    table = new_table(model, show_header=False, pad_edge=False)
    table.add_column(style="cyan", overflow="fold", max_width=30)
    table.add_column(overflow="fold")
    for name, value in facts:
        style = "yellow" if value.startswith("no:") else ""
        table.add_row(Text(name), plain_text(value, style))
    Console(highlight=False).print(table)
