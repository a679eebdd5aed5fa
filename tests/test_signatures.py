"""Parameters of everything that the published package has: names, order and defaults; and the options."""

import ast
import functools
import importlib
import inspect
import itertools
import json
import typing
from dataclasses import MISSING, FrozenInstanceError, fields, replace
from pathlib import Path

import pytest
import torch

from dual_attention import (
    Attention,
    AttentionConfig,
    DecoderBlock,
    DisentangledRelationalCrossAttention,
    DualAttention,
    DualAttnDecoderBlock,
    DualAttnEncoderBlock,
    EncoderBlock,
    RelationalAttention,
    RelationalConfig,
    RelationalCrossAttention,
    SymbolConfig,
    TransformerEncoder,
    TransformerLM,
)
from dual_attention._models.retrievers import RETRIEVERS
from dual_attention.baselines import Seq2SeqAbstractor
from dual_attention.configs import DecoderLanguageConfig, EncoderConfig, Seq2SeqConfig, VisionConfig
from dual_attention.encoder_models import DualAttnTransformerEncoder
from dual_attention.language_models import DualAttnTransformerLM
from dual_attention.seq2seq_models import Seq2SeqDualAttnTransformer, Seq2SeqTransformer
from dual_attention.vision_models import VisionDualAttnTransformer, VisionTransformer
from tests.support.language import COMMON, SYMBOLS
from tests.support.refusals import refused

ROOT = Path(__file__).resolve().parent.parent
PUBLISHED = json.loads((ROOT / "tests/golden/signatures.json").read_text(encoding="utf-8"))
PUBLISHED.pop("published")

# Helpers of the published package that are not its interface: dual_attention.functional has what they do.
GONE = ("attention_utils.", "model_utils.", "symbol_retrieval.RelationalSymbolicAttention.compute_")


def resolve(name: str) -> typing.Any:
    module, *path = name.split(".")
    return functools.reduce(getattr, path, importlib.import_module(f"dual_attention.{module}"))


def complaints(name: str) -> list[str]:
    """Differences of a function or constructor from the published one, other than that more may be left out."""
    target = resolve(name)
    ours = list(inspect.signature(target).parameters.values())
    wrong = []
    for number, (parameter, *default) in enumerate(PUBLISHED[name]):
        if parameter == "self":
            continue
        if number >= len(ours) or ours[number].name != parameter or ours[number].kind.name != "POSITIONAL_OR_KEYWORD":
            wrong.append(f"{name}: {parameter} is not at place {number}")
        elif default and ours[number].default != default[0]:
            wrong.append(f"{name}: {parameter} is {ours[number].default!r} by default, not {default[0]!r}")
    more = ours[len(PUBLISHED[name]) :]
    if inspect.isclass(target):
        wrong += [f"{name}: {new.name} is not keyword-only" for new in more if new.kind is not new.KEYWORD_ONLY]
    return wrong + [f"{name}: {new.name} is required" for new in more if new.default is new.empty and new.kind < 4]


def test_published_signatures():
    names = [name for name in PUBLISHED if not name.startswith(GONE)]
    assert len(names) > 60
    assert not [complaint for name in names for complaint in complaints(name)]


@pytest.mark.parametrize(
    ("kind", "whole", "parts"),
    [
        (AttentionConfig, [Attention], []),
        (RelationalConfig, [RelationalAttention], [RelationalCrossAttention, DisentangledRelationalCrossAttention]),
        (SymbolConfig, RETRIEVERS.values(), []),
    ],
)
def test_options_are_the_arguments_of_the_classes(kind, whole, parts):
    """Types and defaults agree; arguments that the surrounding layer sets, and ``activation``, are no options."""
    known = {about.name: about.default for about in fields(kind)}
    hints = typing.get_type_hints(kind)
    elsewhere = set() if kind is SymbolConfig else {"d_model", "n_heads", "dropout", "activation"}
    taken = set()
    for build in (*whole, *parts):
        types = typing.get_type_hints(build.__init__)
        for name, about in inspect.signature(build).parameters.items():
            if name in elsewhere:
                continue
            required = about.default is about.empty
            assert known[name] == (None if required else about.default), (build, name)
            assert hints[name] == types[name] or (kind is SymbolConfig and types[name] | hints[name] == hints[name])
            taken |= {name} if build in whole else set()
    assert taken == known.keys()


FAMILIES = {
    DecoderLanguageConfig: (TransformerLM, DualAttnTransformerLM),
    EncoderConfig: (TransformerEncoder, DualAttnTransformerEncoder),
    VisionConfig: (VisionTransformer, VisionDualAttnTransformer),
    Seq2SeqConfig: (Seq2SeqTransformer, Seq2SeqDualAttnTransformer, Seq2SeqAbstractor),
}


@pytest.mark.parametrize("config", FAMILIES)
def test_constructors_are_doors_in_front_of_the_configurations(config):
    """Every argument is a field of the family's, of the same type and default."""
    known = {about.name: about for about in fields(config)}
    hints = typing.get_type_hints(config)
    own = ("device", "dtype", "n_layers_abs", "abstractor_kwargs", "abstractor_reads", "decoder_reads")
    for build in FAMILIES[config]:
        types = typing.get_type_hints(build.__init__)
        for name, parameter in inspect.signature(build).parameters.items():
            if name in own:
                continue
            if parameter.default is not parameter.empty:
                assert known[name].default == parameter.default, (build, name)
            hint = hints[name]
            plain = hint == types[name] or set(typing.get_args(types[name])) <= set(typing.get_args(hint))
            required = known[name].default is not MISSING and parameter.default is parameter.empty
            assert plain or required or "kwargs" in name or "spec" in name, (build, name)


def test_every_field_has_help_where_it_is_first_told():
    """A string under it, which the command line takes too, from the base classes of a configuration."""
    told, silent = set(), set()
    for kind in ast.parse((ROOT / "dual_attention/configs.py").read_text(encoding="utf-8")).body:
        for node, after in itertools.pairwise([*getattr(kind, "body", ()), None]):
            if isinstance(node, ast.AnnAssign) and isinstance(kind, ast.ClassDef):
                helped = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
                (told if helped else silent).add(ast.unparse(node.target))
    options = (AttentionConfig, RelationalConfig, SymbolConfig)
    assert told >= {about.name for config in (*FAMILIES, *options) for about in fields(config)}
    assert silent <= told


@pytest.mark.parametrize(
    "method",
    [
        *(block.forward for block in (EncoderBlock, DecoderBlock, DualAttnEncoderBlock, DualAttnDecoderBlock)),
        *(TransformerLM.hidden, TransformerLM.trace, TransformerEncoder.trace),
    ],
)
def test_help_names_every_mask(method):
    names = inspect.signature(method).parameters
    assert {"padding_mask", "segments"} <= set(names)
    assert not [about for about in names.values() if about.kind in (about.VAR_KEYWORD, about.VAR_POSITIONAL)]


def test_a_configuration_keeps_copies():
    given = {"n_kv_heads": 1}
    config = DecoderLanguageConfig.of({**COMMON, "sa_kwargs": given, "unknown": 3})
    given["n_kv_heads"] = 2
    assert config.sa_kwargs == {"n_kv_heads": 1}
    assert "vocab_size" not in config.arguments_for(EncoderBlock)
    assert config.arguments_for(EncoderBlock)["d_model"] == COMMON["d_model"]


def test_options_stand_for_a_dict_of_those_that_are_not_at_their_defaults():
    options = RelationalConfig(n_relations=8, symmetric_rels=True, rel_score="dot")
    assert dict(options) == {"n_relations": 8, "symmetric_rels": True} == {**options} and len(options) == 2
    assert not RelationalConfig() and "rel_score" not in options and hash(options) == hash(replace(options))
    nested = {"encoder_kwargs": {"ra_kwargs": options}, "decoder_kwargs": {}, "input_spec": SPEC, "output_spec": SPEC}
    config = Seq2SeqConfig.of({**ENDS, **nested})
    assert config.encoder_kwargs == {"ra_kwargs": dict(options)}
    assert type(config.encoder_kwargs["ra_kwargs"]) is dict


SIZES = {"dff": 8, "dropout_rate": 0.0, "activation": "relu", "norm_first": True}
DUAL = {"d_model": 8, "n_heads_sa": 1, "n_heads_ra": 1}
SPEC = {"type": "token", "vocab_size": 5}
ENDS = {"d_model": 8, "out_dim": 5, "n_layers_enc": 1, "n_layers_dec": 1, "in_block_size": 4, "out_block_size": 4}


test_wrong_options_are_refused_by_name = refused(
    (lambda: DualAttention(**DUAL, sa_kwargs={"n_kv_head": 1}), "sa_kwargs: .*Attention, got 'n_kv_head';.*n_kv_heads"),
    (lambda: DualAttention(**DUAL, ra_kwargs={"n_relation": 1}), "ra_kwargs: .* got 'n_relation'; .* n_relations"),
    (lambda: DualAttention(**DUAL, ra_kwargs={"wr_init": "large"}, ra_type="rca"), "ra_kwargs: .*Cross.*wr_init"),
    (lambda: DualAttention(**DUAL, ra_kwargs=RelationalConfig(wr_init="large"), ra_type="rca"), "ra_kwargs: .*wr_init"),
    (lambda: DualAttention(**DUAL, sa_kwargs={"n_heads": 1}), "sa_kwargs: .* got 'n_heads'"),
    (lambda: EncoderBlock(8, 2, **SIZES, attn_kwargs={"windows": 2}), "attn_kwargs: .* got 'windows'; .* window"),
    (lambda: DecoderBlock(8, 2, 2, **SIZES, cross_kwargs={"zz": 2}), "cross_kwargs: .* 'zz', which are dropout, "),
    (
        lambda: DualAttnTransformerLM(
            **COMMON,
            n_heads_sa=2,
            n_heads_ra=2,
            symbol_retrieval_kwargs={**SYMBOLS["symbolic_attention"], "n_symbol": 2},
        ),
        "symbol_retrieval_kwargs: .* SymbolicAttention, got 'n_symbol'; .* n_symbols",
    ),
    (lambda: TransformerLM(**COMMON, n_heads=4, block_kwargs={"causal": False}), "block_kwargs: .* got 'causal'"),
    (
        lambda: Seq2SeqTransformer(
            SPEC, SPEC, **ENDS, encoder_kwargs={"n_heads": 2, **SIZES, "norm": 1}, decoder_kwargs={}
        ),
        "encoder_kwargs: .* EncoderBlock, got 'norm'; .* norm_",
    ),
    (lambda: DualAttention(**DUAL, sa_kwargs=[1]), TypeError, r"sa_kwargs: expected a mapping or None, got \[1\]"),
    (lambda: RelationalConfig(symmetric_rels=1), TypeError, "symmetric_rels: expected True or False, got 1"),
    (lambda: setattr(RelationalConfig(n_relations=8), "n_relations", 2), FrozenInstanceError, "n_relations"),
)


def test_layers_and_blocks_are_made_by_keyword():
    """Their orders differ: an encoder block takes dropout and activation, one with dual attention the reverse."""
    wrong = []
    for path in sorted((ROOT / "dual_attention").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or len(node.args) <= 3:
                continue
            if not node.func.id.lstrip("_")[:1].isupper():
                continue
            module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
            made = getattr(module, node.func.id, None)
            if inspect.isclass(made) and issubclass(made, torch.nn.Module):
                wrong.append(
                    f"{path.relative_to(ROOT)}:{node.lineno}: {node.func.id} takes {len(node.args)} by position"
                )
    assert not wrong
