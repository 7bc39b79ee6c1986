"""What a page calls things: a recording is heard, an image is seen, a text is said."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Wording:
    """What was given, what was done with it, and what was made of it.

    Attributes:
        one: what was given.
        many: several of them.
        done: what was done with them.
        source: what grounded tokens rest on.
        measure: heading of how much was given.
        amount: how that is written, as a format of `%`.
        empty: of an output without tokens.
        phases: what runs in the phases that aren't the same for all.
        one_step: what one step of the target decides.
        otherwise: what makes of a token that it is syntactic.
    """

    one: str
    many: str
    done: str
    source: str
    measure: str
    amount: str
    empty: str
    phases: Mapping[str, str]
    one_step: str = "token"
    otherwise: str = "the language predicts"


HEARD = Wording(
    one="recording",
    many="recordings",
    done="transcribed",
    source="audio",
    measure="audio",
    amount="%.1f s",
    empty="Nothing was heard: the transcript is empty.",
    phases={
        "encode": "features and encoder",
        "prefill": "prompts, language detection",
        "post": "cutting into segments; word times and grounding where asked for",
    },
)

SEEN = Wording(
    one="image",
    many="images",
    done="looked at",
    source="image",
    measure="visual tokens",
    amount="%d",
    empty="Nothing was said: the text is empty.",
    phases={
        "encode": "pixels and encoder",
        "prefill": "the prompt, visual positions included",
        "post": "ids to text",
    },
)

READ = replace(
    SEEN,
    one="page",
    many="pages",
    done="read",
    empty="Nothing was read: the text is empty.",
)

SPOKEN = Wording(
    one="text",
    many="texts",
    done="said",
    source="text",
    measure="frames",
    amount="%d",
    empty="Nothing was said: there are no codes.",
    phases={
        "encode": "the text's encoder, where there is one",
        "prefill": "the prompt",
        "post": "codes to sound",
    },
    one_step="step",
    otherwise="the codes before it predict",
)

ANYTHING = Wording(
    one="input",
    many="inputs",
    done="decoded",
    source="input",
    measure="given",
    amount="",
    empty="The text is empty.",
    phases={},
)
"""Of a page that holds several kinds."""
