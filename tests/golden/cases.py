"""The configurations of the golden files.

Batch, length, heads and relations differ from one another unless a configuration is about the opposite, so that a
confusion of axes cannot pass. One or two lines each: the formatter would make it ten.
"""

from typing import Any

from case import Case, mask, real, rope, tokens

# fmt: off
LAYER = {"d_model": 8, "dropout": 0.0}


def attention_cases():
    target = "attention.Attention"

    def alone(name, *, batch=3, length=4, d_model=8, extra=None, options=None, loss=(), note="", **kwargs):
        inputs = {"x": real(batch, length, d_model), **(extra or {})}
        args = {"query": "x", "key": "x", "value": "x", **{key: key for key in extra or {}}}
        kwargs = dict(LAYER, d_model=d_model, **kwargs)
        return Case(f"attention_{name}", target, kwargs, inputs, args, options or {}, ("output", "weights"), loss,
                    weights=True, note=note)

    def cross(name, *, batch=3, length=4, context=5, extra=None, **kwargs):
        inputs = {"query": real(batch, length, 8), "key": real(batch, context, 8), "value": real(batch, context, 8)}
        return Case(f"attention_{name}", target, dict(LAYER, **kwargs), inputs | (extra or {}),
                    outputs=("output", "weights"), weights=True)

    causal: dict[str, Any] = {"options": {"is_causal": True}}
    return [
        alone("plain", n_heads=2),
        alone("mqa", batch=2, length=5, n_heads=4, n_kv_heads=1),
        alone("gqa", length=5, n_heads=4, n_kv_heads=2),
        alone("gqa_three_per_group", d_model=12, n_heads=6, n_kv_heads=2),
        alone("biases", n_heads=2, add_bias_kv=True, add_bias_out=True),
        alone("causal", n_heads=2, **causal),
        alone("mask", batch=2, length=5, n_heads=4, extra={"attn_mask": mask(5, 5)}),
        alone("rope", n_heads=2, extra=rope(4, 4)),
        alone("rope_gqa_causal", length=5, n_heads=4, n_kv_heads=2, extra=rope(2, 5), **causal),
        alone("total_n_heads", n_heads=2, total_n_heads=4, add_bias_out=True),
        alone("total_n_heads_mqa", batch=2, d_model=12, n_heads=3, n_kv_heads=1, total_n_heads=6, add_bias_kv=True),
        alone("batch_is_length_is_heads", batch=2, length=2, n_heads=2, key_dim=4, **causal),
        alone("one_token", length=1, n_heads=2),
        alone("loss_of_weights", n_heads=2, loss=("output", "weights")),
        alone("key_dim_scale", n_heads=1, total_n_heads=4, key_dim=8,
              note="published scale is 1/sqrt(head_dim), not 1/sqrt(key_dim)"),
        cross("cross", n_heads=2),
        cross("cross_longer_query", length=5, context=4, n_heads=2, add_bias_kv=True),
        cross("cross_gqa_mask", n_heads=4, n_kv_heads=2, length=3, context=5, batch=2, add_bias_out=True,
              extra={"attn_mask": mask(3, 5)}),
    ]


def with_symbols(
    name, target, outputs, *, batch=3, length=4, d_model=8, extra=None, options=None, loss=(), note="", **kwargs
):
    """A layer called with a sequence and symbols, which are (length, length, d_model) when position-relative."""
    relative = kwargs.get("use_relative_positional_symbols", False)
    symbols = real(length if relative else batch, length, d_model)
    inputs = {"x": real(batch, length, d_model), "symbols": symbols, **(extra or {})}
    kwargs = dict(LAYER, d_model=d_model, **kwargs)
    return Case(name, target, kwargs, inputs, options=options or {}, outputs=outputs, loss=loss, note=note)


def relational_cases():
    def case(name, **settings):
        outputs = ("output", "weights", "relations")
        return with_symbols(f"relational_{name}", "relational_attention.RelationalAttention", outputs, **settings)

    relative = {"use_relative_positional_symbols": True}
    causal: dict[str, Any] = {"options": {"is_causal": True}}
    five = {"length": 5}  # where heads or relations are four
    masked = {"length": 5, "extra": {"attn_mask": mask(5, 5)}}
    everything = {
        "batch": 2, "d_model": 12, "n_heads": 4, "n_kv_heads": 2, "total_n_heads": 6, "n_relations": 2,
        "rel_proj_dim": 4, "rel_activation": "tanh", "symmetric_rels": True, "add_bias_kv": True, "add_bias_out": True,
    }
    return [
        case("plain", n_heads=2),
        case("fewer_relations", n_heads=4, n_relations=2, **five),
        case("more_relations", n_heads=2, n_relations=4, rel_proj_dim=2, **five),
        case("one_relation_gelu", n_heads=2, n_relations=1, rel_activation="gelu"),
        case("mqa_sigmoid", batch=2, n_heads=4, n_kv_heads=1, n_relations=1, rel_activation="sigmoid", **five),
        case("gqa_silu", batch=2, n_heads=4, n_kv_heads=2, n_relations=1, rel_activation="silu", **five),
        case("relative", n_heads=2, n_relations=1, **relative),
        case("relative_gqa_causal", batch=2, n_heads=4, n_kv_heads=2, n_relations=1, **relative, **causal, **five),
        case("relative_mask", n_heads=2, n_relations=1, **relative, **masked),
        case("relative_rope_biases", n_heads=2, extra=rope(4, 4), add_bias_kv=True, add_bias_out=True, **relative),
        case("relative_batch_is_length_is_heads", batch=2, length=2, n_heads=2, **relative),
        case("batch_is_length_is_heads", batch=2, length=2, n_heads=2, key_dim=4, **causal),
        case("symmetric", n_heads=2, n_relations=1, symmetric_rels=True),
        case("symmetric_relu_causal", batch=2, n_heads=4, n_relations=1, symmetric_rels=True, rel_activation="relu",
             **causal, **five),
        case("biases", n_heads=2, n_relations=1, add_bias_kv=True, add_bias_out=True),
        case("total_n_heads", batch=2, d_model=12, n_heads=3, total_n_heads=6, n_relations=1),
        case("rope", n_heads=2, n_relations=1, extra=rope(4, 4)),
        case("rope_gqa_causal", batch=2, n_heads=4, n_kv_heads=2, n_relations=1, extra=rope(2, 5), **causal, **five),
        case("causal_tanh", n_heads=2, n_relations=1, rel_activation="tanh", **causal),
        case("mask", batch=2, n_heads=4, n_relations=1, **masked),
        case("softmax", n_heads=2, n_relations=1, rel_activation="softmax"),
        case("one_token", length=1, n_heads=2, n_relations=4),
        case("everything", **everything, extra=rope(2, 5), **causal, **five),
        case("loss_of_everything", n_heads=2, n_relations=1, loss=("output", "weights", "relations")),
        case("key_dim_scale", n_heads=1, total_n_heads=4, key_dim=8,
             note="published scale is 1/sqrt(head_dim), not 1/sqrt(key_dim)"),
    ]


def cross_relational_cases():
    """The two older layers (see `supply_missing_name`). Grouped key/value heads crash the published second one."""

    def rca(name, **settings):
        target = "relational_attention.RelationalCrossAttention"
        return with_symbols(f"rca_{name}", target, ("output", "weights"), **settings)

    def disrca(name, **settings):
        target = "relational_attention.DisentangledRelationalCrossAttention"
        return with_symbols(f"disrca_{name}", target, ("output", "weights", "relations"), **settings)

    relative = {"use_relative_positional_symbols": True}
    causal: dict[str, Any] = {"options": {"is_causal": True}}
    masked = {"length": 5, "batch": 2, "extra": {"attn_mask": mask(5, 5)}}
    return [
        rca("softmax", n_heads=2),
        rca("gqa_causal", batch=2, length=3, n_heads=4, n_kv_heads=2, **causal),
        rca("relative_mqa_mask", n_heads=4, n_kv_heads=1, **relative, **masked),
        rca("tanh_causal", n_heads=2, activation="tanh", **causal),
        rca("relu_mask", n_heads=4, activation="relu", **masked),
        rca("sigmoid_relative_causal", n_heads=2, activation="sigmoid", **relative, **causal),
        rca("identity_rope", n_heads=2, activation="identity", extra=rope(4, 4)),
        rca("total_n_heads_biases", n_heads=2, total_n_heads=4, add_bias_kv=True, add_bias_out=True),
        disrca("plain", n_heads=2),
        disrca("relative_causal", n_heads=2, **relative, **causal),
        disrca("sigmoid_mask", n_heads=4, rel_activation="sigmoid", **masked),
        disrca("softmax_rope", n_heads=2, rel_activation="softmax", extra=rope(4, 4)),
        disrca("total_n_heads_biases", n_heads=2, total_n_heads=4, add_bias_kv=True, add_bias_out=True,
               rel_activation="tanh"),
    ]


def symbol_cases():
    def case(name, target, length=4, batch=3, **kwargs):
        return Case(name, f"symbol_retrieval.{target}", kwargs, {"x": real(batch, length, 8)})

    library = {"d_model": 8, "n_heads": 2, "n_symbols": 5}
    related = {"d_model": 8, "rel_n_heads": 2, "symbolic_attn_n_heads": 1, "n_symbols": 5, "nbhd_delta": 2}
    return [
        case("symbolic_plain", "SymbolicAttention", **library),
        case("symbolic_one_head", "SymbolicAttention", d_model=8, n_heads=1, n_symbols=5),
        case("symbolic_scale", "SymbolicAttention", **library, scale=0.9),
        case("symbolic_frozen", "SymbolicAttention", **library, trainable_symbols=False),
        case("symbolic_sizes_equal", "SymbolicAttention", batch=2, length=2, d_model=8, n_heads=2, n_symbols=2),
        case("positional", "PositionalSymbolRetriever", symbol_dim=8, max_length=7),
        case("relative", "PositionRelativeSymbolRetriever", length=4, symbol_dim=8, max_rel_pos=5),
        case("relative_clipped", "PositionRelativeSymbolRetriever", length=6, symbol_dim=8, max_rel_pos=2),
        case("rel_symbolic_plain", "RelationalSymbolicAttention", **related),
        case("rel_symbolic_self", "RelationalSymbolicAttention", **related, include_self=True),
        case("rel_symbolic_both_sides", "RelationalSymbolicAttention", **related, causal_nbhd=False),
        case("rel_symbolic_both_sides_self", "RelationalSymbolicAttention", **related, causal_nbhd=False,
             include_self=True),
        case("rel_symbolic_scales", "RelationalSymbolicAttention", **related, rel_scale=0.7, symbolic_attn_scale=1.3),
        case("rel_symbolic_wide_raw", "RelationalSymbolicAttention", length=3, normalize_rels=False,
             **related | {"nbhd_delta": 4, "symbolic_attn_n_heads": 4}),
    ]


def dual_cases():
    def case(name, sa, ra, *, extra=None, options=None, batch=3, length=4, d_model=8, outputs=None, **kwargs):
        relative = kwargs.get("ra_kwargs", {}).get("use_relative_positional_symbols", False)
        inputs = {"x": real(batch, length, d_model), "symbols": real(length if relative else batch, length, d_model)}
        kwargs = dict(LAYER, d_model=d_model, n_heads_sa=sa, n_heads_ra=ra, **kwargs)
        outputs = outputs or ("output", "self_weights", "rel_weights", "relations")
        return Case(f"dual_{name}", "dual_attention.DualAttention", kwargs, inputs | (extra or {}),
                    options=options or {}, outputs=outputs, weights=True)

    causal = {"is_causal": True}
    grouped = {"n_kv_heads": 1}
    relative = {"use_relative_positional_symbols": True}
    rca_outputs = ("output", "self_weights", "rel_weights")
    return [
        case("plain", 2, 2),
        case("uneven", 1, 3),
        case("no_relational", 2, 0, outputs=("output", "self_weights")),
        case("no_self", 0, 2, options=causal, outputs=("output", "rel_weights", "relations")),
        case("shared", 2, 2, share_attn_params=True),
        case("shared_gqa_causal", 2, 2, share_attn_params=True, sa_kwargs=grouped | {"add_bias_kv": True},
             ra_kwargs=grouped | {"add_bias_kv": True}, options=causal),
        case("kwargs", 2, 2, sa_kwargs=grouped | {"add_bias_out": True},
             ra_kwargs={"n_relations": 4, "rel_activation": "relu", "symmetric_rels": True, "add_bias_out": True}),
        case("relative", 2, 2, ra_kwargs=relative | {"n_relations": 1}, extra={"attn_mask": mask(4, 4)}),
        case("rope_causal", 2, 2, extra=rope(2, 4), options=causal),
        case("rca", 2, 2, ra_type="rca", ra_kwargs={"activation": "tanh"}, options=causal, outputs=rca_outputs),
        case("disrca", 2, 2, ra_type="disrca", ra_kwargs={"rel_activation": "sigmoid"}),
    ]


def block_cases():
    block = {"d_model": 8, "dff": 6, "dropout_rate": 0.0}

    def encoder(name, extra=None, **kwargs):
        inputs = {"x": real(3, 4, 8), **(extra or {})}
        return Case(f"encoder_{name}", "transformer_blocks.EncoderBlock", block | kwargs, inputs)

    def decoder(name, **kwargs):
        return Case(f"decoder_{name}", "transformer_blocks.DecoderBlock", block | {"d_model": 6} | kwargs,
                    {"x": real(2, 4, 6), "context": real(2, 5, 6)})

    def dual(name, part="Encoder", extra=None, d_model=8, **kwargs):
        relative = kwargs.get("ra_kwargs", {}).get("use_relative_positional_symbols", False)
        inputs = {"x": real(3, 4, d_model), "symbols": real(4 if relative else 3, 4, d_model), **(extra or {})}
        kwargs = block | {"d_model": d_model, "n_heads_sa": 1, "n_heads_ra": 1} | kwargs
        return Case(f"dual_{part.lower()}_{name}", f"dual_attn_blocks.DualAttn{part}Block", kwargs, inputs)

    def dual_decoder(name, **kwargs):
        return dual(name, "Decoder", {"context": real(3, 5, 6)}, d_model=6, **kwargs)

    def forward(name, **kwargs):
        x = real(3, 4, kwargs["embed_dim"])
        return Case(f"feedforward_{name}", "transformer_blocks.FeedForwardBlock", kwargs, {"x": x})

    relative = {"use_relative_positional_symbols": True, "n_relations": 2}
    return [
        encoder("pre_layernorm_relu", n_heads=2, activation="relu", norm_first=True),
        encoder("post_layernorm_gelu", n_heads=4, activation="gelu", norm_first=False, causal=True),
        encoder("pre_rmsnorm_swiglu_rope", n_heads=2, activation="swiglu", norm_first=True, norm_type="rmsnorm",
                bias=False, causal=True, extra=rope(4, 4)),
        encoder("post_rmsnorm_silu_gqa", n_heads=4, activation="silu", norm_first=False, norm_type="rmsnorm",
                attn_kwargs={"n_kv_heads": 2, "add_bias_kv": True}),
        encoder("no_norm", n_heads=2, activation="tanh", norm_first=True, norm_type="none"),
        decoder("pre_layernorm_gelu", n_heads=3, n_heads_cross=3, activation="gelu", norm_first=True, causal=True),
        decoder("post_rmsnorm_swiglu", n_heads=1, n_heads_cross=1, activation="swiglu", norm_first=False,
                norm_type="rmsnorm", bias=False),
        dual("pre_layernorm_relu", activation="relu", norm_first=True),
        dual("post_layernorm_gelu", n_heads_ra=3, activation="gelu", norm_first=False, causal=True, bias=False),
        dual("pre_rmsnorm_swiglu_rope", activation="swiglu", norm_first=True, norm_type="rmsnorm", causal=True,
             share_attn_params=True, extra=rope(4, 4)),
        dual(
            "post_rmsnorm_silu_relative", activation="silu", norm_first=False, norm_type="rmsnorm", ra_kwargs=relative
        ),
        dual("no_self_causal", n_heads_sa=0, n_heads_ra=2, activation="silu", norm_first=True, causal=True),
        dual_decoder("pre_layernorm_gelu", n_heads_ra=2, n_heads_cross=6, activation="gelu", norm_first=True),
        dual_decoder("post_rmsnorm_swiglu", n_heads_cross=2, activation="swiglu", norm_first=False,
                     norm_type="rmsnorm", bias=False, cross_kwargs={"n_kv_heads": 1, "add_bias_out": True},
                     causal=False),
        dual_decoder(
            "relative", n_heads_cross=1, activation="relu", norm_first=True, ra_kwargs={**relative, "n_relations": 3}
        ),
        forward("relu_default_width", embed_dim=4),
        forward("swiglu_default_width", embed_dim=4, activation="swiglu", use_bias=True),
        forward("gelu_biases", embed_dim=4, dff=6, activation="gelu", use_bias=True),
        Case("rmsnorm", "transformer_blocks.RMSNorm", {"dim": 5}, {"x": real(2, 3, 5)}),
        Case("rmsnorm_eps", "transformer_blocks.RMSNorm", {"dim": 5, "eps": 0.3}, {"x": real(2, 3, 5)}),
    ]


def positional_cases():
    def case(name, target, inputs=None, **settings):
        return Case(name, target, inputs=inputs or {"x": real(3, 5, 8)}, **settings)

    table = {"d_model": 8, "dropout": 0.0, "max_len": 7}
    sinusoidal = "positional_encoding.SinusoidalPositionalEncoding"
    learned = "positional_encoding.LearnedPositionalEmbeddings"
    relative = "positional_encoding.RelativePositionalEncoding"
    heads = {"xq": real(2, 4, 3, 6), "xk": real(2, 4, 1, 6)}
    return [
        case("sinusoidal", sinusoidal, kwargs=table),
        case("sinusoidal_unscaled", sinusoidal, kwargs=table | {"scale": False}),
        case("learned", learned, kwargs=table),
        case("learned_unscaled", learned, kwargs=table | {"scale": False}),
        Case("relative_square", relative, {"dim": 8, "max_rel_pos": 6}, options={"length_q": 5}),
        Case("relative_oblong_clipped", relative, {"dim": 8, "max_rel_pos": 2}, options={"length_q": 4, "length_k": 6}),
        Case("rope_tables", "attention_utils.precompute_freqs_cis", options={"dim": 6, "end": 5},
             outputs=("freqs_cos", "freqs_sin")),
        Case("rope_tables_theta", "attention_utils.precompute_freqs_cis", options={"dim": 4, "end": 7, "theta": 500.0},
             outputs=("freqs_cos", "freqs_sin")),
        case("rope_rotation", "attention_utils.apply_rotary_emb", heads | rope(6, 4), outputs=("xq", "xk"),
             loss=("xq", "xk")),
    ]


def retriever(name, width=6):
    """The constructor arguments of a model for a published way of retrieving symbols, for up to seven positions."""
    related = {"rel_n_heads": 3, "symbolic_attn_n_heads": 2, "nbhd_delta": 2}
    kwargs = {
        "symbolic_attention": {"d_model": width, "n_heads": 2, "n_symbols": 5},
        "rel_sym_attn": {"d_model": width, "n_symbols": 5, **related},
        "positional_symbols": {"symbol_dim": width, "max_length": 7},
        "position_relative": {"symbol_dim": width, "max_rel_pos": 3},
    }
    return {"symbol_retrieval": name, "symbol_retrieval_kwargs": kwargs[name]}


def vision_cases():
    """Image shapes are (channels, width, height) and patches (width, height), as published; images are (batch,
    channels, height, width). Most have width and height apart."""
    model = {"num_classes": 4, "d_model": 6, "dff": 5, "dropout_rate": 0.0, "n_layers": 1}

    def vit(name, image, patch, target="VisionTransformer", **kwargs):
        channels, width, height = image
        kwargs = model | {"image_shape": image, "patch_size": patch} | kwargs
        return Case(name, f"vision_models.{target}", kwargs, {"x": real(3, channels, height, width)})

    def vidat(name, image, patch, symbols, **kwargs):
        kwargs = {"n_heads_sa": 1, "n_heads_ra": 1} | retriever(symbols) | kwargs
        return vit(f"vidat_{name}", image, patch, "VisionDualAttnTransformer", **kwargs)

    pre = {"activation": "gelu", "norm_first": True}
    post = {"activation": "swiglu", "norm_first": False, "norm_type": "rmsnorm", "bias": False}
    relative = {"use_relative_positional_symbols": True, "n_relations": 3}
    return [
        vit("vit_cls", [1, 6, 4], [3, 2], n_heads=2, **pre),
        vit("vit_mean_post", [2, 2, 6], [1, 3], n_heads=3, pool="mean", **post),
        vidat("symbolic_cls", [1, 6, 4], [2, 2], "symbolic_attention", **pre),
        vidat("symbolic_mean_post", [2, 2, 6], [1, 3], "symbolic_attention", pool="mean", **post),
        vidat("rel_symbolic_cls", [1, 4, 6], [2, 3], "rel_sym_attn", **pre),
        vidat("positional_mean", [1, 6, 4], [3, 2], "positional_symbols", pool="mean", n_heads_ra=2,
              sa_kwargs={"add_bias_out": True}, ra_kwargs={"n_relations": 4}, **pre),
        vidat("relative_cls", [2, 2, 6], [2, 1], "position_relative", ra_kwargs=relative, **pre),
        vidat("relative_mean_two_layers", [1, 4, 4], [2, 2], "position_relative", n_layers=2, pool="mean",
              ra_kwargs=relative, **post),
        vidat("rca", [1, 4, 4], [2, 2], "positional_symbols", ra_type="rca", **pre),
    ]


def language_cases():
    model = {"vocab_size": 9, "d_model": 6, "n_layers": 2, "dff": 5, "dropout_rate": 0.0, "max_block_size": 7}
    pre = {"activation": "gelu", "norm_first": True}
    post = {"activation": "swiglu", "norm_first": False, "norm_type": "rmsnorm"}

    def lm(name, target, *, targets=True, **kwargs):
        inputs = {"x": tokens(9, 3, 5)} | ({"targets": tokens(9, 3, 5, ignore_first=True)} if targets else {})
        outputs = ("logits", "loss") if targets else ("logits",)
        return Case(f"lm_{name}", f"language_models.{target}", model | kwargs, inputs, outputs=outputs, loss=outputs)

    def dual(name, **kwargs):
        heads: dict[str, Any] = {"n_heads_sa": 1, "n_heads_ra": 1}
        return lm(f"dual_{name}", "DualAttnTransformerLM", **heads | kwargs)

    separate = {"shared_symbol_retriever": False}
    relative = {"use_relative_positional_symbols": True, "n_relations": 2}
    return [
        lm("plain", "TransformerLM", n_heads=2, n_layers=1, **pre),
        lm("rope_post", "TransformerLM", d_model=8, n_heads=2, pos_enc_type="RoPE", bias=False, targets=False,
           block_kwargs={"attn_kwargs": {"n_kv_heads": 1}}, **post),
        dual("shared_symbols", **retriever("symbolic_attention"), **pre),
        dual("rope_relative", **retriever("position_relative", 8), d_model=8, pos_enc_type="RoPE", ra_kwargs=relative,
             n_layers=1, targets=False, **post),
        dual("tied_libraries", **retriever("symbolic_attention"), share_attn_params=True,
             symbol_retriever_config=separate | {"weight_tie_symbol_library": True}, **pre),
        dual("separate_positional", **retriever("positional_symbols"), symbol_retriever_config=separate, n_heads_ra=2,
             **pre),
    ]


def seq2seq_cases():
    model = {"d_model": 6, "n_layers_enc": 1, "n_layers_dec": 1, "in_block_size": 6, "out_block_size": 5}
    pre = {"dff": 5, "activation": "gelu", "norm_first": True, "dropout_rate": 0.0}
    post = {"dff": 5, "activation": "relu", "norm_first": False, "dropout_rate": 0.0, "norm_type": "rmsnorm"}
    words = {f"{end}_spec": {"type": "token", "vocab_size": size} for end, size in (("input", 7), ("output", 9))}
    words["out_dim"] = 9
    vectors = {"input_spec": {"type": "vector", "dim": 3}, "output_spec": {"type": "vector", "dim": 2}, "out_dim": 4}
    word_inputs = {"x": tokens(7, 3, 5), "y": tokens(9, 3, 4), "targets": tokens(9, 3, 4, ignore_first=True)}
    vector_inputs = {"x": real(3, 5, 3), "y": real(3, 4, 2)}
    heads = {"n_heads": 2}, {"n_heads": 2, "n_heads_cross": 2}
    dual_heads = {"n_heads_sa": 1, "n_heads_ra": 1}, {"n_heads_sa": 1, "n_heads_ra": 1, "n_heads_cross": 2}

    def case(name, dual, inputs, block, per_block, **kwargs):
        kinds = dual_heads if dual else heads
        blocks = {
            "encoder_kwargs": block | kinds[0] | per_block,
            "decoder_kwargs": block | kinds[1] | per_block | {"causal": True},
        }
        outputs = ("logits", "loss") if "targets" in inputs else ("logits",)
        target = f"seq2seq_models.{'Seq2SeqDualAttnTransformer' if dual else 'Seq2SeqTransformer'}"
        return Case(f"seq2seq_{name}", target, model | blocks | kwargs, inputs, outputs=outputs, loss=outputs)

    relative = {"ra_kwargs": {"use_relative_positional_symbols": True, "n_relations": 3}}
    return [
        case("words", False, word_inputs, pre, {}, **words),
        case("vectors", False, vector_inputs, post, {}, tie_weights=False, **vectors),
        case("dual_words", True, word_inputs, pre, {}, tie_weights=False, **retriever("symbolic_attention"), **words),
        case("dual_vectors_relative", True, vector_inputs, post, relative, **retriever("position_relative"), **vectors),
    ]
# fmt: on


AREAS = {
    "attention": attention_cases,
    "relational": relational_cases,
    "cross_relational": cross_relational_cases,
    "symbols": symbol_cases,
    "dual": dual_cases,
    "blocks": block_cases,
    "positional": positional_cases,
    "vision": vision_cases,
    "language": language_cases,
    "seq2seq": seq2seq_cases,
}
