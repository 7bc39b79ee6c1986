"""One run of `mmspec caption` or `mmspec ocr`: load, look at image after image, compare, write."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mmspec.cli.descriptions import Descriptions, name_of
from mmspec.cli.files import FilesRun
from mmspec.cli.readings import Reading, Readings
from mmspec.cli.settings import PageOptions
from mmspec.output.hypotheses import read_hypotheses


@dataclass(frozen=True, slots=True)
class Item:
    """One image to look at.

    Attributes:
        file: which input it is from.
        path: of the input.
        image: a path or a picture; what is wrong where there is none.
        page: its number, None where the input is no document.
        hypothesis: what is expected of it.
    """

    file: int
    path: Path
    image: Any
    page: int | None = None
    hypothesis: Reading = None

    @property
    def name(self) -> str:
        """For lines and tables."""
        return name_of(self.path, self.page)


class CaptionRun(FilesRun):
    """Images to captions, one line each."""

    lines = False

    def _read_what_is_expected(self) -> None:
        file = self._models.hypothesis_file
        self._hypotheses: Sequence[Any] = [None] * len(self._files)
        if file is not None:
            found = read_hypotheses(file, self._files, self._models.target)
            self._hypotheses = ["" if text is None else text for text in found]

    def _items(self) -> Iterator[Item]:
        """What is looked at, in order, each opened when its turn comes."""
        for number, (path, text) in enumerate(zip(self._files, self._hypotheses, strict=True)):
            yield Item(number, path, path, hypothesis=text)
            self._steps.advance()

    def _new_output(self, settings: dict[str, Any]) -> Descriptions:
        self._paged: Any = None
        page: Any = None
        if self._wanted.report is not None:
            from mmspec.page.writing import RunPage
            from mmspec.tasks.vlm.page import SightEntries

            self._paged = SightEntries(self._model, self._request.task)
            page = RunPage(self._wanted.report, settings, self._paged)
        return Descriptions(
            self._wanted, self._files, settings, self._steps, page, lines=self.lines
        )

    def _new_comparer(self) -> Any:
        from mmspec.compare.comparison import Comparer

        return Comparer(self._model, self._peers, packed=self._models.packed)

    def _in_turn(self, output: Descriptions) -> None:
        for item in self._items():
            self._steps.say(item.name)
            try:
                if isinstance(item.image, Exception):
                    raise item.image
                said, compared = self._looked_at(item)
            except Exception as error:
                self._settle(item, error, None, output)
            else:
                self._settle(item, said, compared, output)

    def _together(self, output: Descriptions) -> None:
        places: list[Item] = []  # their pictures are let go as soon as a request has them
        outcomes: dict[int, Any] = {}
        asked: list[int] = []

        def requests() -> Iterator[dict[str, Any]]:
            for item in self._items():
                place = len(places)
                places.append(replace(item, image=self._kept(item.image), hypothesis=None))
                if isinstance(item.image, Exception):
                    outcomes[place] = item.image
                else:
                    asked.append(place)
                    yield self._request_for(item)

        self._steps.say(f"{len(self._files)} files")
        upcoming = 0
        for number, outcome in self._model.outcomes(requests(), self._batch):
            outcomes[asked[number]] = outcome
            while upcoming in outcomes:
                self._settle(places[upcoming], outcomes.pop(upcoming), None, output)
                upcoming += 1
        for place in sorted(outcomes):
            self._settle(places[place], outcomes[place], None, output)

    def _kept(self, image: Any) -> Any:
        """What the page of the run will need of an image: of a picture in memory a small one."""
        if isinstance(image, Path | Exception):
            return image
        return None if self._paged is None else self._paged.picture(image)

    def _request_for(self, item: Item) -> dict[str, Any]:
        return {"image": item.image, "hypothesis": item.hypothesis, "request": self._request}

    def _looked_at(self, item: Item) -> tuple[Any, dict[str, Any] | None]:
        request = self._request_for(item)
        if self._comparer is None:
            return self._model.describe(**request), None
        from mmspec.compare.peers import Outcome

        asked = self._request.decoding
        if not self._done_reports:
            self._steps.say("warming up")
            self._comparer.warm_up(item.image, asked)
            self._model.describe(**{**request, "request": self._request.few})
            self._steps.say(item.name)
        start = time.perf_counter()
        said = self._model.describe(**request)
        seconds = time.perf_counter() - start
        self._steps.say(f"{item.name}: peers")
        ours = Outcome(said.ids, said.text, said.report.decode_seconds, seconds, said.report)
        return said, self._comparer.compare(item.image, asked, ours)

    def _settle(
        self, item: Item, outcome: Any, compared: dict[str, Any] | None, output: Descriptions
    ) -> None:
        output.begin(item.file)
        if isinstance(outcome, Exception):
            self._failed(item.path, outcome, output, item.page)
            return
        outcome = replace(outcome, page=item.page)
        width, height = outcome.sizes[0]
        self._done_reports.append((item.name, f"{width}×{height}", outcome.report))
        if compared is not None:
            self._compared.append((item.name, compared))
        output.done(item.path, outcome, item.image, compared, item.page)
        self._say_about(item.path, outcome.report, empty=not outcome.text)

    def _overview(self) -> Any:
        from mmspec.output.render import overview_table

        return overview_table(self._done_reports, measure="image")


class ReadRun(CaptionRun):
    """Images and documents to text, page by page.

    Args:
        *arguments: as `FilesRun` takes them.
        pages: how documents are opened, and who reads them first.
    """

    lines = True

    def __init__(self, *arguments: Any, pages: PageOptions) -> None:
        super().__init__(*arguments)
        self._pages = pages

    def _read_what_is_expected(self) -> None:
        self._readings = Readings(self._pages.reading)

    def _settings(self) -> dict[str, Any]:
        return super()._settings() | {"reading": self._pages.reading, "dpi": self._pages.dpi}

    def _items(self) -> Iterator[Item]:
        from mmspec.modalities.media.documents import BadPage, pages

        place = 0
        for file, path in enumerate(self._files):
            try:
                for page in pages(path, dpi=self._pages.dpi, password=self._pages.password):
                    if isinstance(page, BadPage):
                        yield Item(file, path, page.error, page.number)
                    else:
                        number = None if page.dpi is None and page.number == 1 else page.number
                        text = self._readings.of(path, page, place)
                        yield Item(file, path, page.image, number, text)
                    place += 1
            except GeneratorExit:
                raise
            except Exception as error:
                yield Item(file, path, error)
                place += 1
            self._steps.advance()
