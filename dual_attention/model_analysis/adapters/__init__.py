"""Other tools for looking inside models, made to see relations and symbols: ``adapters.transformer_lens``.

It needs the extra ``lens`` when it is imported. nnsight, captum and whatever else takes PyTorch's modules need no
adapter. They find the taps of a layer by their names, ``dual_attn.relational_attention.taps.relations`` and so on; a
layer sends its tensors through those that are watched.
"""

__all__: list[str] = []
