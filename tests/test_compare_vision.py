"""Peers of a model that looks: equal ids, the same drafter, and what transformers hides from it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import mmspec
from mmspec.compare.comparison import Comparer
from mmspec.compare.peers import Outcome, Unavailable
from mmspec.drafting import VisualTokenPruning
from mmspec.errors import OptionError
from mmspec.modalities.vlm.request import VisionRequest
from mmspec.tasks.vlm.peers import HIDES_IMAGES, MMSpecPeer, TransformersPeer, assisted
from tests.modalities.tiny_looking import model, picture, processor

FEW = VisionRequest(max_new_tokens=8)
PEERS = ("plain", "hf", "hf-assisted")


def viewer(draft: Any = "none", gamma: int = 3) -> mmspec.Viewer:
    return mmspec.load(
        model("qwen2_vl"), draft, processor=processor("qwen2_vl"), gamma=gamma, packed=False
    )


@pytest.fixture(scope="module")
def copied() -> Iterator[mmspec.Viewer]:
    """A drafter with the target's weights, as an object of its own."""
    import copy

    with viewer(copy.deepcopy(model("qwen2_vl"))) as loaded:
        yield loaded


def compared(ours: mmspec.Viewer, request: VisionRequest = FEW) -> dict[str, Any]:
    outcome = MMSpecPeer(ours, "ours").run(picture(), request)
    return Comparer(ours, PEERS, packed=False).compare(picture(), request, outcome)


class TestPeers:
    def test_ids_equal_plain_decoding_and_generate(self, copied: mmspec.Viewer) -> None:
        found = compared(copied)
        for peer in PEERS:
            assert found[peer].available, found[peer].why
            assert found[peer].ids_equal, found[peer]
            assert found[peer].decode_ratio > 0
            assert found[peer].end_to_end_ratio > 0
        assert found["hf-assisted"].to_dict()["remark"] == HIDES_IMAGES
        assert "remark" not in found["hf"].to_dict()

    def test_the_task_and_the_prompt_are_handed_on(self) -> None:
        ours = viewer("ngram")
        for request in (
            VisionRequest("read", max_new_tokens=5),
            VisionRequest("answer", "Who?", max_new_tokens=5),
        ):
            found = compared(ours, request)
            assert all(found[peer].ids_equal for peer in ("plain", "hf")), found

    def test_the_drafter_of_transformers_sees_no_image(self, copied: mmspec.Viewer) -> None:
        peer = assisted(copied)
        shown: list[bool] = []
        hook = copied.drafter_model.register_forward_pre_hook(
            lambda _, given, named: shown.append(
                named.get("pixel_values") is not None or bool(named.get("mm_encoder_outputs"))
            ),
            with_kwargs=True,
        )
        try:
            peer.run(picture(), FEW)
        finally:
            hook.remove()
        assert shown  # it was asked
        assert not any(shown)

    @pytest.mark.parametrize(
        ("draft", "why"),
        [
            ("none", "no drafter"),
            ("early-exit:1", "no early-exit"),
            ("hypothesis", "no hypothesis"),
            (VisualTokenPruning(model("qwen2_vl", 1, 2)), "reads a part"),
        ],
    )
    def test_what_transformers_has_not_is_named(self, draft: Any, why: str) -> None:
        peer = assisted(viewer(draft))
        assert isinstance(peer, Unavailable)
        assert why in str(peer.why_not)

    def test_sampling_is_no_comparison(self) -> None:
        found = compared(viewer(), VisionRequest(temperature=1.0, seed=3, max_new_tokens=4))
        assert found["plain"].ids_equal
        assert not found["hf"].available
        with pytest.raises(OptionError, match="other noise"):
            TransformersPeer(model("qwen2_vl"), processor("qwen2_vl"), "hf").run(
                picture(), VisionRequest(temperature=1.0)
            )


def test_where_outputs_differ_and_how_far_apart() -> None:
    ours = viewer()
    seen = MMSpecPeer(ours, "ours").run(picture(), FEW)
    changed = (*seen.ids[:2], seen.ids[2] + 1, *seen.ids[3:])
    other = Outcome(changed, "", 1.0, 1.0)
    found = Comparer(ours, ["hf"]).difference(picture(), FEW, seen, other)
    assert found is not None
    assert (found.index, found.ours, found.peer) == (2, seen.ids[2], changed[2])
    assert found.gap is not None
    assert found.gap > 1e-3
