"""Where transformers' releases differ, in our own words. The only file that asks.

`transformers` 5.24 renamed the decoder's `past_key_values` argument to `cache`; both names are
in use among the releases that mmspec supports.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from transformers import (
    GenerationMixin,
    LogitsProcessorList,
    StoppingCriteriaList,
    modeling_utils,
)
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.utils import logging

CACHE_NAMES = ("cache", "past_key_values")


@functools.cache
def _argument_names(forward: Any) -> frozenset[str]:
    return frozenset(inspect.signature(forward).parameters)


def cache_argument(module_type: type, cache: object) -> dict[str, object]:
    """The keyword under which `module_type.forward` takes its key/value cache, with `cache` in it.

    Raises:
        TypeError: the module takes no cache under any name that we know.
    """
    names = _argument_names(module_type.forward)  # type: ignore[attr-defined]
    for name in CACHE_NAMES:
        if name in names:
            return {name: cache}
    raise TypeError(f"{module_type.__name__}.forward takes no cache: expected one of {CACHE_NAMES}")


def cache_field(output_type: type, cache: object) -> dict[str, object]:
    """The field of what `generate` returns that the key/value cache stands in, with it in there."""
    return {name: cache for name in CACHE_NAMES if name in _argument_names(output_type)}


def takes_argument(module_type: type, name: str) -> bool:
    """Whether `module_type.forward` names an argument, rather than to swallow it among others."""
    return name in _argument_names(module_type.forward)  # type: ignore[attr-defined]


def attends_by_sdpa(module: Any) -> bool:
    """Whether a module attends through torch's fused attention, as the library wrote it."""
    by_name = modeling_utils.ALL_ATTENTION_FUNCTIONS
    return bool(
        module.config._attn_implementation == "sdpa" and by_name["sdpa"] is sdpa_attention_forward
    )


def pop_cache(model_kwargs: dict[str, Any]) -> None:
    """Drop the cache that transformers prepared: mmspec brings its own state."""
    for name in CACHE_NAMES:
        model_kwargs.pop(name, None)


def given_cache(model_kwargs: Mapping[str, Any]) -> Any:
    """The cache among a model's arguments, None where there is none."""
    given = (model_kwargs.get(name) for name in CACHE_NAMES)
    return next((cache for cache in given if cache is not None), None)


def cached_positions(model_kwargs: Mapping[str, Any]) -> int:
    """Positions that an earlier call left in the cache among a model's arguments."""
    cache = given_cache(model_kwargs)
    return 0 if cache is None else int(cache.get_seq_length())


def kept_cache(model_kwargs: Mapping[str, Any], config: Any) -> Cache | None:
    """The cache that outlives a call, which has to be filled; None where nobody would see it.

    It is the caller's own, or the one that `generate` has prepared and returns.

    Args:
        model_kwargs: a model's arguments, as `generate` has prepared them.
        config: its prepared generation config.
    """
    cache = given_cache(model_kwargs)
    if cache is None or not (
        config.return_dict_in_generate or getattr(cache, "_is_user_defined", False)
    ):
        return None
    # A text decoder that is no encoder-decoder by its configuration makes the second half itself.
    crossing = model_kwargs.get("encoder_hidden_states") is not None
    if crossing and not isinstance(cache, EncoderDecoderCache):
        return EncoderDecoderCache(cache, DynamicCache())
    return cache


def streamer_of_generate() -> Any:
    """The streamer that the running `generate` was given; None where there is none.

    `generate` gives it the prompt and then drops it where a loop is brought along, so it is looked
    up in the call that the loop was called from.
    """
    code = inspect.unwrap(GenerationMixin.generate).__code__
    frame = inspect.currentframe()
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return None if frame is None else frame.f_locals["streamer"]


def pad_token(config: Any) -> int:
    """What a prepared generation config puts behind rows that have ended; 0 where it says nothing.

    `generate` takes the first end for it where none is configured.
    """
    pad = config._pad_token_tensor
    return 0 if pad is None else int(pad)


def prepared_config(model: Any, config: Any, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The generation config that `model.generate(generation_config=config, **options)` would use.

    Returns:
        (a config of our own, options that are no generation options).
    """
    return model._prepare_generation_config(config, **options)


def prepared_processors(
    model: Any, config: Any, prompt_length: int, custom: list[Any], features: Any
) -> Any:
    """The logits processors that `generate` would build from `config`, with `custom` among them."""
    model._prepare_special_tokens(config, device=model.device, batch_size=1)
    return model._get_logits_processor(
        generation_config=config,
        input_ids_seq_length=prompt_length,
        encoder_input_ids=features,
        prefix_allowed_tokens_fn=None,
        logits_processor=LogitsProcessorList(custom),
        device=model.device,
        model_kwargs={},
    )


def prepared_criteria(model: Any, config: Any, criteria: Any, tokenizer: Any) -> Any:
    """The stopping criteria that `generate` would build, with `criteria` among them."""
    criteria = StoppingCriteriaList(criteria or [])
    return model._get_stopping_criteria(
        generation_config=config, stopping_criteria=criteria, tokenizer=tokenizer
    )


def words_of_tokens(
    tokenizer: Any, tokens: list[int], language: str
) -> list[tuple[str, list[int]]]:
    """Text tokens grouped to words as transformers and Whisper's reference implementation do.

    Args:
        tokenizer: Whisper's.
        tokens: text tokens only.
        language: a name ("english"); some write without spaces.

    Returns:
        (text, indices of its tokens) by word.
    """
    from transformers.models.whisper.tokenization_whisper import _combine_tokens_into_words

    texts, _, indices = _combine_tokens_into_words(tokenizer, tokens, language)
    return list(zip(texts, indices, strict=True))


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers from talking; what it said before is as it was afterwards."""
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(level)
