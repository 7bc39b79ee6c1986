"""VALL-E's kind of model: one plain chain for the first codebook, then passes that fill the others.

What a filling pass writes is the likeliest code everywhere, given the text and all that was written
before: it follows, so there is nothing to draft and nothing to draw. Equal first codes make equal
grids.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from mmspec.engine import Steps
from mmspec.errors import InputError, ModelError
from mmspec.factorizations import Codebook, FirstStream
from mmspec.modalities.base.checkpoint import Checkpoint
from mmspec.modalities.base.preparation import Prepared
from mmspec.modalities.speech.chain import (
    ChainFamily,
    ChainModel,
    check_text,
    counted,
    drawing,
    hand_over,
    log_probs,
    prepared_chain,
    tokens,
)
from mmspec.modalities.speech.contract import CodesRequest, CodesResult
from mmspec.modalities.speech.family import check_words
from mmspec.modalities.speech.filling import Filling
from mmspec.modalities.speech.grids import checked_codes

if TYPE_CHECKING:
    from mmspec.modalities.speech.checkpoint import SpeechCheckpoint


class Valle(ChainFamily):
    """VALL-E's kind, as `valle_model.ValleModel` is one."""

    title = "VALL-E style"
    loads = "AutoModel"
    drafters: ClassVar[Mapping[str, str]] = {"mmspec_valle": "AutoModel"}
    filled = "the codebooks behind the first are filled in one pass each, so they aren't drafted"

    def descriptor(self, model: Any) -> FirstStream:
        """One chained codebook, the others filled.

        Raises:
            ModelError: the parts don't fit the configuration; names both sides.
        """
        config = model.config
        if config.codebooks < 2:
            raise ModelError(
                f"the configuration has {config.codebooks} codebooks: one is written and at least "
                "one is filled"
            )
        tables = (
            ("ids", config.tokens, model.first.get_input_embeddings()),
            ("characters", len(config.alphabet), model.rest.text),
            *((f"codes in codebook {k}", config.codes, t) for k, t in enumerate(model.rest.codes)),
        )
        for what, wanted, table in tables:
            if table.num_embeddings != wanted:
                raise ModelError(
                    f"the configuration has {wanted} {what}, the model {table.num_embeddings}"
                )
        if len(model.rest.codes) != config.codebooks:
            raise ModelError(
                f"the configuration has {config.codebooks} codebooks, the model "
                f"{len(model.rest.codes)}"
            )
        first = Codebook(config.tokens, config.codes, start=config.start, end=config.end)
        rest = [Codebook(config.codes, config.codes)] * (config.codebooks - 1)
        return FirstStream((first, *rest))

    def chains(self, model: Any, packed: bool) -> dict[str, Checkpoint]:
        """What writes the first codebook."""
        config = model.config
        family = ChainModel(frozenset({config.end}), frozenset(range(config.start, config.tokens)))
        return {"first": Checkpoint.of(model.first, packed=packed, family=family)}

    def check_drafter(self, model: Any, drafter: Any) -> None:
        """Raise where another model has other codes or reads other characters.

        Raises:
            ModelError: names both sides.
        """
        super().check_drafter(model, drafter)
        own, others = model.config.alphabet, drafter.config.alphabet
        if own != others:
            raise ModelError(f"the target reads the characters {own!r}, the drafter {others!r}")

    def earlier(self, sequence: Sequence[Any], name: str) -> Sequence[int]:
        """The first codebook's stream."""
        return sequence[0]

    def load_processor(self, source: str, **options: Any) -> Any:
        """None: its characters stand in the configuration."""
        return None

    def text_inputs(self, checkpoint: SpeechCheckpoint, text: str) -> dict[str, Any]:
        """The ids of the text's characters.

        Raises:
            InputError: the text is empty, too long, or has characters that it doesn't know.
        """
        check_words(text)
        alphabet = checkpoint.model.config.alphabet
        for char in text:
            if char not in alphabet:
                raise InputError(
                    f"the text has the character {char!r}, which the model doesn't know: it reads "
                    f"{alphabet!r}"
                )
        ids = torch.tensor([[alphabet.index(char) for char in text]], device=checkpoint.device)
        check_text(ids, len(alphabet), checkpoint.model.config.max_position_embeddings - 2)
        return {"input_ids": ids}

    def new_tokens(self, steps: Any, frames: int) -> int:
        """A code of the first codebook for each, and the end."""
        return frames + 1

    def codec(self, checkpoint: SpeechCheckpoint) -> Any:
        """What a processor brings along; the model has none."""
        return getattr(checkpoint.processor, "audio_tokenizer", None)

    def say(self, asked: CodesRequest) -> Steps[CodesResult]:
        """The chain, then what it fills."""
        checkpoint, stats = asked.pair.checkpoint, asked.stats
        model, steps = checkpoint.model, checkpoint.steps
        text, given = _inputs(model, asked.inputs)
        rows = [] if given is None else given[0].tolist()
        with stats.clock("prefill"):
            prepared = _prepared(model, text, given, asked.options)
        before = len(stats.tally.trace)
        prompt = {"input_ids": prepared.input_ids}
        emitted = yield from tokens(asked, "first", prepared, inputs=lambda drafter: prompt)
        new = [token for token in emitted if token not in steps.stop_tokens]
        rounds = stats.tally.trace[before:]
        width = len(steps.codebooks)
        stats.codes.append(counted(rounds, width, lambda at: 0 if at < len(new) else None))
        first = torch.tensor([new], dtype=torch.long, device=model.device)
        filled = yield Filling(lambda: model.fill(text, given, first), stats.clock)
        rows += filled[0].tolist()
        chain = [row[0] for row in rows] + emitted[len(new) :]
        streams = ([row[k] for row in rows] for k in range(1, width))
        sequence = (tuple(chain), *map(tuple, streams))
        grid = steps.to_grid(sequence)
        hand_over(asked.streamer, grid)
        count = len(rows) - len(new)
        sampling = drawing(asked, bool(prepared.config.do_sample))
        return CodesResult(
            grid, steps.has_ended(sequence), sequence, count, sampling, first_step=count
        )

    def log_probs(self, asked: CodesRequest, said: CodesResult, *, text: bool) -> list[float]:
        """Of the first codebook's tokens; what is filled is no decision."""
        checkpoint = asked.pair.checkpoint
        letters, given = _inputs(checkpoint.model, asked.inputs)
        read = letters if text else letters[:, :0]
        prepared = _prepared(checkpoint.model, read, given, asked.options)
        emitted = said.sequence[0][said.prompt_length :]
        return log_probs(self.chains(checkpoint.model, packed=False)["first"], prepared, emitted)


def _inputs(model: Any, inputs: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
    """The text's ids `[1, T]` and the given frames `[1, P, K]`, checked."""
    config, text = model.config, inputs.get("input_ids")
    given = inputs.get("prompt_codes")
    check_text(text, len(config.alphabet), config.max_position_embeddings - 2)
    if given is None:
        return text, None  # type: ignore[return-value]
    if given.dim() != 3 or len(given) != 1:
        raise InputError(
            f"prompt_codes of shape {tuple(given.shape)}, expected (1, frames, codebooks)"
        )
    codes = checked_codes(given[0], [config.codes] * config.codebooks)
    return text, torch.from_numpy(codes)[None].to(model.device)  # type: ignore[return-value]


def _prepared(
    model: Any, text: Tensor, given: Tensor | None, options: Mapping[str, Any]
) -> Prepared:
    prompt = model.prompt(text, given)
    most = model.config.max_position_embeddings
    if prompt.shape[1] >= most:
        raise InputError(
            f"text and given frames take {prompt.shape[1]} positions, the model has {most}: say "
            "it in parts"
        )
    inputs = {"input_ids": prompt, "attention_mask": torch.ones_like(prompt)}
    return prepared_chain(model.first, inputs, **model.limited(options))


FAMILY = Valle()
