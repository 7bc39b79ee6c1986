"""Logits processors at drafted prefixes.

transformers' processors look at one prefix at a time. A block has a row per drafted prefix, so:
processors that ignore the prefix run once over the whole block; those with a block form that we
know run that; every other one is called row by row, with exactly the prefixes, and in exactly the
order, in which ordinary decoding would call it. A processor with a memory (counters, automata)
gets that memory back as it was after the last row that was kept.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor
from transformers import LogitsProcessor, LogitsProcessorList
from transformers.generation import logits_process as hf

from mmspec.engine.processor_copies import by_reference
from mmspec.prefix import Prefix


class BlockForm(Protocol):
    """A processor over a block: `rows[i]` is the row behind `ids[: start + i]`."""

    def __call__(self, rows: Tensor, ids: Sequence[int], start: int) -> Tensor:
        """Process `rows` `[n, V]`; `ids` are the committed and drafted ids, `start` the first
        row's prefix length. Must be a function of its arguments; may work in place."""
        ...


BLOCK_FORMS: dict[type[LogitsProcessor], Callable[[Any], BlockForm]] = {}
"""Block forms by exact processor type. Adapters add theirs with `register_block_form`."""

IGNORES_PREFIX: frozenset[type[LogitsProcessor]] = frozenset(
    {
        hf.TemperatureLogitsWarper,
        hf.TopKLogitsWarper,
        hf.TopPLogitsWarper,
        hf.MinPLogitsWarper,
        hf.TypicalLogitsWarper,
        hf.EpsilonLogitsWarper,
        hf.EtaLogitsWarper,
        hf.InfNanRemoveLogitsProcessor,
        hf.LogitNormalization,
    }
)
"""transformers' processors that look at the scores only."""

MEMORYLESS: set[type[LogitsProcessor]] = {
    hf.RepetitionPenaltyLogitsProcessor,
    hf.NoRepeatNGramLogitsProcessor,
    hf.NoBadWordsLogitsProcessor,
    hf.SequenceBiasLogitsProcessor,
    hf.EncoderRepetitionPenaltyLogitsProcessor,
    hf.EncoderNoRepeatNGramLogitsProcessor,
    hf.ForcedBOSTokenLogitsProcessor,
    hf.ForcedEOSTokenLogitsProcessor,
    hf.ExponentialDecayLengthPenalty,
    hf.MinLengthLogitsProcessor,
    hf.MinNewTokensLengthLogitsProcessor,
    hf.SuppressTokensLogitsProcessor,
    hf.SuppressTokensAtBeginLogitsProcessor,
}
"""transformers' processors that are functions of the prefix: nothing to restore."""

OBSERVERS: set[type[LogitsProcessor]] = set()
"""Processors that note something at the first token and never change a row; drafters do without.
Adapters add theirs."""


def register_block_form(
    kind: type[LogitsProcessor],
) -> Callable[[Callable[[Any], BlockForm]], Callable[[Any], BlockForm]]:
    """Register a function that turns a processor of exactly this type into its block form."""

    def register(factory: Callable[[Any], BlockForm]) -> Callable[[Any], BlockForm]:
        BLOCK_FORMS[kind] = factory
        return factory

    return register


@register_block_form(hf.SuppressTokensLogitsProcessor)
def _suppress(processor: Any) -> BlockForm:
    suppressed = _Suppressed(processor.suppress_tokens)

    def block(rows: Tensor, ids: Sequence[int], start: int) -> Tensor:
        return rows.index_fill_(1, suppressed.in_rows(rows), -torch.inf)

    return block


@register_block_form(hf.SuppressTokensAtBeginLogitsProcessor)
def _suppress_at_begin(processor: Any) -> BlockForm:
    suppressed = _Suppressed(processor.begin_suppress_tokens)

    def block(rows: Tensor, ids: Sequence[int], start: int) -> Tensor:
        row = processor.begin_index - start
        if 0 <= row < len(rows):
            rows[row].index_fill_(0, suppressed.in_rows(rows), -torch.inf)
        return rows

    return block


class _Suppressed:
    """Tokens that a processor forbids; none, or some that no row has, are nothing bad."""

    def __init__(self, tokens: Tensor) -> None:
        self._tokens, self._at = tokens, torch.empty(0, dtype=torch.long)
        self._rows: tuple[int, torch.device] | None = None

    def in_rows(self, rows: Tensor) -> Tensor:
        """Columns of `rows` to be forbidden."""
        kind = rows.shape[-1], rows.device
        if kind != self._rows:  # once: looking at the tokens waits for the device
            known = self._tokens.long()  # of none, transformers makes floats
            self._at = known[(known >= 0) & (known < kind[0])].to(rows.device)
            self._rows = kind
        return self._at


@dataclass
class _Snapshots:
    """A processor with a memory, and that memory before each row of the present block."""

    processor: Any
    before: list[dict[str, Any]]
    lost: bool = False
    """It can't be copied any more (a matcher that was built at the first call)."""

    def remember(self) -> None:
        self.before.append(_memory_of(self.processor))

    def restore(self, row: int) -> None:
        if row < len(self.before):
            vars(self.processor).clear()
            vars(self.processor).update(self.before[row])
        self.before = []


class Wrapped(LogitsProcessor):
    """A processor that is shown other ids than a session's; its memory is that of the one inside.

    Attributes:
        processor: the one inside, the caller's own object.
    """

    def __init__(self, processor: Any) -> None:
        self.processor = processor


def _inside(processor: Any) -> Any:
    return processor.processor if isinstance(processor, Wrapped) else processor


class Processors:
    """A request's logits processors, evaluated over blocks.

    Args:
        processors: transformers' list, as `generate` would call it. Objects in it are called as
            ordinary decoding would call them and never handed to a drafter.

    Attributes:
        refuses_blocks: why no block can be processed (a memory that can't be copied), or None.
    """

    def __init__(self, processors: LogitsProcessorList | None = None) -> None:
        self._processors = list(processors or [])
        self._steps: list[tuple[Any, BlockForm | None]] = []
        self._with_memory: list[_Snapshots] = []
        self.refuses_blocks: str | None = None
        for processor in self._processors:
            self._add(processor)
        self._find_shared_memory()

    def _add(self, processor: LogitsProcessor) -> None:
        kind = type(processor)
        if kind in BLOCK_FORMS:
            self._steps.append((processor, BLOCK_FORMS[kind](processor)))
        elif kind in IGNORES_PREFIX:
            self._steps.append((processor, _ignoring_prefix(processor)))
        else:
            self._add_by_row(processor)

    def _add_by_row(self, processor: LogitsProcessor) -> None:
        self._steps.append((processor, None))
        inside = _inside(processor)
        if type(inside) not in MEMORYLESS and type(inside) not in OBSERVERS:
            self._add_memory(inside)

    def _add_memory(self, processor: LogitsProcessor) -> None:
        try:
            if any(vars(base).get("__slots__") for base in type(processor).__mro__):
                raise TypeError("attributes in __slots__ are not looked for")
            _memory_of(processor)
        except Exception as error:  # any class may refuse to be copied, in its own way
            self._refuse_blocks(processor, error)
        else:
            self._with_memory.append(_Snapshots(processor, []))

    def _refuse_blocks(self, processor: LogitsProcessor, error: Exception) -> None:
        name = type(processor).__name__
        self.refuses_blocks = f"the memory of {name} can't be copied ({type(error).__name__})"

    def _find_shared_memory(self) -> None:
        """Memories are kept one by one, so one that two processors share would come apart."""
        owners: dict[int, Any] = {}
        memos = []  # they hold what they name, so that no id stands for two objects
        for processor in [memory.processor for memory in self._with_memory]:
            memo = _by_reference(processor, processor)
            referred = set(memo)
            copy.deepcopy(vars(processor), memo)
            memos.append(memo)
            for copied in memo.keys() - referred - {id(memo)}:
                other = owners.setdefault(copied, processor)
                if other is not processor:
                    names = f"{type(other).__name__} and {type(processor).__name__}"
                    self.refuses_blocks = f"{names} share a memory"

    def __call__(
        self, rows: Tensor, prefix: Prefix, drafted: Sequence[int], skipped: int = 0
    ) -> Tensor:
        """Process `rows` `[n, V]`: row i is the distribution behind the prefix and
        `drafted[:skipped + i]`.

        The prefix must be showing the draft (`Prefix.show_draft`). Rows may be written to. Fewer
        rows come back (at least one) where a memory turns out to be past copying on the way.
        """
        start = len(prefix) + skipped
        ids = _Joined(prefix.ids, drafted)
        for processor, form in self._steps:
            if form is None:
                rows = self._row_by_row(processor, rows, prefix, start)
            else:
                rows = form(rows, ids, start)
        return rows

    def single(self, row: Tensor, prefix: Prefix, drafted: Sequence[Any]) -> Tensor:
        """Process the one row `[V]` behind the prefix and all of `drafted` (a drafter's step)."""
        start = len(prefix) + len(drafted)
        ids = _Joined(prefix.ids, drafted)
        rows = row.clone().unsqueeze(0)
        for processor, form in self._steps:
            if form is None:
                rows = self._called(processor, prefix.tensor(start), rows)
            else:
                rows = form(rows, ids, start)
        return rows[0]

    def _called(self, processor: Any, ids: Tensor, rows: Tensor) -> Tensor:
        """A processor's answer to the one row in `rows`, behind `ids`."""
        return processor(ids, rows)

    def _row_by_row(
        self, processor: LogitsProcessor, rows: Tensor, prefix: Prefix, start: int
    ) -> Tensor:
        inside = _inside(processor)
        memory = next((m for m in self._with_memory if m.processor is inside), None)
        done: list[Tensor] = []
        for offset in range(len(rows)):
            if memory is not None and not self._remember(memory):
                rows = rows[: max(1, offset)]  # a row that can't be undone must be the last one
            if offset < len(rows):
                row = rows[offset : offset + 1]
                done.append(self._called(processor, prefix.tensor(start + offset), row))
        return torch.cat(done) if len(done) > 1 else done[0]

    def _remember(self, memory: _Snapshots) -> bool:
        if not memory.lost:
            try:
                memory.remember()
            except Exception as error:  # as in _add_memory
                memory.lost = True
                self._refuse_blocks(memory.processor, error)
        return not memory.lost

    def commit(self, rows_kept: int) -> None:
        """Give every memory back as it was after the first `rows_kept` rows of the last block."""
        for memory in self._with_memory:
            memory.restore(rows_kept)
        self._with_memory = [memory for memory in self._with_memory if not memory.lost]

    @property
    def has_memory(self) -> bool:
        """Whether any processor remembers what it was called with."""
        return bool(self._with_memory)

    def fork(self) -> Processors:
        """An independent copy for a drafter, with the present memories: no object is shared."""
        changing = [p for p in self._processors if type(_inside(p)) not in OBSERVERS]
        return self._like(LogitsProcessorList([_processor_copy(p) for p in changing]))

    def _like(self, processors: LogitsProcessorList) -> Processors:
        """Another list, for the same kind of prefix."""
        return Processors(processors)


def _memory_of(processor: Any, owner: Any = None) -> dict[str, Any]:
    """A deep copy, but for models and tokenizers: of those a processor remembers a reference.

    What refers to the processor itself (a method of its own, say) refers to the owner of the copy:
    the processor, unless another one is named.
    """
    memo = _by_reference(processor, processor if owner is None else owner)
    return copy.deepcopy(vars(processor), memo)


def _by_reference(processor: Any, owner: Any) -> dict[int, Any]:
    return {id(processor): owner} | by_reference(vars(processor).values())


def _processor_copy(processor: Any) -> Any:
    twin = copy.copy(processor)
    if isinstance(processor, Wrapped):
        twin.processor = _processor_copy(processor.processor)
        return twin
    vars(twin).update(_memory_of(processor, twin))
    return twin


def _ignoring_prefix(processor: LogitsProcessor) -> BlockForm:
    def block(rows: Tensor, ids: Sequence[int], start: int) -> Tensor:
        return processor(None, rows)

    return block


class _Joined(Sequence[int]):
    """Committed and drafted ids in a row, without copying the committed ones."""

    def __init__(self, committed: Sequence[int], drafted: Sequence[int]) -> None:
        self._parts = committed, drafted

    def __len__(self) -> int:
        return len(self._parts[0]) + len(self._parts[1])

    def __getitem__(self, index: Any) -> Any:
        committed, drafted = self._parts
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        if index < 0:
            index += len(self)
        return committed[index] if index < len(committed) else drafted[index - len(committed)]
