"""The methods of timm's models on ours."""

import pytest
import torch

from dual_attention._models.vision import VisionModel
from dual_attention.vision_models import VisionTransformer
from tests.library.test_vision_models import COMMON, SYMBOLS, dual
from tests.support.refusals import refused
from tests.support.tensors import float64, normal


def vit(**arguments) -> VisionModel:
    return VisionTransformer(**{**COMMON, **arguments}, n_heads=2)


def vidat(**arguments) -> VisionModel:
    return dual("position_relative_2d", **arguments)


KINDS = pytest.mark.parametrize("build", [vit, vidat])
IMAGES = (2, 3, 8, 12)  # 4 rows and 3 columns of patches


@KINDS
@pytest.mark.parametrize("pool", ["cls", "mean", "patches"])
def test_a_pass_is_features_and_then_the_head(build, pool):
    model, images = float64(build(pool=pool, final_norm=True)), normal(*IMAGES)
    tokens = model.forward_features(images)
    assert torch.equal(model.forward_head(tokens), model(images))
    pooled = model.forward_head(tokens, pre_logits=True)
    assert pooled.shape == (2, model.num_features)
    assert torch.equal(model.get_classifier()(pooled), model(images))
    wanted = {"cls": tokens[:, 0], "mean": tokens.mean(1), "patches": tokens[:, model.num_prefix_tokens :].mean(1)}
    torch.testing.assert_close(pooled, wanted[pool])


@KINDS
@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("checkpointed", [False, True])
def test_intermediates_are_the_states_of_a_trace(build, norm, checkpointed):
    model, images = float64(build(n_layers=3, final_norm=True)), normal(*IMAGES)
    states = [model.norm(state) if norm else state for state in model.trace(images).states[1:]]
    model.set_grad_checkpointing(checkpointed)
    hidden, found = model.forward_intermediates(images, norm=norm, return_prefix_tokens=True, output_fmt="NLC")
    torch.testing.assert_close(hidden, model.hidden(images))
    for (patches, prefix), state in zip(found, states, strict=True):
        torch.testing.assert_close(torch.cat((prefix, patches), 1), state)
    maps = model.forward_intermediates(images, [-1, 0], norm=norm, intermediates_only=True)
    for image, (patches, _) in zip(maps, (found[0], found[2]), strict=True):  # by depth
        assert image.shape == (2, 8, 4, 3) and torch.equal(image.flatten(2).transpose(1, 2), patches)
    (last,) = model.forward_intermediates(images, 1, norm=norm, intermediates_only=True)
    assert torch.equal(last, maps[1])


@KINDS
def test_stopping_early_computes_no_further_block(build):
    model, images = float64(build(n_layers=3, final_norm=True)), normal(*IMAGES)
    _, (wanted,) = model.forward_intermediates(images, [1])
    model.encoder_blocks[2].forward = None  # cannot be called
    _, (found,) = model.forward_intermediates(images, [1], stop_early=True)
    assert torch.equal(found, wanted)
    model.norm = torch.nn.Identity()
    state, _ = model.forward_intermediates(images, [1], stop_early=True)
    assert torch.equal(state[:, 1:].transpose(1, 2).reshape(found.shape), found)


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("norm", [False, True])
def test_features_only_shares_what_it_needs_and_every_parameter_gets_a_gradient(symbols, norm):
    model, images = dual(symbols, n_layers=3, final_norm=True), torch.randn(IMAGES)
    before = model(images)
    features = model.features_only([0, 1], norm=norm)
    found = features(images)
    for feature, wanted in zip(found, model.forward_intermediates(images, [0, 1], norm=norm)[1], strict=True):
        assert torch.equal(feature, wanted)
    sum(feature.square().sum() for feature in found).backward()
    assert {id(p) for p in features.parameters()} < {id(p) for p in model.parameters()}
    assert all(p.grad is not None for p in features.parameters() if p.requires_grad)
    assert all(p.grad is None for p in model.encoder_blocks[2].parameters())
    assert torch.equal(model(images), before)
    info = features.feature_info
    assert info.channels() == [8, 8] and info.reduction() == [4, 4]
    assert [features.model.get_submodule(name) for name in info.module_name()] == [*model.encoder_blocks[:2]]


X, WITHOUT_A_BLOCK = torch.randn(IMAGES), (0, 3, [2], [-3], [], [0, -2], [0.5])


def resized(model: VisionModel, size: tuple[int, int]) -> VisionModel:
    model.set_input_size(size)
    return model


test_bad_input = KINDS(refused(
    *((lambda model, at=at: model.forward_intermediates(X, indices=at), "indices: expected") for at in WITHOUT_A_BLOCK),
    *((lambda model, at=at: model.features_only(at), "indices: expected") for at in WITHOUT_A_BLOCK),
    (lambda model: model.forward_intermediates(X, output_fmt="NHWC"), r"output_fmt: .*'NHWC'"),
    (lambda model: model.reset_classifier(2, "max"), r"global_pool: .*'max'"),
    (lambda model: model.reset_classifier(-1), r"num_classes: .*-1"),
    (lambda model: model.set_input_size((9, 12)), "do not tile"),
    (lambda model: model.set_input_size((8, 12, 3)), r"img_size: expected 2 sizes"),
    (lambda model: model.set_input_size(patch_size=0), "patch_size: .*0"),
    (lambda model: resized(model, (12, 12))(X), "grid of"),
    (lambda model: vit(n_registers=-1), r"n_registers: .*-1"),
    (
        lambda model: vidat(
            n_registers=2, symbol_retrieval_kwargs={"symbol_dim": 8, "max_rel_pos": 3, "n_prefix_tokens": 1}
        ),
        r"symbol_retrieval_kwargs: expected n_prefix_tokens=3.*got 1",
    ),
    (lambda model: dual("symbolic_attention", sa_kwargs={"shaw_max_rel_pos": 3}).set_input_size((8, 16)),
     r"img_size: encoder_blocks\.0\..*rel_pos_keys"),
    (
        lambda model: dual(
            symbol_retrieval_kwargs={"symbol_dim": 8, "max_length": 30, "sinusoidal": True}
        ).set_input_size((20, 12)),
        r"img_size: 31 tokens .*max_length=30",
    ),
    by=lambda call, *, build: call(build()),
))  # fmt: skip


@KINDS
def test_another_classifier(build):
    model, images = build().double().eval(), normal(*IMAGES)
    tokens = model.forward_features(images)
    model.reset_classifier(7)
    assert model(images).shape == (2, 7) and model.num_classes == model.get_classifier().out_features == 7
    assert not model.final_out.training and torch.equal(model.forward_features(images), tokens)
    model.reset_classifier(0, "avg")
    assert model.num_classes == 0 and torch.equal(model(images), tokens[:, 1:].mean(1))
    model.reset_classifier(0, "token")
    assert torch.equal(model(images), tokens[:, 0])
    model.reset_classifier(2, "")
    assert torch.equal(model(images), model.final_out(tokens))


@pytest.mark.parametrize("symbols", SYMBOLS)
def test_groups_of_parameters_cover_the_model_by_depth(symbols):
    model = dual(symbols, final_norm=True)
    groups = model.layer_groups()
    assert len(groups) == 4 and {k: v for group in groups for k, v in group.items()} == dict(model.named_parameters())
    assert all(name.startswith("encoder_blocks.0.") for name in groups[1])
    assert {name.split(".")[0] for name in groups[2]} == {"encoder_blocks", "norm"}
    assert {name.split(".")[0] for name in groups[3]} == {"final_out"}
    assert sum(map(len, groups)) == len([*model.parameters()])
    by_position = {"positional_symbols", "position_relative", "position_relative_2d"}
    undecayed = model.no_weight_decay()
    assert undecayed <= {*dict(model.named_parameters())}
    assert {*undecayed} >= {"cls_token", "pos_embedding"}
    assert (len(undecayed) == 3) == (symbols in by_position)
    assert "pos_embedding" not in dual(symbols, pos_enc="none").no_weight_decay()


# ---- Another size of images or patches

SIZES = [(16, 12), (4, 24), (6, 16), (8, 20)]  # heights and widths, in pixels: from (4, 3) to other grids


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize(
    "sizes", [{}, {"img_size": (8, 12)}, {"patch_size": (2, 4)}, {"img_size": (8, 12), "patch_size": (2, 4)}]
)
def test_the_same_size_changes_nothing(symbols, sizes):
    model = dual(symbols)
    before = {name: (id(p), p.clone()) for name, p in model.named_parameters()}
    model.set_input_size(**sizes)
    assert {name: id(p) for name, p in model.named_parameters()} == {name: key for name, (key, _) in before.items()}
    assert all(torch.equal(p, before[name][1]) for name, p in model.named_parameters())


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("pos_enc", ["interpolated", "none"])
@pytest.mark.parametrize("build", [vit, lambda **k: dual("symbolic_attention", **k)])
def test_a_model_of_another_size_computes_what_resized_positions_did(build, pos_enc, size):
    model, images = float64(build(pos_enc=pos_enc)), normal(2, 3, *size)
    before = model(images)
    model.set_input_size(size)
    torch.testing.assert_close(model(images), before)
    assert model.grid_size == (size[0] // 2, size[1] // 4)


@pytest.mark.parametrize("symbols", ["positional_symbols", "position_relative"])
def test_symbols_of_places_in_a_row_are_of_one_width_of_images(symbols):
    model = dual(symbols, pos_enc="interpolated")
    rows, columns = model.grid_size
    model(torch.randn(2, 3, 2 * (rows - 1), 4 * columns))
    with pytest.raises(
        ValueError, match=r"^x: symbol_retriever tells tokens by their place in one row, which \d column"
    ):
        model(torch.randn(2, 3, 2 * rows, 4 * (columns - 1)))


@pytest.mark.parametrize("symbols", ["symbolic_attention", "positional_symbols", "position_relative_2d"])
@pytest.mark.parametrize("size", SIZES)
def test_every_parameter_of_another_size_gets_a_gradient(symbols, size):
    model = dual(symbols).bfloat16().eval()
    model.pos_embedding.requires_grad_(False)
    model.set_input_size(size)
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}
    model(torch.randn(2, 3, *size, dtype=torch.bfloat16)).square().sum().backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == ["pos_embedding"]


@pytest.mark.parametrize("reach", [(0, 1), (1, 0), (2, 1), (3, 2), (5, 9)])  # the grid's offsets are up to (3, 2)
@pytest.mark.parametrize("size", SIZES)
def test_symbols_of_a_grid_name_the_same_distances_in_the_image(reach, size):
    model = float64(vidat(symbol_retrieval_kwargs={"symbol_dim": 8, "max_rel_pos": reach}))
    library, old = model.symbol_retriever.symbol_library, model.grid_size
    slopes = normal(2, 8)

    def distances(grid: tuple[int, int], unit: tuple[float, float]) -> torch.Tensor:
        place = torch.cartesian_prod(*(torch.arange(n).double() * u for n, u in zip(grid, unit, strict=True)))
        return place[None] - place[:, None]

    steps = torch.cartesian_prod(*(torch.arange(-r, r + 1, dtype=torch.float64) for r in reach))
    with torch.no_grad():
        library[:-3] = steps @ slopes  # linear in the offset
    ahead = library[-3:].clone()
    model.set_input_size(size)
    retriever, new = model.symbol_retriever, model.grid_size
    unit = (old[0] / new[0], old[1] / new[1])
    found = retriever(torch.zeros(1, 1 + new[0] * new[1], 8), new).dense()[1:, 1:]
    bounds = torch.tensor([r if n == m else min(r, n - 1) for r, n, m in zip(reach, old, new, strict=True)])
    wanted = distances(new, unit).clamp(-bounds, bounds) @ slopes
    torch.testing.assert_close(found, wanted)
    assert torch.equal(retriever.symbol_library[-3:], ahead)


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("of_features", [True, False])
def test_another_size_of_a_model_or_of_its_features_leaves_the_other_as_it_was(symbols, of_features):
    model, images = float64(dual(symbols)), normal(*IMAGES)
    models = model, model.features_only().model
    changed, kept = models[::-1] if of_features else models
    before = kept.forward_features(images)
    changed.set_input_size((16, 12))
    changed.register_buffer("own", torch.zeros(1))
    changed.register_forward_hook(lambda *_: None)
    assert torch.equal(kept.forward_features(images), before)
    assert changed.forward_features(normal(2, 3, 16, 12)).shape == (2, 1 + 24, 8)
    assert not hasattr(kept, "own") and not kept._forward_hooks


@pytest.mark.parametrize("reach", [(1, 1), (3, 2), (9, 9)])
def test_symbols_come_back_from_twice_the_grid(reach):
    model = float64(vidat(symbol_retrieval_kwargs={"symbol_dim": 8, "max_rel_pos": reach}))
    x, before = torch.zeros(1, 13, 8), model.symbol_retriever(torch.zeros(1, 13, 8), (4, 3)).dense()
    model.set_input_size((16, 24))
    model.set_input_size((8, 12))
    torch.testing.assert_close(model.symbol_retriever(x, (4, 3)).dense(), before)


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("factor", [2, 3])
def test_larger_patches_of_images_with_repeated_pixels_are_the_same_tokens(symbols, factor):
    model, images = float64(dual(symbols)), normal(*IMAGES)
    for part in (1, 3):  # normalisations that do something
        for parameter in model.to_patch_embedding[part].parameters():
            torch.nn.init.normal_(parameter)
    before = model(images)
    model.set_input_size((8 * factor, 12 * factor), (2 * factor, 4 * factor))
    larger = images.repeat_interleave(factor, 2).repeat_interleave(factor, 3)
    torch.testing.assert_close(model(larger), before, atol=1e-5, rtol=1e-5)  # of the epsilon of normalisation
    assert model.grid_size == (4, 3)


def test_what_cannot_be_resized_is_refused_by_name():
    for symbols, name in (("position_relative", "symbol_retriever"), ("positional_symbols", "symbol_retriever")):
        model = dual(symbols)
        if symbols == "positional_symbols":
            arguments = {"symbol_dim": 8, "max_length": 30, "sinusoidal": True}
            model = dual(symbols, symbol_retrieval_kwargs=arguments)
        before = {key: value.clone() for key, value in model.state_dict().items()}
        with pytest.raises(ValueError, match=rf"img_size: {name} .*4 columns .*of 3"):
            model.set_input_size((8, 16))
        assert model.grid_size == (4, 3) and all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
        model.set_input_size((12, 12))  # only more rows
        assert model(torch.randn(2, 3, 12, 12)).shape == (2, 5)


# ---- Registers


@pytest.mark.parametrize("symbols", SYMBOLS)
@pytest.mark.parametrize("pool", ["cls", "mean", "patches"])
def test_registers_are_attended_to_and_not_pooled(symbols, pool):
    torch.manual_seed(0)
    plain = dual(symbols, pool=pool).double()
    torch.manual_seed(0)
    model, images = dual(symbols, pool=pool, n_registers=2).double(), normal(*IMAGES)
    assert {*model.state_dict()} - {*plain.state_dict()} == {"registers"}
    hidden = model.hidden(images)
    assert hidden.shape == (2, 1 + 2 + 12, 8) and model.num_prefix_tokens == 3
    kept = torch.cat((hidden[:, :1], hidden[:, 3:]), 1)
    torch.testing.assert_close(model.pooled(hidden), plain.pooled(kept))
    patches, prefix = model.forward_intermediates(images, 1, return_prefix_tokens=True, intermediates_only=True)[0]
    assert patches.shape == (2, 8, 4, 3) and torch.equal(prefix, hidden[:, :3])
    model(images).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters() if p.requires_grad)
    assert model.registers.grad.abs().sum() > 0 and "registers" in model.no_weight_decay()
    assert "registers" in model.layer_groups()[0]


@KINDS
def test_registers_stand_between_class_token_and_patches_without_positions(build):
    model = float64(build(n_registers=2))
    entered = []
    model.encoder_blocks[0].register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0]))
    model(normal(*IMAGES))
    assert torch.equal(entered[0][:, 1:3], model.registers.expand(2, 2, 8))
    torch.testing.assert_close(entered[0][:, :1], (model.cls_token + model.pos_embedding[:, :1]).expand(2, 1, 8))
    images = normal(*IMAGES)
    before = model(images)
    model.load_state_dict({**model.state_dict(), "registers": model.registers.flip(1)})
    torch.testing.assert_close(model(images), before)  # their order is nothing that tokens know


@pytest.mark.parametrize("symbols", ["positional_symbols", "position_relative_2d"])
def test_another_size_leaves_registers_and_their_symbols_as_they_are(symbols):
    model = dual(symbols, n_registers=2)
    ahead = model.symbol_retriever.state_dict()
    model.set_input_size((16, 24))
    assert model(torch.randn(2, 3, 16, 24)).shape == (2, 5)
    (table,), (old,) = model.symbol_retriever.state_dict().values(), ahead.values()
    kept = slice(3) if symbols == "positional_symbols" else slice(-3, None)
    assert torch.equal(table[kept], old[kept])
