import pytest
import torch

from dual_attention.vision_models import VisionDualAttnTransformer, VisionTransformer
from tests.support.refusals import refused
from tests.support.tensors import float64, normal

COMMON = {
    "image_shape": (3, 12, 8),  # channels, width, height
    "patch_size": (4, 2),  # width, height
    "num_classes": 5,
    "d_model": 8,
    "n_layers": 2,
    "dff": 12,
    "dropout_rate": 0.0,
    "activation": "gelu",
    "norm_first": True,
}
SYMBOLS = {
    "symbolic_attention": {"d_model": 8, "n_heads": 2, "n_symbols": 3},
    "rel_sym_attn": dict(
        d_model=8, rel_n_heads=2, symbolic_attn_n_heads=2, n_symbols=3, nbhd_delta=2, causal_nbhd=False
    ),
    "positional_symbols": {"symbol_dim": 8, "max_length": 30},
    "position_relative": {"symbol_dim": 8, "max_rel_pos": 5},
    "position_relative_2d": {"symbol_dim": 8, "max_rel_pos": 3},
}


def dual(symbols="positional_symbols", **arguments):
    ra_kwargs = {"use_relative_positional_symbols": symbols.startswith("position_relative")}
    ra_kwargs.update(arguments.pop("ra_kwargs", {}))
    heads = {"n_heads_sa": 1, "n_heads_ra": 1}
    retrieval = {"symbol_retrieval": symbols, "symbol_retrieval_kwargs": SYMBOLS[symbols]}
    return VisionDualAttnTransformer(**{**COMMON, **heads, **retrieval, **arguments}, ra_kwargs=ra_kwargs)


@pytest.mark.parametrize("pool", ["cls", "mean"])
@pytest.mark.parametrize("final_norm", [False, True])
def test_steps_of_the_model(pool, final_norm):
    model = float64(VisionTransformer(**COMMON, n_heads=2, pool=pool, final_norm=final_norm))
    images = normal(2, 3, 8, 12)
    patches = torch.stack(
        [
            images[:, :, 2 * i : 2 * i + 2, 4 * j : 4 * j + 4].permute(0, 2, 3, 1).flatten(1)
            for i in range(4)
            for j in range(3)
        ],
        dim=1,
    )
    _, norm1, linear, norm2 = model.to_patch_embedding
    x = torch.cat([model.cls_token.expand(2, 1, 8), norm2(linear(norm1(patches)))], dim=1) + model.pos_embedding
    for block in model.encoder_blocks:
        x = block(x)
    x = model.norm(x)
    assert any("norm." in name and name.startswith("norm") for name in model.state_dict()) == final_norm
    torch.testing.assert_close(model(images), model.final_out(x[:, 0] if pool == "cls" else x.mean(1)))


@pytest.mark.parametrize(
    "build", [lambda **k: VisionTransformer(**COMMON, n_heads=2, **k), lambda **k: dual("symbolic_attention", **k)]
)
def test_image_sizes_other_than_the_models(build):
    larger, smaller = torch.randn(2, 3, 12, 16), torch.randn(2, 3, 4, 8)
    with pytest.raises(ValueError, match=r"grid of \(4, 3\) patches, .*got \(6, 4\)"):
        build()(larger)
    for pos_enc in ("interpolated", "RoPE", "none"):
        model = build(pos_enc=pos_enc)
        assert model(larger).shape == model(smaller).shape == (2, 5)
    same_number = torch.randn(2, 3, 6, 16)  # 3 by 4 patches instead of 4 by 3: as many, but elsewhere
    with pytest.raises(ValueError, match="grid of"):
        build()(same_number)


def test_interpolated_positions_of_the_models_own_size_are_untouched():
    kinds = ("learned", "interpolated")
    learned, interpolated = (float64(VisionTransformer(**COMMON, n_heads=2, pos_enc=kind)) for kind in kinds)
    interpolated.load_state_dict(learned.state_dict())
    images = normal(1, 3, 8, 12)
    assert torch.equal(learned(images), interpolated(images))


def test_rotary_positions_tell_rows_from_columns():
    """The class token, whatever it sees of the patches, learns where they are; registers stand nowhere."""
    model = float64(dual("symbolic_attention", pos_enc="RoPE", n_registers=2))
    images = normal(2, 3, 8, 12)
    _, inputs = model._enter(images)
    cos, sin = inputs.arguments["freqs_cos"], inputs.arguments["freqs_sin"]
    assert cos[:3].eq(1).all() and sin[:3].eq(0).all() and len(cos.unique(dim=0)) == model.grid_size[0] * 3
    turned = images.unflatten(2, (4, 2)).roll(1, 2).flatten(2, 3)  # the patches in another order
    assert not torch.allclose(model(turned), model(images))
    unplaced = float64(dual("symbolic_attention", pos_enc="none"))
    torch.testing.assert_close(unplaced(turned), unplaced(images))


def test_input_images_are_not_changed():
    images = torch.randn(2, 3, 8, 12)
    before = images.clone()
    VisionTransformer(**COMMON, n_heads=2)(images)
    assert torch.equal(images, before)


test_bad_constructions_are_refused = refused(
    ({"image_shape": (3, 12, 9)}, "do not tile"),
    ({"pool": "max"}, "pool: .*'max'"),
    ({"pos_enc": "sinusoidal"}, "pos_enc: .*'sinusoidal'"),
    ({"pos_enc": "RoPE", "d_model": 12}, "rotary positions need heads of a width that is a multiple of 4, got 6"),
    by=lambda arguments: VisionTransformer(**{**COMMON, **arguments}, n_heads=2),
)


@pytest.mark.parametrize("shape", [(3, 8, 12), (2, 1, 8, 12), (2, 3, 9, 12)])
def test_bad_images_are_refused(shape):
    with pytest.raises(ValueError, match=r"x: expected shape|do not tile"):
        VisionTransformer(**COMMON, n_heads=2)(torch.randn(shape))


@pytest.mark.parametrize(
    "heads, ra_kwargs, parameters",
    [
        # Relational Games, Figure 2 of the paper
        ((0, 2), {"n_relations": 2, "symmetric_rels": True}, 421_474),
        ((1, 1), {"n_relations": 1, "rel_proj_dim": 128, "symmetric_rels": True}, 404_706),
    ],
)
def test_published_parameter_counts_of_the_games(heads, ra_kwargs, parameters):
    model = VisionDualAttnTransformer(
        (3, 36, 36),
        (12, 12),
        2,
        128,
        2,
        *heads,
        256,
        0.1,
        "swiglu",
        True,
        "positional_symbols",
        {"symbol_dim": 128, "max_length": 10},
        ra_kwargs=ra_kwargs,
        bias=False,
        pool="mean",
    )
    assert sum(p.numel() for p in model.parameters()) == parameters


@pytest.mark.parametrize(
    "classes, vit, symmetric, asymmetric",
    [(10, 7_149_034, 6_025_834, 6_615_658), (100, 7_183_684, 6_060_484, 6_650_308)],
)
def test_published_parameter_counts_of_cifar(classes, vit, symmetric, asymmetric):
    shared = ((3, 32, 32), (4, 4), classes, 384, 8)

    def count(model):
        return sum(p.numel() for p in model.parameters())

    with torch.device("meta"):
        assert count(VisionTransformer(*shared, 12, 384, 0.0, "gelu", True, pool="mean", final_norm=True)) == vit
        for is_symmetric, wanted in ((True, symmetric), (False, asymmetric)):
            model = VisionDualAttnTransformer(
                *shared,
                6,
                6,
                384,
                0.0,
                "gelu",
                True,
                "position_relative",
                {"symbol_dim": 384, "max_rel_pos": 65},
                ra_kwargs={
                    "n_relations": 6,
                    "rel_proj_dim": 32,
                    "n_kv_heads": 3,
                    "symmetric_rels": is_symmetric,
                    "use_relative_positional_symbols": True,
                },
                sa_kwargs={"n_kv_heads": 3},
                pool="mean",
                final_norm=True,
            )
            assert count(model) == wanted
