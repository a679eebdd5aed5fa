"""Alignments: from scores and a mask to weights.

Every alignment takes scores and a boolean mask that broadcasts to them (True = may be attended; scores of minus
infinity are masked too), and normalises, if it does, over the axis ``dim`` of the keys. A masked weight is exactly
zero, and so is a row with nothing to attend, with finite gradients. float16 and bfloat16 are aligned in float32.

Local and reinforced alignment choose a subset first, by functions that return a mask.
"""
