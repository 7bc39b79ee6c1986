"""Tiny models that speak, and what they are asked to say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.modalities.speech import bed_bark as bark
from tests.modalities.speech import bed_csm as csm
from tests.modalities.speech import bed_dia as dia
from tests.modalities.speech import bed_higgs_audio as higgs
from tests.modalities.speech import bed_musicgen as musicgen
from tests.modalities.speech import bed_orpheus as orpheus


@dataclass(frozen=True)
class Voice:
    """One kind of model that speaks.

    Attributes:
        make: a model by seed and layers; None: as many as its bed gives it.
        inputs: what it is to say, for a model.
        words: ids that options may speak of, from and to.
        end: its end.
        supported: whether `mmspec.generate` takes it; if not, it refuses it in a line.
    """

    make: Callable[[int, int | None], Any]
    inputs: Callable[[Random, Any], dict[str, Any]]
    words: tuple[int, int]
    end: int
    supported: bool = True


def _said_to_musicgen(random: Random, model: Any) -> dict[str, Any]:
    return musicgen.text(
        *(random.randrange(2, musicgen.WORDS) for _ in range(random.choice([1, 4])))
    )


def _said_to_dia(random: Random, model: Any) -> dict[str, Any]:
    text = random.choice(["[S1] so be it", "[S1] a", "[S1] one [S2] two"])
    return dia.inputs(text, random.choice([0, 0, 3, 7]))


def _said_to_csm(random: Random, model: Any) -> dict[str, Any]:
    if random.random() < 0.4:
        return csm.voiced((random.choice([3, 6]),), random.randrange(50))
    rows = random.choices([1, 2], [9, 1])[0]
    texts = [csm.text(random.choice([1, 9]), random.randrange(50)) for _ in range(rows)]
    return csm.batch(texts) if rows > 1 else texts[0]


VOICES = {
    "musicgen": Voice(
        lambda seed, layers: musicgen.tiny(seed, layers=layers or 2),
        _said_to_musicgen,
        (0, musicgen.CODES - 1),
        musicgen.CODES,
    ),
    "musicgen-melody": Voice(
        lambda seed, layers: musicgen.tiny_melody(seed, layers=layers or 2),
        _said_to_musicgen,
        (0, musicgen.CODES - 1),
        musicgen.CODES,
    ),
    "dia": Voice(
        lambda seed, layers: dia.tiny(seed, layers or 2),
        _said_to_dia,
        (0, dia.CODES - 1),
        dia.END,
    ),
    "csm": Voice(
        lambda seed, layers: csm.tiny(seed, layers or 2),
        _said_to_csm,
        (1, csm.CODES - 1),
        csm.END,
    ),
    "csm-ending": Voice(
        lambda seed, layers: csm.ending(seed), _said_to_csm, (1, csm.CODES - 1), csm.END
    ),
    "bark": Voice(
        lambda seed, layers: bark.made(seed),
        lambda random, model: bark.inputs(random.randrange(50)),
        (0, bark.UNITS - 1),
        bark.END,
        supported=False,
    ),
    "higgs-audio": Voice(
        lambda seed, layers: higgs.tiny(seed),
        lambda random, model: higgs.inputs(random.randrange(50), voice=random.choice([0, 3])),
        (0, higgs.CODES - 1),
        higgs.END,
        supported=False,
    ),
    "orpheus": Voice(
        lambda seed, layers: orpheus.made(seed),
        lambda random, model: orpheus.inputs(random.randrange(50)),
        (orpheus.BASE, orpheus.VOCAB - 1),
        orpheus.END,
        supported=False,
    ),
}
