"""Bits per byte of the validation text by counts of pairs and triples of bytes: python -m studies.divergence.rule"""

import pandas as pd

from studies.divergence.models import RA
from studies.divergence.study import GRIDS, RULES
from studies.relation_or_product.rule import of_language

if __name__ == "__main__":
    found = of_language(GRIDS["unclipped"].data, RA.context)
    RULES.parent.mkdir(exist_ok=True)
    pd.DataFrame({"untrained rule": [*found], "bits_per_byte": [*found.values()]}).round(3).to_csv(RULES, index=False)
