"""Language models that look at images or listen: one file per family, what they share written once.

`preparation` lets transformers prepare a request, `family` says what an adapter answers,
`prefixed` and `crossing` are the two ways in which a decoder is conditioned (a frozen prefix;
cross-attention), `request` decodes.
"""
