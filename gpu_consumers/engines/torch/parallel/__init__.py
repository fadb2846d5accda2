"""Tensor parallelism: one model over several processes, each with a device and a part of every layer.

A layer is cut as in Megatron-LM (Shoeybi et al., 2019): the first product of attention and of the MLP by its outputs
(whole heads; columns of the MLP), the second by its inputs, so that each of the two needs one sum over the ranks.
The head is cut by the vocabulary. Rank 0 is the worker: it schedules, samples and answers. The others run what rank 0
runs, step by step, and see no tokens but those of the plans.
"""
