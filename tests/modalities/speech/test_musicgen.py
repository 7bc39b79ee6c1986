"""MusicGen: codes of sessions against the library's own, with every drafter and block size."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import transformers as hf
from torch import Tensor
from transformers import GenerationMixin, LogitsProcessorList, StoppingCriteriaList

from mmspec.acceptance.frames import FREE, code_noise
from mmspec.errors import InputError, ModelError, OptionError
from mmspec.modalities.base.speculative_decoder import Draft
from mmspec.modalities.base.weights import same_weights
from mmspec.modalities.speech.checkpoint import SpeechCheckpoint
from mmspec.modalities.speech.delay_pattern import PatternLayout, RowsTarget
from mmspec.modalities.speech.draft import LookupDraft, ModelDraft, RepeatDraft
from mmspec.modalities.speech.musicgen import FAMILY, Musicgen, order
from mmspec.modalities.speech.preparation import prepare, shadow
from mmspec.prefix import Frame

from .bed_musicgen import CODES, codec, late, prompt_codes, text, tiny, tiny_decoder, wrong
from .delayed_runs import GAMMAS, Run, Telling, run

LEAST = 6
"""New rows of one frame in each of four codebooks, and the fewest that are delayed at all."""
MODELS: dict[str, Callable[[], Any]] = {
    "mono": tiny,
    "stereo": lambda: tiny(codebooks=6, channels=2, text_width=12),
    "single": lambda: tiny(codebooks=1),
}
DRAFTERS = ("right", "wrong", "late", "copy", "other", "decoder", "lookup", "repeat")
GUIDED = (None, 3.0)

model_of = functools.cache(lambda name: MODELS[name]())
twin_of = functools.cache(lambda name: MODELS[name]())


@functools.cache
def library(name: str, rows: int, scale: float | None, prompt: int = 0) -> Any:
    """Codes of transformers' own loop."""
    return FAMILY.library_codes(
        model_of(name), given(name, prompt), max_new_tokens=rows, do_sample=False,
        guidance_scale=scale,
    )  # fmt: skip


def given(name: str, prompt: int = 0) -> dict[str, Tensor]:
    if not prompt:
        return text()
    codebooks = model_of(name).decoder.num_codebooks
    return {**text(), "decoder_input_ids": prompt_codes(prompt, codebooks)}


def says(
    name: str,
    rows: int = 15,
    scale: float | None = None,
    draft: Draft | None = None,
    gamma: int = 4,
    prompt: int = 0,
    **options: Any,
) -> Run:
    options = {"do_sample": False, "guidance_scale": scale, **options}
    inputs = given(name, prompt)
    return run(FAMILY, model_of(name), inputs, draft, gamma, max_new_tokens=rows, **options)


def drafts(kind: str, name: str, known: list[Frame]) -> Draft:
    """One of `DRAFTERS` for an output that is known."""
    model = model_of(name)
    checkpoint = SpeechCheckpoint.of(model, packed=False, family=FAMILY)
    if kind == "right":
        return Telling(known)
    if kind in ("wrong", "late"):
        return Telling(known, wrong if kind == "wrong" else late)
    if kind == "copy":
        return ModelDraft(checkpoint, twin_of(name))
    if kind == "other":
        shape = {"codebooks": model.decoder.num_codebooks, "width": 24, "layers": 1}
        channels = model.decoder.config.audio_channels
        return ModelDraft(checkpoint, tiny(9, channels=channels, **shape))
    if kind == "decoder":
        width = model.config.text_encoder.hidden_size
        shape = {"codebooks": model.decoder.num_codebooks, "width": width}
        channels = model.decoder.config.audio_channels
        return ModelDraft(checkpoint, tiny_decoder(3, channels=channels, **shape))
    return LookupDraft() if kind == "lookup" else RepeatDraft()


@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("rows", [LEAST, LEAST + 1, 15])
@pytest.mark.parametrize("name", MODELS)
def test_greedy_codes_are_the_librarys(
    name: str, rows: int, scale: float | None, gamma: int
) -> None:
    expected = library(name, rows, scale)
    plain = says(name, rows, scale)
    assert plain.said.grid == expected
    assert (plain.said.ended, plain.stats.finish_reason) == (False, "length")
    for kind in ("right", "wrong", "late"):
        drafted = says(name, rows, scale, drafts(kind, name, plain.rows), gamma)
        assert drafted.said.grid == expected, (kind, gamma)


@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("kind", DRAFTERS)
@pytest.mark.parametrize("name", MODELS)
def test_no_drafter_changes_a_code(name: str, kind: str, scale: float | None) -> None:
    known = says(name, 15, scale).rows
    for gamma in (2, 60):
        drafted = says(name, 15, scale, drafts(kind, name, known), gamma)
        assert drafted.said.grid == library(name, 15, scale)
        assert drafted.rows == known


@pytest.mark.parametrize("scale", GUIDED)
def test_marks_that_a_drafter_got_wrong_are_nobodys(scale: float | None) -> None:
    known = says("mono", 15, scale).rows

    def unmarked(row: int, frame: Frame) -> Frame:
        return tuple(7 if token == CODES else token for token in frame)

    for gamma in (2, 60):
        assert says("mono", 15, scale, Telling(known, unmarked), gamma).rows == known


@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("kernel", ["sdpa", "eager"])
def test_a_padded_text_says_what_it_says_with_the_library(kernel: str, scale: float | None) -> None:
    model = MODELS["stereo"]()
    model.decoder.set_attn_implementation(kernel)
    padded = {
        "input_ids": torch.tensor([[3, 4, 5, 0, 0]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0, 0]]),
    }
    options = {"max_new_tokens": 12, "do_sample": False, "guidance_scale": scale}
    plain = run(FAMILY, model, padded, **options)
    assert plain.said.grid == FAMILY.library_codes(model, padded, **options)
    drafted = run(FAMILY, model, padded, Telling(plain.rows, late), 3, **options)
    assert drafted.rows == plain.rows


@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("frames", [1, 4, 5])
@pytest.mark.parametrize("name", ["mono", "stereo"])
def test_a_prompts_codes_are_delayed_once(name: str, frames: int, scale: float | None) -> None:
    expected = library(name, 9, scale, frames)
    plain = says(name, 9, scale, prompt=frames)
    assert plain.said.grid == expected
    codebooks = model_of(name).decoder.num_codebooks
    prompt = prompt_codes(frames, codebooks).t().tolist()
    assert [list(frame) for frame in plain.said.grid[:frames]] == prompt
    drafted = says(name, 9, scale, drafts("late", name, plain.rows), 3, prompt=frames)
    assert drafted.said.grid == expected
    assert plain.said.prompt_length == frames + 1
    latest = max(order(model_of(name)).delays)
    assert plain.stats.codes[0].decided == codebooks * (9 - latest)


@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("name", MODELS)
def test_a_copy_is_always_right(name: str, scale: float | None) -> None:
    gamma, rows = 3, 16
    copied = says(name, rows, scale, drafts("copy", name, []), gamma)
    tally = copied.stats.tally
    assert tally.accepted == tally.proposed == rows - tally.rounds
    assert [len(done.emitted) for done in tally.trace] == [gamma + 1] * (rows // (gamma + 1))
    assert copied.forwards == 1 + rows // (gamma + 1)
    share = copied.stats.codes[0]
    steps = order(model_of(name))
    assert share.decided == steps.decisions(len(copied.said.grid))
    assert share.judged == share.agreed == share.proposed


def test_every_pass_is_counted() -> None:
    rows = 15
    assert says("mono", rows).forwards == rows
    known = says("mono", rows).rows
    for gamma in (1, 2, 5, 60):
        told = says("mono", rows, draft=Telling(known), gamma=gamma)
        assert told.forwards == 1 + -(-rows // (gamma + 1))
    never = says("mono", rows, draft=drafts("wrong", "mono", known), gamma=2)
    assert never.forwards == 1 + rows  # also the first round has a draft to look at


def test_a_forced_cell_counts_in_no_figure() -> None:
    known = says("mono", 15).rows
    never = says("mono", 15, draft=drafts("wrong", "mono", known), gamma=2).stats.codes[0]
    assert sum(never.agreed) == 0
    assert never.decided == 4 * 12
    told = says("mono", 15, draft=Telling(known), gamma=60).stats.codes[0]
    assert told.proposed == (12, 12, 12, 11)  # the last row is no draft, but the bonus
    assert told.agreed == told.judged == told.proposed


# Sampling.


@contextmanager
def keyed_library(seed: int) -> Iterator[None]:
    """While this is open, the library's loop draws by the noise of each cell's place."""
    loop, draw = GenerationMixin._sample, torch.multinomial
    rows: list[Iterator[int]] = []

    @functools.wraps(loop)
    def sample(self: Any, input_ids: Tensor, *args: Any, **kwargs: Any) -> Any:
        rows.append(iter(range(input_ids.shape[1], 1 << 30)))
        try:
            return loop(self, input_ids, *args, **kwargs)
        finally:
            rows.pop()

    def multinomial(law: Tensor, num_samples: int, **more: Any) -> Tensor:
        if not rows:
            return draw(law, num_samples, **more)
        codebooks, codes = law.shape
        place = torch.tensor(next(rows[-1]))
        noise = code_noise(seed, place, codebooks, codes + 1)[:, :codes]
        return (law.double().log() + noise).argmax(-1, keepdim=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GenerationMixin, "_sample", sample)
        patch.setattr(torch, "multinomial", multinomial)
        yield


SAMPLED: tuple[dict[str, Any], ...] = (
    {"do_sample": True},
    {"do_sample": True, "temperature": 0.7, "top_k": 9},
    {"do_sample": True, "top_k": 0, "top_p": 0.8, "min_p": 0.01},
)


@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("options", SAMPLED)
@pytest.mark.parametrize("name", ["mono", "stereo"])
def test_seeded_codes_are_the_librarys_with_the_same_noise(
    name: str, options: dict[str, Any], scale: float | None
) -> None:
    with keyed_library(11):
        expected = FAMILY.library_codes(
            model_of(name), text(), max_new_tokens=14, guidance_scale=scale, **options
        )
    plain = says(name, 14, scale, seed=11, **options)
    assert plain.said.grid == expected
    assert plain.said.grid != library(name, 14, scale)
    for kind in DRAFTERS:
        draft = drafts(kind, name, plain.rows)
        assert says(name, 14, scale, draft, 3, seed=11, **options).rows == plain.rows, kind


@pytest.mark.parametrize("rule", ["token", "frame", "block"])
@pytest.mark.parametrize("scale", GUIDED)
def test_fresh_noise_is_judged_by_every_rule(rule: str, scale: float | None) -> None:
    torch.manual_seed(3)
    copied = says(
        "mono", 15, scale, drafts("copy", "mono", []), 4, rule=rule, do_sample=True, top_k=5
    )
    tally = copied.stats.tally
    assert tally.accepted == tally.proposed > 0  # equal laws: nothing is rejected
    other = says(
        "mono", 15, scale, drafts("other", "mono", []), 4, rule=rule, do_sample=True, top_k=5
    )
    assert len(other.said.grid) == 12


# Blocks, states and conditioning.


def opened(name: str = "mono", rows: int = 15, scale: float | None = None) -> RowsTarget:
    options = {"max_new_tokens": rows, "do_sample": False, "guidance_scale": scale}
    return FAMILY.open(prepare(model_of(name), text(), **options), packed=False)


def frames_of(target: RowsTarget, count: int, seed: int = 0) -> list[Frame]:
    """Rows that could follow the prompt."""
    generator = torch.Generator().manual_seed(seed)
    shape = (count, target.codebooks)
    drawn = torch.randint(CODES, shape, generator=generator).tolist()
    forced = target.layout.forced(target.prompt, drawn)
    return [
        tuple(token if mark == FREE else mark for token, mark in zip(row, marks, strict=True))
        for row, marks in zip(drawn, forced, strict=False)
    ]


def plainly(model: Any, ids: list[Frame], scale: float | None) -> Tensor:
    """The library's whole model over all rows at once, without any memory: `[rows, R, V]`."""
    options = {"max_new_tokens": 15, "do_sample": False, "guidance_scale": scale}
    prepared = prepare(model, text(), **options)
    block = torch.tensor(ids).t()
    with torch.no_grad():
        made = model(
            decoder_input_ids=block.repeat(2, 1) if scale else block,
            encoder_outputs=prepared.inputs["encoder_outputs"],
            attention_mask=prepared.inputs["attention_mask"],
            use_cache=False,
        )
    return made.logits.transpose(0, 1)


@pytest.mark.parametrize("scale", GUIDED)
@pytest.mark.parametrize("name", MODELS)
def test_a_block_is_scored_as_rows_one_by_one_and_rolls_back(
    name: str, scale: float | None
) -> None:
    target = opened(name, scale=scale)
    rows = frames_of(target, 8)
    expected = plainly(model_of(name), [*target.prompt, *rows], scale)
    first = target.read_prompt()
    state, crossing = target.state, target.state.conditioning(0)
    places = crossing.keys.data_ptr(), crossing.values.data_ptr()
    scored = [first, target.score(rows[:5], 5)]
    state.rollback(3)
    state.poison_unused()
    scored[1] = torch.cat([scored[1][:2], target.score(rows[2:7], 5), target.score(rows[7:], 1)])
    own = torch.cat(scored)
    assert own.shape == (9, target.codebooks * (2 if scale else 1), CODES + 1)
    torch.testing.assert_close(own[..., :CODES], expected, atol=1e-5, rtol=1e-5)
    assert (own[..., CODES] == own.min()).all()
    assert (crossing.keys.data_ptr(), crossing.values.data_ptr()) == places
    assert (target.hidden_from, len(target.hidden)) == (8, 1)
    assert target.forwards == 4
    target.close()


def test_what_a_draft_has_in_a_forced_cell_is_never_read() -> None:
    target = opened()
    rows = frames_of(target, 2)
    target.read_prompt()
    expected = target.score(rows, 2)
    target.state.rollback(1)
    dirty = [(rows[0][0], 1, 2, 3), (*rows[1][:2], 4, 5)]
    assert torch.equal(target.score(dirty, 2), expected)


def test_nothing_is_scored_for_nothing() -> None:
    target = opened()
    target.read_prompt()
    assert target.score(frames_of(target, 2), 0).shape == (0, 4, CODES + 1)
    assert target.state.length == 3


def test_a_pattern_is_forced_until_behind_its_end() -> None:
    layout = PatternLayout([(8, 8), (FREE, 8), (8, FREE)], pad=8)
    assert layout.forced([(8, 8)] * 3, [(8, 8)]) == [(8, 8), (8, 8)]
    assert layout.forced([(8, 8)] * 2, [(8, 8)]) == [(8, FREE), (8, 8)]


# What the model is left as, and what runs.


def test_preparing_neither_decodes_nor_writes() -> None:
    model = tiny()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    attributes, settings = set(vars(model)), model.generation_config.to_dict()
    ran: list[str] = []
    for name in ("decoder", "audio_encoder", "text_encoder"):
        part = model.get_submodule(name)
        part.register_forward_hook(lambda *_, name=name: ran.append(name))
    prepare(model, text(), max_new_tokens=9, guidance_scale=3.0)
    assert ran == ["text_encoder"]
    FAMILY.library_codes(model, text(), max_new_tokens=9, do_sample=False)
    says("mono", 9)
    assert set(vars(model)) == attributes
    assert model.generation_config.to_dict() == settings
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_a_shadow_decodes_by_another_loop() -> None:
    model = model_of("mono")
    rows = says("mono", 9).rows
    done = torch.tensor(rows).t()
    ours = shadow(model, lambda prepared: done).generate(**text(), max_new_tokens=9)
    theirs = model.generate(**text(), max_new_tokens=9, do_sample=False)
    assert torch.equal(ours, theirs)


def test_a_criterion_leaves_whole_frames() -> None:
    def at(rows: int) -> StoppingCriteriaList:
        class At(hf.StoppingCriteria):
            def __call__(self, ids: Tensor, scores: Any, **more: Any) -> Tensor:
                return torch.full((ids.shape[0],), ids.shape[1] >= rows)

        return StoppingCriteriaList([At()])

    whole = library("mono", 15, None)
    for rows in (2, 3, 4, 5, 9, 14, 15):
        cut = says("mono", 15, draft=drafts("lookup", "mono", []), stopping_criteria=at(rows))
        assert len(cut.rows) == rows
        assert cut.said.grid == whole[: max(0, rows - 4)]
        assert cut.stats.finish_reason == "criterion"


def test_a_processor_with_a_memory_sees_every_row_once() -> None:
    class Counting(hf.LogitsProcessor):
        def __init__(self) -> None:
            self.calls = 0

        def __call__(self, ids: Tensor, scores: Tensor) -> Tensor:
            self.calls += 1
            scores = scores.clone()
            scores[:, self.calls % CODES] += 50.0 * (self.calls % 3 == 0)
            return scores

    def options() -> dict[str, Any]:
        return {"logits_processor": LogitsProcessorList([Counting()])}

    for scale in GUIDED:
        expected = FAMILY.library_codes(
            model_of("mono"), text(), max_new_tokens=13, do_sample=False, guidance_scale=scale,
            **options(),
        )  # fmt: skip
        plain = says("mono", 13, scale, **options())
        drafted = says("mono", 13, scale, drafts("late", "mono", plain.rows), 4, **options())
        assert plain.said.grid == drafted.said.grid == expected
        assert expected != library("mono", 13, scale)


# Drafters and their encoders.


@pytest.mark.parametrize(
    ("drafter", "runs"),
    [
        (lambda: tiny_decoder(3, width=16), 0),
        (lambda: MODELS["mono"](), 0),
        (lambda: tiny(9, width=24), 1),
    ],
    ids=["decoder", "same encoder", "own encoder"],
)
def test_an_encoder_runs_once_per_text_and_model(drafter: Callable[[], Any], runs: int) -> None:
    draft = ModelDraft(SpeechCheckpoint.of(model_of("mono"), packed=False), drafter())
    ran: list[int] = []
    both = (draft.target.model, draft.drafter)
    encoders = [model.text_encoder for model in both if hasattr(model, "text_encoder")]
    hooks = [part.register_forward_hook(lambda *_: ran.append(1)) for part in encoders]
    says("mono", 15, 3.0, draft, 3)
    for hook in hooks:
        hook.remove()
    assert len(ran) == 1 + runs


def test_a_drafters_guidance_changes_drafts_only() -> None:
    prepared = prepare(model_of("mono"), text(), max_new_tokens=15, guidance_scale=3.0)
    rows = {}
    for guided in (True, False, None):
        target = FAMILY.open_drafter(prepared, twin_of("mono"), guided=guided)
        rows[guided] = target.read_prompt()
    assert torch.equal(rows[True], rows[None])
    assert rows[True].shape == (1, 8, CODES + 1)
    torch.testing.assert_close(rows[False], rows[True][:, :4])
    unguided = prepare(model_of("mono"), text(), max_new_tokens=15)
    assert FAMILY.open_drafter(unguided, twin_of("mono"), guided=True).read_prompt().shape[1] == 4


def test_a_decoder_reads_states_as_encoded_or_as_the_target_reads_them() -> None:
    target = tiny(width=24)
    prepared = prepare(target, text(), max_new_tokens=9)
    with torch.no_grad():
        encoded = prepared.inputs["encoder_outputs"][0]
        read = target.enc_to_dec_proj(encoded)
    for width, states in ((16, encoded), (24, read)):
        drafter = tiny_decoder(3, width=width)
        row = FAMILY.open_drafter(prepared, drafter).read_prompt()
        with torch.no_grad():
            expected = drafter(
                input_ids=prepared.input_ids,
                encoder_hidden_states=states,
                encoder_attention_mask=prepared.inputs["attention_mask"],
            ).logits[:, -1]
        torch.testing.assert_close(row[0, :, :CODES], expected, atol=1e-5, rtol=1e-5)
    with pytest.raises(ModelError, match="reads states 32 wide, the target's text is encoded 16"):
        FAMILY.open_drafter(prepared, tiny_decoder(width=32))


def test_each_codebook_has_its_own_table() -> None:
    tables = FAMILY.code_embeddings(model_of("stereo"))
    assert [list(table.shape) for table in tables] == [[CODES + 1, 16]] * 6
    assert (FAMILY.signals(model_of("stereo")), FAMILY.signals(model_of("mono"))) == (2, 1)


def test_equal_weights_are_seen() -> None:
    one, twin = tiny().text_encoder, tiny().text_encoder
    assert same_weights(one, one)
    assert same_weights(one, twin)
    assert not same_weights(one, tiny(1).text_encoder)
    assert not same_weights(one, tiny(text_width=24).text_encoder)


# Without the text.


def test_without_its_text_a_model_hears_what_guidance_takes_for_no_text() -> None:
    model = model_of("mono")
    nothing = dict(model.get_unconditional_inputs())
    free = run(FAMILY, model, nothing, max_new_tokens=12, do_sample=False)
    assert free.said.grid == FAMILY.library_codes(model, nothing, max_new_tokens=12)
    dropped = FAMILY.without_text(prepare(model, text(), max_new_tokens=12, guidance_scale=3.0))
    row = FAMILY.open(dropped, packed=False).read_prompt()
    torch.testing.assert_close(row[:, :4], row[:, 4:])
    unguided = FAMILY.open(prepare(model, nothing, max_new_tokens=12), packed=False)
    torch.testing.assert_close(row[:, :4], unguided.read_prompt())


# Bad input.


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"max_new_tokens": 5}, OptionError, "6 rows are too few: below 7"),
        ({"max_new_tokens": 65}, OptionError, "66 rows don't fit: .* 64 positions"),
        ({"eos_token_id": 3}, OptionError, "eos_token_id=3: these codebooks have no end mark"),
        ({"num_return_sequences": 2, "do_sample": True}, InputError, "2 requests at once"),
        ({"prefill_chunk_size": 2}, OptionError, "prefill_chunk_size"),
        (
            {"decoder_attention_mask": torch.ones(1, 1, dtype=torch.long)},
            OptionError,
            "no row of codes is padding",
        ),
    ],
)
def test_an_option_that_rows_dont_allow_is_named(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(FAMILY, model_of("mono"), text(), **{"max_new_tokens": 15, **options})


def test_beams_are_refused() -> None:
    with pytest.raises(OptionError, match="num_beams=1"):
        run(FAMILY, model_of("mono"), text(), max_new_tokens=15, num_beams=2)


def test_two_texts_at_once_are_refused() -> None:
    two = {name: value.repeat(2, 1) for name, value in text().items()}
    with pytest.raises(InputError, match="2 requests at once"):
        run(FAMILY, model_of("mono"), two, max_new_tokens=15)


def test_guidance_towards_nothing_is_refused() -> None:
    nothing = dict(model_of("mono").get_unconditional_inputs()) | {"guidance_scale": 3.0}
    with pytest.raises(InputError, match="conditioning of 1 rows, expected 2"):
        run(FAMILY, model_of("mono"), nothing, max_new_tokens=15)


@pytest.mark.parametrize(("mark", "value"), [("pad_token_id", 3), ("decoder_start_token_id", 0)])
def test_a_mark_that_is_a_code_is_refused(mark: str, value: int) -> None:
    model = tiny()
    setattr(model.generation_config, mark, value)
    with pytest.raises(ModelError, match=f"mark is {value}, but the model writes 32 codes"):
        FAMILY.descriptor(model)


@pytest.mark.parametrize(
    ("codebooks", "codes", "message"),
    [
        (3, CODES, "the model writes 4 codebooks, the codec .* has 3"),
        (4, 64, "codebook 0: the model writes 32 codes, the codec .* has 64"),
    ],
)
def test_a_codec_that_reads_other_codes_is_refused(
    codebooks: int, codes: int, message: str
) -> None:
    model = tiny()
    model.audio_encoder = hf.EncodecModel(codec(codebooks, codes)).eval()
    with pytest.raises(ModelError, match=message):
        SpeechCheckpoint.of(model, family=FAMILY)


def test_a_drafter_of_other_rows_is_refused() -> None:
    message = "the target writes 4 codebooks of 32 codes, .* the drafter 2 codebooks of 32 codes"
    with pytest.raises(ModelError, match=message):
        ModelDraft(SpeechCheckpoint.of(model_of("mono")), tiny_decoder(codebooks=2))
    with pytest.raises(ModelError, match="the drafter 4 codebooks of 16 codes"):
        ModelDraft(SpeechCheckpoint.of(model_of("mono")), tiny(codes=16))


def test_a_drafter_with_an_encoder_of_its_own_needs_a_text() -> None:
    prepared = prepare(model_of("mono"), text(), max_new_tokens=15)
    with pytest.raises(InputError, match="given nothing to encode: pass it input_ids"):
        FAMILY.open_drafter(prepared, tiny(9, width=24))


def test_a_drafter_in_training_mode_is_refused() -> None:
    prepared = prepare(model_of("mono"), text(), max_new_tokens=15)
    with pytest.raises(ModelError, match="the drafter is in training mode"):
        FAMILY.open_drafter(prepared, tiny_decoder().train())


class Tokens:
    """Letters a to j."""

    unk_token_id, model_max_length = 2, 6

    def __call__(
        self, texts: Any, return_tensors: str | None = None, add_special_tokens: bool = True
    ) -> Mapping[str, Any]:
        said = texts[0] if isinstance(texts, list) else texts
        ids = [10 + ord(char) - ord("a") if "a" <= char <= "j" else 2 for char in said]
        ids += [1] * add_special_tokens
        if return_tensors is None:
            return {"input_ids": ids}
        return {"input_ids": torch.tensor([ids]), "attention_mask": torch.ones(1, len(ids))}


def test_a_text_is_checked() -> None:
    checkpoint = SpeechCheckpoint.of(model_of("mono"), Tokens(), family=Musicgen())
    assert FAMILY.text_inputs(checkpoint, "abc")["input_ids"].tolist() == [[10, 11, 12, 1]]
    for words, message in (
        (" ", "empty"),
        ("a!b", "character '!'"),
        ("abcdefg", "8 tokens, its encoder was made for 6"),
    ):
        with pytest.raises(InputError, match=message):
            FAMILY.text_inputs(checkpoint, words)
