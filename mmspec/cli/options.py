"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

MODELS, DECODING, OUTPUT, MACHINE = "Models", "Decoding", "Output", "Machine"
LIVE = "Live"

MOST_THREADS = 1024
"""OpenMP ends the process where the system gives it no more threads."""

Files = Annotated[
    list[Path],
    typer.Argument(
        metavar="FILE...",
        help="Recordings: wav, flac, ogg, mp3, m4a, any rate.",
        show_default=False,
    ),
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        "-t",
        metavar="MODEL",
        help="Whose output it is: a directory, a hub id, or [bold]sample[/bold] (comes with "
        "mmspec). Without it a small checkpoint is taken from the hub.",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
Draft = Annotated[
    str,
    typer.Option(
        "--draft",
        "-d",
        metavar="DRAFT",
        help="Who proposes: [bold]none[/bold], [bold]ngram[/bold] (repetitions), "
        "[bold]hypothesis:FILE[/bold] (a transcript that is nearly right: a line per recording, "
        "or the JSON of an earlier run), [bold]overlap[/bold] (what the chunk before said, with "
        "--chunks), [bold]early-exit:N[/bold] (the target's first N layers), "
        "or another model. It decides how fast, never what.",
        rich_help_panel=MODELS,
    ),
]
Images = Annotated[
    list[Path],
    typer.Argument(
        metavar="IMAGE...",
        help="Images: png, jpeg, webp, tiff, gif or bmp, any size.",
        show_default=False,
    ),
]
Documents = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Images, or documents: PDF, TIFF.", show_default=False),
]
LookTarget = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="MODEL",
        help="Whose output it is: a directory, a hub id, or [bold]sample[/bold] (comes with "
        "mmspec).",
        rich_help_panel=MODELS,
        show_default=False,
    ),
]
LookDraft = Annotated[
    str,
    typer.Option(
        "--draft",
        "-d",
        metavar="DRAFT",
        help="Who proposes: [bold]none[/bold], [bold]ngram[/bold] (repetitions), "
        "[bold]hypothesis[/bold] (a text that is nearly right), [bold]early-exit:N[/bold] (the "
        "target's first N layers), another model, [bold]blind:MODEL[/bold] (it isn't shown the "
        "image) or [bold]thin:0.25:MODEL[/bold] (a part of it). Several take turns: a+b. It "
        "decides how fast, never what.",
        rich_help_panel=MODELS,
    ),
]
LookPrompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="TEXT",
        help="What the model is told, or asked, instead of what it was trained with.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
LookGrounding = Annotated[
    float | None,
    typer.Option(
        "--grounding",
        min=0.0,
        metavar="NATS",
        help="Find out which tokens rest on the image: those whose log-probability falls by "
        "more than so much without it; 1 is a good start.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
LookFormat = Annotated[
    str,
    typer.Option("--format", "-f", metavar="txt|json", rich_help_panel=OUTPUT),
]
SpeakTarget = Annotated[
    str,
    typer.Option(
        "--target",
        "-t",
        metavar="MODEL",
        help="Whose voice it is: a directory, a hub id, or [bold]sample[/bold] (comes with "
        "mmspec).",
        rich_help_panel=MODELS,
    ),
]
SpeakDraft = Annotated[
    str,
    typer.Option(
        "--draft",
        "-d",
        metavar="DRAFT",
        help="Who proposes: [bold]none[/bold], [bold]lookup[/bold] (what was said before), "
        "[bold]repeat[/bold] (the last frame once more), [bold]heads:DIR[/bold] (trained on the "
        "target's states) or a smaller model. Several take turns: a+b. It decides how fast, never "
        "what.",
        rich_help_panel=MODELS,
    ),
]
Seconds = Annotated[
    float | None,
    typer.Option(
        "--seconds",
        metavar="S",
        help="How long it may sound; as the model's settings have it where missing.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Guidance = Annotated[
    float | None,
    typer.Option(
        "--guidance",
        min=0.0,
        metavar="X",
        help="Scale of classifier-free guidance, 1 is none; as the model's settings have it where "
        "missing.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
SpeakTemperature = Annotated[
    float | None,
    typer.Option(
        "--temperature",
        min=0.0,
        metavar="X",
        help="0 takes the likeliest codes, above 0 samples; as the model's settings have it where "
        "missing.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
SpeakGrounding = Annotated[
    float | None,
    typer.Option(
        "--grounding",
        min=0.0,
        metavar="NATS",
        help="Find out which frames rest on the text: those whose log-probability falls by more "
        "than so much without it; 1 is a good start.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Approximate = Annotated[
    float | None,
    typer.Option(
        "--approximate",
        min=0.0,
        max=1.0,
        metavar="COSINE",
        help="[bold]No longer exact[/bold]: codes whose embeddings are this alike may stand for "
        "each other. The report says how far that led from the target.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Budget = Annotated[
    float | None,
    typer.Option(
        "--budget",
        min=0.0,
        metavar="X",
        help="With --approximate: how far from the target's law a text may lead at most, in total "
        "variation.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
SpeakSteps = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens",
        min=1,
        metavar="N",
        help="As --seconds, in steps of the model.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
TrustRemoteCode = Annotated[
    bool,
    typer.Option(
        "--trust-remote-code", help="Let a checkpoint run its own code.", rich_help_panel=MODELS
    ),
]
Language = Annotated[
    str | None,
    typer.Option(
        "--language",
        "-l",
        metavar="L",
        help="What is spoken: en, english, ...; detected where missing.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Task = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="T",
        help="transcribe, or translate (into English).",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Timestamps = Annotated[
    bool | None,
    typer.Option(
        "--timestamps/--no-timestamps",
        help="Predict when it was said; srt and vtt do, and recordings beyond one window.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Prompt = Annotated[
    str | None,
    typer.Option(
        "--prompt",
        metavar="TEXT",
        help="Text that came before, for names and style.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
MaxNewTokens = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens",
        min=1,
        metavar="N",
        help="Emit at most so many tokens (per window).",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
CarryText = Annotated[
    bool | None,
    typer.Option(
        "--carry-text/--no-carry-text",
        help="Beyond one window: condition each one on the text before it. Steadier names and "
        "style; a loop may go on.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Fallback = Annotated[
    bool,
    typer.Option(
        "--fallback",
        help="Where a window's text loops or is unlikely, decode it again, warmer each time; "
        "skip silent windows.",
        rich_help_panel=DECODING,
    ),
]
NoSpeech = Annotated[
    float | None,
    typer.Option(
        "--no-speech",
        min=0.0,
        max=1.0,
        metavar="P",
        help="Skip a window that is likelier silent than this, if its text is unlikely too; "
        "0.6 with --fallback.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Chunks = Annotated[
    float | None,
    typer.Option(
        "--chunks",
        metavar="SECONDS",
        help="Decode a long recording in chunks, each by itself, and merge their texts.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Overlap = Annotated[
    float | None,
    typer.Option(
        "--overlap",
        metavar="SECONDS",
        help="What a chunk shares with the next one; a sixth of a chunk where missing.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
Temperature = Annotated[
    float,
    typer.Option(
        "--temperature",
        min=0.0,
        metavar="X",
        help="0 takes the likeliest token, above 0 samples.",
        rich_help_panel=DECODING,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Makes sampling repeatable, whatever drafts.",
        rich_help_panel=DECODING,
        show_default=False,
    ),
]
OutputDir = Annotated[
    Path | None,
    typer.Option(
        "--output-dir",
        "-o",
        metavar="DIR",
        help="A file per input there, instead of standard output.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Compare = Annotated[
    str,
    typer.Option(
        "--compare",
        metavar="PEERS",
        help="Decode with these as well, compare ids and time: plain (mmspec without "
        "speculation), hf (transformers), hf-assisted (its own speculation, same drafter).",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Table = Annotated[
    bool | None,
    typer.Option(
        "--table/--no-table",
        help="The report as a table on standard error; by default where someone watches.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Batch = Annotated[
    int,
    typer.Option(
        "--batch",
        min=1,
        metavar="N",
        help="Decode so many recordings side by side, or chunks of one: the same text, less time.",
        rich_help_panel=MACHINE,
    ),
]
Pace = Annotated[
    float | None,
    typer.Option(
        "--pace",
        min=0.0,
        metavar="X",
        help="Pace of a streamed file: 1 is real time; as fast as it is heard where missing or 0.",
        rich_help_panel=LIVE,
        show_default=False,
    ),
]
Step = Annotated[
    float | None,
    typer.Option(
        "--step",
        metavar="S",
        help="Seconds of new audio that a stream is decoded again for; 1 where missing.",
        rich_help_panel=LIVE,
        show_default=False,
    ),
]
Raw = Annotated[
    str | None,
    typer.Option(
        "--raw",
        metavar="s16le|f32le",
        help="Samples on standard input, mono at 16 kHz; s16le where missing.",
        rich_help_panel=LIVE,
        show_default=False,
    ),
]
Gamma = Annotated[
    str,
    typer.Option(
        "--gamma",
        metavar="adaptive|N",
        help="Tokens drafted per round. Adaptive: measured costs decide, down to none.",
        rich_help_panel=DECODING,
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        min=1,
        max=MOST_THREADS,
        metavar="N",
        help="CPU threads.",
        rich_help_panel=MACHINE,
        show_default=False,
    ),
]
Device = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="D",
        help="cpu, cuda, cuda:1, ...; CUDA where there is one.",
        rich_help_panel=MACHINE,
        show_default=False,
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="T",
        help="float32, float16 or bfloat16; float32 on a CPU, float16 on CUDA.",
        rich_help_panel=MACHINE,
        show_default=False,
    ),
]
Packed = Annotated[
    bool,
    typer.Option(
        "--packed/--no-packed",
        help="On a CPU, keep weights in the layout that small blocks want.",
        rich_help_panel=MACHINE,
    ),
]
Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        help="Write everything there: texts, ids, reports, comparisons.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
ReportPage = Annotated[
    Path | None,
    typer.Option(
        "--report",
        metavar="FILE",
        help="Write a page there (HTML): every token and how it was obtained, rounds, times.",
        rich_help_panel=OUTPUT,
        show_default=False,
    ),
]
Quiet = Annotated[
    bool,
    typer.Option(
        "--quiet", "-q", help="No tables and no progress, errors only.", rich_help_panel=OUTPUT
    ),
]
Verbose = Annotated[
    bool,
    typer.Option(
        "--verbose",
        help="Let the libraries say what they have to say.",
        rich_help_panel=OUTPUT,
    ),
]
