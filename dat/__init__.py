"""The lab: data, training, sweeps, experiments, costs, the explorer, and the command ``dat``."""

import dual_attention

if not hasattr(dual_attention, "__version__"):
    raise ImportError(
        "dual_attention: expected the package of relational-attention, got that of dual-attention, which was installed "
        "over it: pip uninstall dual-attention, then pip install --force-reinstall --no-deps relational-attention "
        "(in a clone of it: .)"
    )
