"""What a voice would pass over in silence, planted in production code and caught.

Every check passes on the real code and raises `Caught` on the mutant that it is named for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import DynamicCache, StoppingCriteria

from mmspec.errors import MMSpecError
from mmspec.modalities.speech import csm_request
from mmspec.modalities.speech.contract import CodesRequest
from mmspec.modalities.speech.higgs_audio import FAMILY
from mmspec.modalities.speech.higgs_rows import BesideText
from tests.modalities.speech import bed_csm, bed_higgs_audio
from tests.modalities.speech.chain_runs import said_by

from .catching import Caught, Check, Mutant, Patch, expect
from .catching import test_every_check_catches_something as test_every_check_catches_something
from .catching import test_the_mutant_is_caught as test_the_mutant_is_caught
from .catching import test_the_real_code_passes as test_the_real_code_passes


class AfterCalls(StoppingCriteria):
    """Ends when it was asked so often, whatever it is shown."""

    def __init__(self, calls: int) -> None:
        self._left = calls

    def __call__(self, input_ids: Tensor, scores: Any, **kwargs: Any) -> Tensor:
        self._left -= 1
        return torch.full((len(input_ids),), self._left <= 0)


def said(**options: Any) -> Any:
    given: Mapping[str, Tensor] = bed_higgs_audio.inputs()
    asked = {"max_new_tokens": 9, "do_sample": False, **options}
    return said_by(FAMILY, bed_higgs_audio.tiny(), given, None, 0, **asked)[0]


# The checks.


def the_row_of_start_marks_is_a_step() -> None:
    found = said(stopping_criteria=[AfterCalls(6)]).sequence
    expect(len(found) == 6, f"a criterion was asked about {len(found)} rows, not 6")


def a_given_cache_is_refused() -> None:
    try:
        said(past_key_values=DynamicCache())
    except MMSpecError as error:
        expect("found a cache" in str(error), "refused for something else")
        return
    raise Caught("a cache was passed over")


def samples_of_a_csm_are_rows() -> None:
    asked = {"max_new_tokens": 2, "do_sample": True, "num_return_sequences": 2}
    try:
        csm_request.prepare(bed_csm.shared(), bed_csm.text(), **asked)
    except MMSpecError:
        return
    raise Caught("two samples were taken for one row")


CHECKS: list[Check] = [
    the_row_of_start_marks_is_a_step,
    a_given_cache_is_refused,
    samples_of_a_csm_are_rows,
]


# The mutants.


def begun_before_the_first_call(patch: Patch) -> None:
    def begun(self: Any, *args: Any) -> None:
        make(self, *args)
        self._begun = True

    make = BesideText.__init__
    patch.setattr(BesideText, "__init__", begun)


def caches_unseen(patch: Patch) -> None:
    patch.setattr(CodesRequest, "__post_init__", lambda self: None)


def rows_uncounted(patch: Patch) -> None:
    patch.setattr(csm_request, "_check_rows", lambda count: None)


MUTANTS: list[Mutant] = [
    (begun_before_the_first_call, the_row_of_start_marks_is_a_step, "7 rows, not 6"),
    (caches_unseen, a_given_cache_is_refused, "passed over"),
    (rows_uncounted, samples_of_a_csm_are_rows, "taken for one row"),
]
