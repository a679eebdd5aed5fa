"""Small symbol mechanisms for models under test."""


def symbols(width: int, longest: int) -> dict[str, dict[str, int]]:
    """Arguments of each symbol mechanism, for models of that width and sequences of that length at most."""
    return {
        "symbolic_attention": {"d_model": width, "n_heads": 2, "n_symbols": 5},
        "rel_sym_attn": dict(d_model=width, rel_n_heads=2, symbolic_attn_n_heads=2, n_symbols=4, nbhd_delta=2),
        "positional_symbols": {"symbol_dim": width, "max_length": longest},
        "position_relative": {"symbol_dim": width, "max_rel_pos": 3},
    }
