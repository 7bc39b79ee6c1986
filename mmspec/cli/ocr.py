"""`mmspec ocr`."""

from __future__ import annotations

from typing import Annotated

import typer

from mmspec.cli import options as o
from mmspec.cli.settings import LOOK_FORMATS, OutputSettings, peers_of
from mmspec.errors import OptionError
from mmspec.tasks.settings import LookingSettings


def ocr(
    documents: o.Documents,
    target: o.LookTarget,
    draft: o.LookDraft = "none",
    trust_remote_code: o.TrustRemoteCode = False,
    reading: Annotated[
        str,
        typer.Option(
            "--reading",
            metavar="READER",
            help="With --draft hypothesis, whose reading drafts: tesseract, pdf (the text layer), "
            "none, a file, or auto: the text layer where there is one, else Tesseract.",
            rich_help_panel=o.MODELS,
        ),
    ] = "auto",
    prompt: o.LookPrompt = None,
    dpi: Annotated[
        float,
        typer.Option(
            "--dpi",
            min=1.0,
            metavar="N",
            help="Pixels per inch that a PDF's pages are rendered at.",
            rich_help_panel=o.DECODING,
        ),
    ] = 200,
    password: Annotated[
        str | None,
        typer.Option(
            "--password",
            metavar="TEXT",
            help="Of encrypted PDFs.",
            rich_help_panel=o.DECODING,
            show_default=False,
        ),
    ] = None,
    temperature: o.Temperature = 0.0,
    seed: o.Seed = None,
    max_new_tokens: o.MaxNewTokens = None,
    grounding: o.LookGrounding = None,
    gamma: o.Gamma = "adaptive",
    format_: o.LookFormat = "txt",
    output_dir: o.OutputDir = None,
    json: o.Json = None,
    report: o.ReportPage = None,
    compare: o.Compare = "",
    table: o.Table = None,
    quiet: o.Quiet = False,
    verbose: o.Verbose = False,
    batch: o.Batch = 1,
    threads: o.Threads = None,
    device: o.Device = None,
    dtype: o.Dtype = None,
    packed: o.Packed = True,
) -> int:
    """Read what is written on images and documents, page by page.

    The text is exactly what the target would have written without a drafter.
    Pages are set apart by a form feed. A page that can't be used costs one line
    on standard error, an empty page here, and exit code 2 at the end.

    \b
    With nothing downloaded:
      mmspec ocr *.png -t sample -d sample
    What another reader found as the draft:
      mmspec ocr scan.pdf -t DIR -d hypothesis --reading tesseract
    """
    from mmspec.cli.looking import ReadRun

    models = LookingSettings(
        target, draft, gamma, device, dtype, packed, threads, trust_remote_code
    )
    wanted = OutputSettings(
        format_,
        output_dir,
        json,
        quiet=quiet,
        table=table,
        report=report,
        formats=LOOK_FORMATS,
    )
    if models.hypothesis_file is not None:
        raise OptionError(
            f"--draft: found {draft!r}, expected hypothesis, and the file behind --reading"
        )
    if reading != "auto" and "hypothesis" not in draft.split("+"):
        raise OptionError(f"--reading {reading}: only --draft hypothesis drafts with a reading")
    peers = peers_of(compare, batch)
    request = {
        "task": "read",
        "prompt": prompt,
        "temperature": temperature,
        "seed": seed,
        "max_new_tokens": max_new_tokens,
        "grounding": grounding,
    }
    run = ReadRun(
        documents,
        models,
        wanted,
        request,
        peers,
        verbose,
        batch,
        reading=reading,
        dpi=dpi,
        password=password,
    )
    return run.go()
