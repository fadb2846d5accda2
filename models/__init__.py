"""What a model version is on disk: its tokenizer, its text, and the cache of the newcomer's model.

Nothing here imports torch or transformers when it is imported: the CPU processors count tokens with
:mod:`models.tokenizer` and must stay small. Conversion, which needs both, runs in a process of its own
(:mod:`models.smollm2_convert`).
"""
