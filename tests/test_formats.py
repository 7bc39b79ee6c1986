"""What is written: escaped, valid, whole; and hypotheses read back from it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from mmspec.errors import InputError
from mmspec.output.formats import (
    dump_json,
    one_line,
    output_names,
    to_json,
    to_srt,
    to_vtt,
    write_atomic,
)
from mmspec.output.hypotheses import read_hypotheses

HOSTILE = "a\x1b[31mred\x1b]0;title\x07\r\nb\u2028c\u202ed\x00\x9be\ud800"


@dataclass
class Cue:
    start_s: float
    end_s: float
    text: str
    words: tuple[Cue, ...] | None = None


class TestText:
    def test_nothing_that_a_terminal_obeys_survives(self) -> None:
        safe = one_line(HOSTILE)
        assert safe.isprintable()
        assert len(safe.splitlines()) == 1
        safe.encode()  # no lone surrogate

    @pytest.mark.parametrize("text", ["naïve café", "日本語", "می‌خواهم", "👩‍👩‍👧", "हिन्दी"])
    def test_languages_are_left_alone(self, text: str) -> None:
        assert one_line(text) == text


class TestJson:
    def test_schema_and_safety(self) -> None:
        text = to_json({"target": "x"}, [{"path": "a", "text": HOSTILE, "ratio": float("inf")}])
        assert all(character.isprintable() or character == "\n" for character in text)
        document = json.loads(text)
        assert document["version"] == 1
        assert document["files"][0] == {"path": "a", "text": HOSTILE, "ratio": None}

    def test_what_json_has_no_word_for(self) -> None:
        assert json.loads(dump_json({1: (float("nan"), Path("p"))})) == {"1": [None, "p"]}


class TestSubtitles:
    CUES = (Cue(0.0, 1.0, " <i>one</i> --> & two\n\n3"), Cue(2.0, 2.0, "x"), Cue(3.0, 4.0, " \n"))

    def test_vtt_escapes(self) -> None:
        vtt = to_vtt(self.CUES)
        assert vtt.startswith("WEBVTT\n\n")
        assert "&lt;i&gt;one&lt;/i&gt; --&gt; &amp; two 3\n\n" in vtt
        assert vtt.count("-->") == 2  # an empty cue is none
        assert "00:00:02.000 --> 00:00:02.001" in vtt

    WORDS = (
        Cue(1.0, 1.2, " One"),  # begins with its cue
        Cue(1.2, 1.4, " <two>"),
        Cue(1.4, 1.4, "-\x1bthree"),
        Cue(1.4, 1.9, " &four"),  # begins with the one before
        Cue(1.3, 1.9, " five"),  # before the one before
        Cue(2.0, 2.5, " six"),  # behind its cue
    )

    def test_vtt_words_have_rising_times_inside_their_cue(self) -> None:
        cue = Cue(1.0, 2.0, "".join(word.text for word in self.WORDS), self.WORDS)
        *_, text = to_vtt([cue]).rstrip().splitlines()
        assert text == (
            "One <00:00:01.200>&lt;two&gt;<00:00:01.400>-\ufffdthree &amp;four five six"
        )
        plain = to_vtt([Cue(1.0, 2.0, cue.text)]).rstrip().splitlines()[-1]
        assert re.sub(r"<[\d:.]+>", "", text) == plain

    def test_srt_underlines_one_word_after_the_other(self) -> None:
        text = "".join(word.text for word in self.WORDS)
        made = to_srt([Cue(1.0, 2.0, text, self.WORDS), Cue(3.0, 4.0, " no words here")])
        cues = [cue.splitlines() for cue in made.strip().split("\n\n")]
        assert [cue[0] for cue in cues] == ["1", "2", "3", "4"]
        times = [time for cue in cues for time in cue[1].split(" --> ")]
        assert times == sorted(times), "cues follow each other"
        assert times[:6] == [
            *("00:00:01,000", "00:00:01,200", "00:00:01,200"),
            *("00:00:01,400", "00:00:01,400", "00:00:02,000"),
        ]
        plain = to_srt([Cue(1.0, 2.0, text)]).splitlines()[2]
        shown = [cue[2] for cue in cues[:3]]
        assert [re.sub("</?u>", "", line) for line in shown] == [plain] * 3
        assert [re.findall("<u>(.*)</u>", line) for line in shown] == [["One"], ["<two>"], ["five"]]

    def test_srt_numbers_and_arrows(self) -> None:
        srt = to_srt(self.CUES)
        assert srt.count("-->") == 2
        assert srt.startswith("1\n00:00:00,000 --> 00:00:01,000\n")
        assert "\n\n2\n00:00:02,000" in srt
        assert to_srt([Cue(0, 1, "---->")]).count("-->") == 1

    def test_nothing_said(self) -> None:
        assert to_vtt([]) == "WEBVTT\n\n"
        assert to_srt([]) == ""

    def test_hours_and_rounding(self) -> None:
        assert "01:01:01,500 --> 02:00:00,000" in to_srt([Cue(3661.4999, 7199.9999, "x")])


class TestWriting:
    def test_whole_or_not_at_all(self, tmp_path: Path) -> None:
        path = tmp_path / "new" / "out.txt"
        write_atomic(path, "first\n")
        with pytest.raises(UnicodeEncodeError):
            write_atomic(path, "second \ud800")
        assert path.read_text() == "first\n"
        assert [file.name for file in path.parent.iterdir()] == ["out.txt"]

    def test_default_mode_and_links(self, tmp_path: Path) -> None:
        plain, real, link = (tmp_path / name for name in ("plain", "real", "link"))
        plain.touch()
        real.touch()
        link.symlink_to(real)
        write_atomic(link, "text")
        assert link.is_symlink()
        assert real.read_text() == "text"
        assert real.stat().st_mode == plain.stat().st_mode

    def test_devices_are_written_to(self) -> None:
        write_atomic(Path("/dev/null"), "text")
        assert not Path("/dev/null").is_file()

    def test_a_name_as_long_as_names_may_be(self, tmp_path: Path) -> None:
        path = tmp_path / ("話" * 83 + ".txt")
        write_atomic(path, "text")
        assert path.read_text() == "text"

    def test_places_that_cannot_be_written(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        for path in (tmp_path, tmp_path / "file" / "below"):
            with pytest.raises(InputError, match="that can't be written"):
                write_atomic(path, "x")

    def test_names_never_collide(self) -> None:
        inputs = [Path("a/x.wav"), Path("b/x.wav"), Path("x.wav.wav"), Path("y.flac")]
        names = output_names(inputs, "txt")
        assert names == ["x.wav.txt", "x.wav-2.txt", "x.wav-3.txt", "y.txt"]


class TestHypotheses:
    INPUTS = (Path("d/a.wav"), Path("b.wav"))

    def test_lines(self, tmp_path: Path) -> None:
        file = tmp_path / "h.txt"
        file.write_text("\ufeff one \n\n", encoding="utf-8")
        assert read_hypotheses(file, self.INPUTS) == ["one", None]

    def test_another_number_of_lines(self, tmp_path: Path) -> None:
        file = tmp_path / "h.txt"
        file.write_text("one\ntwo\nthree\n")
        with pytest.raises(InputError, match="found 3 lines, expected 2"):
            read_hypotheses(file, self.INPUTS)

    def test_a_table_by_name(self, tmp_path: Path) -> None:
        file = tmp_path / "h.tsv"
        file.write_text("file\ttask\ttext\nb.wav\tread\tone\\ntwo\nelse.wav\tread\tthree\n")
        found = read_hypotheses(file, [Path("x/a.wav"), Path("y/b.wav")])
        assert found == [None, "one\ntwo"]

    @pytest.mark.parametrize("table", ["file\tsaid\na\tb\n", "file\ttext\na\n"])
    def test_a_table_without_its_columns(self, table: str, tmp_path: Path) -> None:
        file = tmp_path / "h.tsv"
        file.write_text(table)
        with pytest.raises(InputError, match="expected the columns file and text"):
            read_hypotheses(file, self.INPUTS)

    def test_an_earlier_run_by_path_name_and_order(self, tmp_path: Path) -> None:
        file = tmp_path / "h.json"
        entries = [
            {"path": "b.wav", "text": " b ", "ids": [3, 4]},
            {"path": "elsewhere/a.wav", "text": "a", "ids": [1, 2]},
        ]
        file.write_text(to_json({"target": "t"}, entries))
        assert read_hypotheses(file, self.INPUTS, "other") == ["a", "b"]
        assert read_hypotheses(file, self.INPUTS, "t") == [(1, 2), (3, 4)]
        renamed = (Path("p.wav"), Path("q.wav"))
        assert read_hypotheses(file, renamed) == ["b", "a"]
        assert read_hypotheses(file, (*renamed, Path("r.wav"))) == [None, None, None]

    def test_a_file_that_failed_then(self, tmp_path: Path) -> None:
        file = tmp_path / "h.json"
        file.write_text(to_json({}, [{"path": "b.wav", "error": "b.wav: found nothing"}]))
        assert read_hypotheses(file, [Path("b.wav")]) == [None]

    @pytest.mark.parametrize("content", ['{"a": 1}', "{", '{"files": [3], "settings": {}}'])
    def test_other_json(self, tmp_path: Path, content: str) -> None:
        file = tmp_path / "h.json"
        file.write_text(content)
        with pytest.raises(InputError, match="JSON of another kind"):
            read_hypotheses(file, self.INPUTS)

    def test_unreadable(self, tmp_path: Path) -> None:
        binary = tmp_path / "h.bin"
        binary.write_bytes(b"\xff\xfe\x00")
        for file in (tmp_path, tmp_path / "none.txt", binary):
            with pytest.raises(InputError, match=r"hypothesis file .*: found nothing readable"):
                read_hypotheses(file, self.INPUTS)
