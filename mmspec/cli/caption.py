"""`mmspec caption`."""

from __future__ import annotations

from mmspec.cli import options as o
from mmspec.cli.settings import LOOK_FORMATS, OutputSettings, peers_of
from mmspec.errors import OptionError
from mmspec.tasks.settings import LookingSettings


def caption(
    images: o.Images,
    target: o.LookTarget,
    draft: o.LookDraft = "none",
    trust_remote_code: o.TrustRemoteCode = False,
    prompt: o.LookPrompt = None,
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
    """Say what is on images, one line each.

    The text is exactly what the target would have written without a drafter;
    a drafter only decides how soon it comes. An image that can't be used costs
    one line on standard error, an empty line here, and exit code 2 at the end.

    \b
    With nothing downloaded:
      mmspec caption *.png -t sample -d sample
    A question instead:
      mmspec caption photo.jpg -t DIR -d ngram --prompt "How many people?"
    """
    from mmspec.cli.looking import CaptionRun

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
    if draft.partition(":")[0] == "hypothesis" and models.hypothesis_file is None:
        raise OptionError(f"--draft: found {draft!r}, expected hypothesis:FILE")
    peers = peers_of(compare, batch)
    request = {
        "task": "caption",
        "prompt": prompt,
        "temperature": temperature,
        "seed": seed,
        "max_new_tokens": max_new_tokens,
        "grounding": grounding,
    }
    return CaptionRun(images, models, wanted, request, peers, verbose, batch).go()
