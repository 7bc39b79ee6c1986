"""Decoder state: preallocated key/value memory with one length, strict rollback and an owner."""

from mmspec.state.decoder import DecoderState as DecoderState
from mmspec.state.decoder import Mark as Mark
