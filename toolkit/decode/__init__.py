"""Decoding with a target and a draft: trees drafted, verified in one call, and measured.

>>> import multidraft as md
>>> def continue_two_texts():
...     prompts = ["The capital of France is", "Once upon a time"]
...     out = md.decode.generate("smollm2", "skip-8", prompts=prompts, max_new_tokens=40)
...     print(out.texts, out.measured.block_efficiency)
"""

from multidraft.decode.baselines import assisted, compare, plain
from multidraft.decode.greedy import assert_greedy
from multidraft.decode.loop import generate
from multidraft.decode.measured import Measured
from multidraft.decode.pair import wrap
from multidraft.decode.result import Decoded

__all__ = [
    "Decoded",
    "Measured",
    "assert_greedy",
    "assisted",
    "compare",
    "generate",
    "plain",
    "wrap",
]
