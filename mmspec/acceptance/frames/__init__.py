"""Acceptance over frames: one step of the target decides K codes at once, as codec speech does.

What a rule here decides: how many drafted frames of one request stay, and the one frame that
follows them, recovered or bonus. Only whole frames come out, so nothing that is committed ever
holds half a frame. The engine calls one rule per round, behind the pass that scored the drafted
frames, and commits `draft_codes[:accepted]` and then `next_frame`; which rule, the level of
exactness says, as for single tokens. Nothing is kept between rounds.

Two kinds of frames:
    independent: All K codes are drawn at one step, each by its own head, and none sees another
        (delayed codebooks). Every distribution of a frame is known behind one pass.
    chain: Inside the frame, code k depends on codes 0..k-1 (a depth decoder). The rows behind the
        drafted codes are known, scored in one pass with the draft as input. Where the target leaves
        the draft, its distributions have to be asked for: `FrameProposal.target_rest`.

A forced cell is one that no distribution decides: the padding by which a delay pattern shifts
codebook k. It is never judged, takes part in no distribution and counts in no figure; what a
proposal holds there, code or scores, is never read.

Rules:
    greedy: Temperature 0. The target's own highest codes.
    keyed: Sampling with a seed; the same codes whatever the drafter.
    by_code: Sampling, code by code; the first rejection ends the round.
    by_frame: Sampling, each frame judged as one token; keeps at least as many frames as `by_code`.
    block: Sampling, all frames judged together; keeps at least as many frames as `by_frame`.
    grouped: Sampling, **approximate**: code by code, told apart by groups of similar codes only. It
        says how far from the target's distribution each frame is; all other rules are exact.

Unlike the rules for single tokens these take one request at a time and wait for the device: how
many numbers a rule draws, and which distributions it asks for, depends on what it draws.

Shapes: `N` drafted frames (may be 0), `K` codebooks, `V` codes in a codebook (smaller codebooks are
filled with `-inf`).
"""

from mmspec.acceptance.frames.chance import Chance, Coins
from mmspec.acceptance.frames.choices import code_noise, greedy, keyed
from mmspec.acceptance.frames.grouped import grouped
from mmspec.acceptance.frames.proposal import FREE, FrameDecision, FrameProposal
from mmspec.acceptance.frames.sampling import block, by_code, by_frame

__all__ = [
    "FREE",
    "Chance",
    "Coins",
    "FrameDecision",
    "FrameProposal",
    "block",
    "by_code",
    "by_frame",
    "code_noise",
    "greedy",
    "grouped",
    "keyed",
]
