"""Codecs: a grid of codes becomes a waveform, a waveform a grid, by models of others.

A codec believes every integer. So its grid is checked before it, and whether its codebooks are
those of the language model is asked before anything is generated.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from mmspec.errors import InputError, ModelError, OptionError
from mmspec.factorizations import CodeSteps
from mmspec.modalities.base.decoder import check_inference_mode
from mmspec.modalities.media.audio import load_audio
from mmspec.modalities.speech.codec_stages import Chain, Pointwise, Remembering, Stage, stage_of
from mmspec.modalities.speech.codec_stream import StreamingDecoder
from mmspec.modalities.speech.grids import checked_codes


class Codec(ABC):
    """Sound from codes and codes from sound, one item at a time.

    Several items padded to one length would hear their padding: codec encoders know no mask.

    Attributes:
        model: the codec's own.
        codebook_sizes: how many codes each codebook has, as its tables say, not its config.
        sample_rate_hz: of the sound.
        frame_samples: samples that one frame stands for.
        channels: of the sound.
    """

    def __init__(self, model: Any, codebooks: int | None, signals: int) -> None:
        self.model, self._signals = model, signals
        self._check_mode()
        tables = self._tables()
        wanted = len(tables) if codebooks is None else codebooks
        if not 1 <= wanted <= len(tables):
            raise ModelError(f"{wanted} codebooks are wanted, the {self} has {len(tables)}")
        self._own = wanted
        self.codebook_sizes = tuple(size for size in tables[:wanted] for _ in range(signals))
        self.sample_rate_hz, self.frame_samples, channels = self._rates()
        self.channels = signals * channels

    def __str__(self) -> str:
        return f"codec ({type(self.model).__name__})"

    @property
    def frame_rate_hz(self) -> float:
        """Frames per second."""
        return self.sample_rate_hz / self.frame_samples

    def check(
        self, steps: CodeSteps, sample_rate_hz: int | None = None, channels: int | None = None
    ) -> None:
        """Return quietly where a language model writes this codec's codes.

        Args:
            steps: the model's descriptor (of staged codes, the acoustic part).
            sample_rate_hz: of the sound that the model was made for, where its config says it.
            channels: likewise.

        Raises:
            ModelError: they disagree; says what each of them has.
        """
        sizes = tuple(codebook.codes for codebook in steps.codebooks)
        if len(sizes) != len(self.codebook_sizes):
            own = len(self.codebook_sizes)
            raise ModelError(f"the model writes {len(sizes)} codebooks, the {self} has {own}")
        for index, (size, own) in enumerate(zip(sizes, self.codebook_sizes, strict=True)):
            if size != own:
                raise ModelError(
                    f"codebook {index}: the model writes {size} codes, the {self} has {own}"
                )
        for wanted, own, what in (
            (sample_rate_hz, self.sample_rate_hz, "Hz of the sound"),
            (channels, self.channels, "channels"),
        ):
            if wanted is not None and wanted != own:
                raise ModelError(f"{what}: {wanted} for the model, {own} for the {self}")

    def decode(self, grid: Any, samples: int | None = None) -> np.ndarray:
        """The waveform of a grid of codes.

        Args:
            grid: codes, frames × codebooks.
            samples: how many there were before they were encoded. What is behind them is left out;
                what a decoder with odd strides lacks at the end (some DACs do) is silence.

        Returns:
            float32 `[n]`, or `[channels, n]` if there are several.

        Raises:
            InputError: a cell that holds no code; said before the codec sees any of it.
            ModelError: the codec is in training mode.
            OptionError: `samples` are not as many as these frames stand for.
        """
        codes = checked_codes(grid, self.codebook_sizes)
        self._check_mode()
        if samples is not None and -(-samples // self.frame_samples) != len(codes):
            raise OptionError(
                f"{samples} samples are not {len(codes)} frames of {self.frame_samples} samples"
            )
        if not len(codes):
            return self._joined([self._nothing] * self._signals)
        with torch.no_grad():
            wave = self._joined([self._wave(signal) for signal in self._apart(codes)])
        if samples is None:
            return wave
        missing = max(0, samples - wave.shape[-1])
        return np.pad(wave, [(0, 0)] * (wave.ndim - 1) + [(0, missing)])[..., :samples]

    def stream(self) -> StreamingDecoder:
        """A decoder that takes frames as they are committed and gives samples as they are certain.

        Raises:
            ModelError: the codec is in training mode, or has a layer that needs all of time.
        """
        self._check_mode()
        return StreamingDecoder(
            lambda grid, first: self._apart(checked_codes(grid, self.codebook_sizes, first)),
            [self._stage() for _ in range(self._signals)],
            self._joined,
            self._nothing,
        )

    def encode(self, samples: np.ndarray | Tensor) -> np.ndarray:
        """The codes of a waveform; a last frame that it doesn't fill is filled with silence.

        Args:
            samples: `[n]`, or `[channels, n]` if there are several, at the codec's rate
                (`load_audio` resamples). None at all have no frame.

        Returns:
            int64 `[frames, codebooks]`, as many frames as `n` samples begin.

        Raises:
            InputError: another number of channels, or samples that aren't finite.
            ModelError: the codec is in training mode.
        """
        wave = self._checked_wave(samples)
        self._check_mode()
        count = wave.shape[-1]
        if not count:
            return np.empty((0, len(self.codebook_sizes)), np.int64)
        frames = -(-count // self.frame_samples)
        grid = np.empty((frames, len(self.codebook_sizes)), np.int64)
        with torch.no_grad():
            for signal, part in enumerate(wave.chunk(self._signals)):
                codes = self._codes(part[None], frames * self.frame_samples - count)
                grid[:, signal :: self._signals] = codes[: self._own].T.cpu().numpy()
        return grid

    def encode_file(self, path: str | Path) -> np.ndarray:
        """The codes of a recording: mixed down, resampled, encoded.

        Raises:
            InputError: it can't be read, or the codec hears several channels.
        """
        return self.encode(load_audio(path, target_rate=self.sample_rate_hz))

    @property
    def _nothing(self) -> Tensor:
        """No samples of one signal."""
        return torch.empty(self.channels // self._signals, 0)

    def _checked_wave(self, samples: np.ndarray | Tensor) -> Tensor:
        """`[channels, n]`, where the model is."""
        wave = torch.as_tensor(samples)
        wave = wave[None] if wave.ndim == 1 else wave
        if wave.ndim != 2 or len(wave) != self.channels:
            shape = "x".join(map(str, wave.shape))
            wanted = "mono samples [n]" if self.channels == 1 else f"[{self.channels}, n]"
            raise InputError(f"samples of shape {shape}, the {self} hears {wanted}")
        if not wave.is_floating_point():
            raise InputError(f"samples of {wave.dtype}, the {self} hears floats from -1 to 1")
        if not wave.isfinite().all():
            raise InputError(f"NaN or infinite samples, the {self} hears finite ones")
        weight = next(self.model.parameters())
        return wave.to(weight.device, weight.dtype)

    def _apart(self, codes: np.ndarray) -> list[Tensor]:
        """`[codebooks, frames]` of each signal, where the model is."""
        device = next(self.model.parameters()).device
        found = torch.from_numpy(np.ascontiguousarray(codes.T)).to(device)
        return [found[signal :: self._signals] for signal in range(self._signals)]

    def _joined(self, waves: Sequence[Tensor]) -> np.ndarray:
        """One array of the `[channels, n]` of each signal."""
        wave = torch.cat(list(waves)).float().cpu().numpy()
        return wave[0] if self.channels == 1 else wave

    def _check_mode(self) -> None:
        for part in self.model.modules():  # a quantizer in training mode takes all its codebooks
            check_inference_mode(part, str(self))

    @abstractmethod
    def _tables(self) -> tuple[int, ...]:
        """The size of every codebook of the model."""

    @abstractmethod
    def _rates(self) -> tuple[int, int, int]:
        """Samples per second, samples per frame, channels."""

    @abstractmethod
    def _wave(self, codes: Tensor) -> Tensor:
        """`[channels, n]` of codes `[codebooks, frames]`, by the library's own way."""

    @abstractmethod
    def _stage(self) -> Stage:
        """The same, piece by piece."""

    @abstractmethod
    def _codes(self, wave: Tensor, missing: int) -> Tensor:
        """`[codebooks, frames]` of a waveform `[1, channels, n]`.

        Args:
            wave: of at least one sample.
            missing: how many samples its last frame lacks.
        """


class EncodecCodec(Codec):
    """transformers' EnCodec, as MusicGen and Bark have it."""

    def __init__(self, model: Any, codebooks: int | None, signals: int) -> None:
        config = model.config
        _check_codes_suffice(config.normalize, config.chunk_length_s is not None, model)
        super().__init__(model, codebooks, signals)

    def _tables(self) -> tuple[int, ...]:
        return tuple(len(layer.codebook.embed) for layer in self.model.quantizer.layers)

    def _rates(self) -> tuple[int, int, int]:
        config = self.model.config
        return config.sampling_rate, config.hop_length, config.audio_channels

    def _wave(self, codes: Tensor) -> Tensor:
        return self.model.decode(codes[None, None], [None], return_dict=False)[0][0]

    def _stage(self) -> Stage:
        quantizer = self.model.quantizer
        first = Pointwise(lambda codes: quantizer.decode(codes[:, None]))
        return Chain([first, stage_of(self.model.decoder)])

    def _codes(self, wave: Tensor, missing: int) -> Tensor:
        # all codebooks: no bandwidth, no formula that counts them; each one ignores those behind it
        return self.model.quantizer.encode(self.model.encoder(wave))[:, 0]


class EncodecPackageCodec(EncodecCodec):
    """EnCodec of the `encodec` package."""

    def __init__(self, model: Any, codebooks: int | None, signals: int) -> None:
        _check_codes_suffice(model.normalize, model.segment is not None, model)
        Codec.__init__(self, model, codebooks, signals)

    def _tables(self) -> tuple[int, ...]:
        return tuple(len(layer.codebook) for layer in self.model.quantizer.vq.layers)

    def _rates(self) -> tuple[int, int, int]:
        return self.model.sample_rate, int(self.model.encoder.hop_length), self.model.channels

    def _wave(self, codes: Tensor) -> Tensor:
        return self.model.decode([(codes[None], None)])[0]

    def _codes(self, wave: Tensor, missing: int) -> Tensor:
        frame_rate = self.model.frame_rate
        return self.model.quantizer.encode(self.model.encoder(wave), frame_rate)[:, 0]


class DacCodec(Codec):
    """transformers' DAC, as Dia has it."""

    def _tables(self) -> tuple[int, ...]:
        return tuple(part.codebook.num_embeddings for part in self.model.quantizer.quantizers)

    def _rates(self) -> tuple[int, int, int]:
        return self.model.config.sampling_rate, self.model.config.hop_length, 1

    def _wave(self, codes: Tensor) -> Tensor:
        return self.model.decode(audio_codes=codes[None]).audio_values

    def _stage(self) -> Stage:
        quantizer = self.model.quantizer
        first = Pointwise(lambda codes: quantizer.from_codes(codes[None])[0])
        return Chain([first, stage_of(self.model.decoder)])

    def _codes(self, wave: Tensor, missing: int) -> Tensor:
        # as its feature extractor does: the encoder drops a last frame that isn't full
        wave = nn.functional.pad(wave, (0, missing))
        return self.model.encode(wave).audio_codes[0]


class MimiCodec(Codec):
    """transformers' Mimi, as CSM has it."""

    def _tables(self) -> tuple[int, ...]:
        quantizer = self.model.quantizer
        parts = (
            quantizer.semantic_residual_vector_quantizer,
            quantizer.acoustic_residual_vector_quantizer,
        )
        return tuple(len(layer.codebook.embed_sum) for part in parts for layer in part.layers)

    def _rates(self) -> tuple[int, int, int]:
        config = self.model.config
        upsampling = int(np.prod(config.upsampling_ratios)) * config.latent_stride
        return config.sampling_rate, upsampling, config.audio_channels

    def _wave(self, codes: Tensor) -> Tensor:
        return self.model.decode(codes[None]).audio_values[0]

    def _stage(self) -> Stage:
        model = self.model

        def attend(hidden: Tensor, cache: Any) -> tuple[Tensor, Any]:
            done = model.decoder.decoder_transformer(
                hidden.transpose(1, 2), cache=cache, use_cache=True
            )
            return done.last_hidden_state.transpose(1, 2), done.cache

        return Chain(
            [
                Pointwise(lambda codes: model.quantizer.decode(codes[None])),
                stage_of(model.decoder.upsample),
                Remembering(attend),
                stage_of(model.decoder.decoder_seanet),
            ]
        )

    def _codes(self, wave: Tensor, missing: int) -> Tensor:
        return self.model.encode(wave).audio_codes[0]


CODECS: dict[str, type[Codec]] = {
    "encodec": EncodecCodec,
    "dac": DacCodec,
    "mimi": MimiCodec,
    "encodec.model": EncodecPackageCodec,
}
"""By transformers' model type, or by the module of another library."""


def open_codec(model: Any, codebooks: int | None = None, signals: int = 1) -> Codec:
    """A codec for a model that turns codes into sound.

    Args:
        model: transformers' EnCodec, DAC or Mimi, or `EncodecModel` of the `encodec` package; in
            inference mode. It isn't written to.
        codebooks: how many of its codebooks are in use, from the first; None: all of them. Bark
            writes 8 of 32.
        signals: for how many signals codes are written, codebook by codebook in turn: 2 for a
            stereo MusicGen, whose codec is mono.

    Raises:
        ModelError: no codec that is known, in training mode, without so many codebooks, or one
            whose codes alone don't say how it sounds.
        OptionError: there must be a signal.
    """
    if signals < 1:
        raise OptionError(f"signals must be at least 1, got {signals}")
    config = getattr(model, "config", None)
    kind = getattr(config, "model_type", None) or type(model).__module__
    if kind not in CODECS:
        known = "EnCodec, DAC and Mimi of transformers, EncodecModel of encodec"
        raise ModelError(f"{type(model).__name__} ({kind}) is no codec that mmspec knows: {known}")
    return CODECS[kind](model, codebooks, signals)


def _check_codes_suffice(scales: bool, cuts: bool, model: Any) -> None:
    if scales or cuts:
        how = "scales its input to one loudness" if scales else "cuts its input into chunks"
        raise ModelError(
            f"the codec ({type(model).__name__}) {how}: its codes alone don't say how it sounds"
        )
