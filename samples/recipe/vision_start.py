"""Where attention looks before training: at neighbours.

A head finds a neighbour only after many steps; until then the tower can't put the parts of a letter
together, nor the decoder the letters of a word. Here the biases of queries and keys say it: under
rotary positions, two constant vectors turned against each other score highest at one offset.
"""

import torch
from torch import Tensor, nn
from transformers import Qwen2VLForConditionalGeneration

# Rows and columns from a patch to the one its head looks at; a head beyond these is left alone.
_TOWER_OFFSETS = (
    ((0, -1), (0, 1), (-1, 0), (1, 0)),
    ((0, -1), (0, 1), (-1, 0), (1, 0)),
    ((0, -2), (0, 2), (0, -1)),
    (),
    ((0, -1), (0, -2), (0, -3), (0, 1)),  # by now letters are known: which ones come before?
)
_DECODER_OFFSETS = (-1, -2, -3)  # positions, first layer
_TOWER_STRENGTH, _DECODER_STRENGTH = 8.0, 4.0
_CONTENT_SCALE = 0.3  # of the query and key weights, whose scores would drown the place's


@torch.no_grad()
def look_at_neighbours(model: Qwen2VLForConditionalGeneration) -> None:
    """Sets the attention biases of the first layers of a fresh model."""
    tower, decoder = model.model.visual, model.model.language_model
    frequencies = tower.rotary_pos_emb.inv_freq
    for block, offsets in zip(tower.blocks, _TOWER_OFFSETS, strict=False):
        attention = block.attn
        query, key, _ = attention.qkv.bias.chunk(3)
        weights = attention.qkv.weight.chunk(3)
        for head, (rows, columns) in enumerate(offsets[: attention.num_heads]):
            turn = torch.cat([frequencies * rows, frequencies * columns])
            _tie(query, weights[0], head, attention.head_dim, _TOWER_STRENGTH, turn)
            _tie(key, weights[1], head, attention.head_dim, _TOWER_STRENGTH, 0 * turn)
    attention = decoder.layers[0].self_attn
    frequencies = decoder.rotary_emb.inv_freq
    projections: tuple[nn.Linear, nn.Linear] = attention.q_proj, attention.k_proj
    for head, offset in enumerate(_DECODER_OFFSETS):
        bias, weight = projections[0].bias, projections[0].weight
        _tie(bias, weight, head, attention.head_dim, _DECODER_STRENGTH, frequencies * offset)
    for head in range(attention.num_key_value_heads):
        bias, weight = projections[1].bias, projections[1].weight
        _tie(bias, weight, head, attention.head_dim, _DECODER_STRENGTH, 0 * frequencies)


def _tie(
    bias: Tensor, weight: Tensor, head: int, width: int, strength: float, turn: Tensor
) -> None:
    """Makes a head's query or key mostly a constant vector, turned by `turn` [width / 2]."""
    rows = slice(head * width, (head + 1) * width)
    bias[rows] = strength * torch.cat([turn.cos(), turn.sin()])
    weight[rows] *= _CONTENT_SCALE
