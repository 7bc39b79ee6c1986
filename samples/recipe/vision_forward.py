"""The model's own layers over a whole batch of images of one size, and what training looks at.

transformers runs the vision tower image by image; here one matrix holds the batch. Shapes: B
images, N patches (one visual token each), T text positions, P = N + 5 tokens before the text.
"""

import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import Qwen2VLForConditionalGeneration
from transformers.models.qwen2_vl.modeling_qwen2_vl import (
    apply_rotary_pos_emb,
    apply_rotary_pos_emb_vision,
)
from vision_batches import END as END_CLASS
from vision_batches import IGNORED, Batch
from vision_checkpoint import ASSISTANT, END, PAD, USER, VISION_END, VISION_START, build_tokenizer
from vision_images import MEAN, PATCH, SPREAD
from vision_text import INSTRUCTIONS

_tokenizer = build_tokenizer()
_ID = _tokenizer.convert_tokens_to_ids
_BEFORE_IMAGE = [_ID(USER), _ID(VISION_START)]
_INSTRUCTION_IDS = torch.tensor([_ID(text) for text in INSTRUCTIONS])


def patches(images: Tensor) -> Tensor:
    """Bytes [B, H, W, 3] as normalized patches [B, N, 3 * PATCH * PATCH]."""
    size, height, width, _ = images.shape
    pixels = (images.float() / 255 - MEAN) / SPREAD
    grid = pixels.view(size, height // PATCH, PATCH, width // PATCH, PATCH, 3)
    return grid.permute(0, 1, 3, 5, 2, 4).reshape(size, -1, 3 * PATCH * PATCH)


def _grid(images: Tensor) -> Tensor:
    """Row and column [N, 2] of each patch."""
    rows, columns = (torch.arange(side // PATCH) for side in images.shape[1:3])
    return torch.cartesian_prod(rows, columns)


def see(model: Qwen2VLForConditionalGeneration, images: Tensor) -> Tensor:
    """Visual tokens [B, N, width of the decoder]."""
    tower = model.model.visual
    # The processor gives every frame twice; the kernel's two halves may as well be added.
    kernel = tower.patch_embed.proj.weight.sum(2).flatten(1)
    states = F.linear(patches(images), kernel)
    cos, sin = tower.rotary_pos_emb(states, _grid(images))
    for block in tower.blocks:
        attention, normed = block.attn, block.norm1(states)
        query, key, value = (
            attention.qkv(normed).unflatten(-1, (3, attention.num_heads, -1)).unbind(2)
        )
        query, key = apply_rotary_pos_emb_vision(query, key, cos, sin)
        heads = (x.transpose(1, 2) for x in (query, key, value))
        seen = F.scaled_dot_product_attention(*heads)
        states = states + attention.proj(seen.transpose(1, 2).flatten(2))
        states = states + block.mlp(block.norm2(states))
    return tower.merger.mlp(tower.merger.ln_q(states))


def text_ids(batch: Batch) -> Tensor:
    """Token ids [B, T] of the text and its end, `IGNORED` after it."""
    return torch.where(batch.text == END_CLASS, _ID(END), batch.text)


def positions(images: Tensor, text_len: int) -> Tensor:
    """M-RoPE positions [3, P + T]: the image's rows and columns count beside each other."""
    grid = _grid(images).T + 2
    image = torch.cat([torch.full_like(grid[:1], 2), grid])
    after = 2 + max(images.shape[1:3]) // PATCH + torch.arange(3 + text_len)
    return torch.cat([torch.arange(2).expand(3, -1), image, after.expand(3, -1)], 1)


class Reader:
    """Runs a model over batches and catches what one head of some layers looks at."""

    def __init__(
        self, model: Qwen2VLForConditionalGeneration, guided_layers: tuple[int, ...]
    ) -> None:
        """Listens at the attention of `guided_layers`."""
        self.model = model
        self._inputs: dict[int, dict[str, Tensor]] = {}
        for layer in guided_layers:
            model.model.language_model.layers[layer].self_attn.register_forward_pre_hook(
                lambda _, args, kwargs, layer=layer: self._inputs.update({layer: kwargs}),
                with_kwargs=True,
            )

    def read(self, batch: Batch, visual: Tensor) -> Tensor:
        """Teacher-forced logits [B, T, vocabulary], given visual tokens [B, N, width]."""
        decoder = self.model.model.language_model
        size = len(batch.text)
        text = text_ids(batch)[:, :-1]
        text = torch.where(text == IGNORED, _ID(PAD), text)
        before = torch.tensor(_BEFORE_IMAGE).expand(size, -1)
        after = torch.stack(
            [
                torch.full((size,), _ID(VISION_END)),
                _INSTRUCTION_IDS[batch.instructions],
                torch.full((size,), _ID(ASSISTANT)),
            ],
            1,
        )
        embed = decoder.embed_tokens
        rest = embed(torch.cat([after, text], 1))
        sequence = torch.cat([embed(before), visual.to(rest.dtype), rest], 1)
        places = positions(batch.images, text.shape[1])[:, None].expand(-1, size, -1)
        hidden = decoder(inputs_embeds=sequence, position_ids=places, use_cache=False)
        # The last prompt token decides the first character.
        deciding = hidden.last_hidden_state[:, -batch.text.shape[1] :]
        return self.model.lm_head(deciding).float()

    def looking(self, batch: Batch) -> Tensor:
        """Mean -log of the attention on the patches where the next character is to be seen."""
        wanted = batch.cover.any(-1)
        losses = []
        for layer, given in self._inputs.items():
            attention = self.model.model.language_model.layers[layer].self_attn
            states, (cos, sin) = given["hidden_states"], given["position_embeddings"]
            steps, width = batch.text.shape[1], attention.head_dim
            query = F.linear(
                states[:, -steps:], attention.q_proj.weight[:width], attention.q_proj.bias[:width]
            )
            key = F.linear(states, attention.k_proj.weight[:width], attention.k_proj.bias[:width])
            query, key = query[:, None], key[:, None]
            query, _ = apply_rotary_pos_emb(query, query, cos[:, -steps:], sin[:, -steps:])
            key, _ = apply_rotary_pos_emb(key, key, cos, sin)
            scores = (query @ key.mT)[:, 0].float() * attention.scaling
            length = scores.shape[-1]
            future = torch.ones(steps, length, dtype=torch.bool).triu(length - steps + 1)
            scores = scores.masked_fill(future, float("-inf"))
            image = scores[:, :, 2 : 2 + batch.cover.shape[-1]]
            there = image.masked_fill(~batch.cover, float("-inf"))[wanted].logsumexp(-1)
            losses.append((scores[wanted].logsumexp(-1) - there).mean())
        return torch.stack(losses).mean()


def hits(logits: Tensor, batch: Batch) -> float:
    """Share of the text positions whose likeliest token is the right one."""
    wanted = text_ids(batch)
    decided = wanted != IGNORED
    return (logits.argmax(-1) == wanted)[decided].float().mean().item()
