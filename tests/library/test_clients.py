"""Tools of PyTorch that take a model apart, or build it without numbers, serve a DAT as they serve a Transformer."""

import pytest
import torch
import torch.nn.functional as F
from torch._dynamo.testing import CompileCounter
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.distributed.pipelining import SplitPoint, pipeline
from torch.func import functional_call, grad, vmap
from torch.utils._pytree import tree_leaves
from torch.utils.data import DataLoader, TensorDataset

from tests.support import families, language, seq2seq
from tests.support.documents import ROOT, blocks

SPLITS = [
    *((kind, {}) for kind in language.KINDS),
    ("symbolic_attention", {"ra_kwargs": {"symmetric_rels": True}}),
    ("positional_symbols", {"pos_enc_type": "RoPE"}),
    ("position_relative", {"symbol_retriever_config": {"shared_symbol_retriever": False}}),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "options"), SPLITS, ids=str)
def test_pipelining_splits_between_blocks(kind, options):
    model, x = language.lm(kind, **options), language.tokens(2, 9)
    wanted, names = model(x).logits, list(model.state_dict())
    pipe = pipeline(model, (x,), split_spec={"layers.blocks.1": SplitPoint.BEGINNING})
    assert pipe.num_stages == 2 and list(model.state_dict()) == names
    torch.testing.assert_close(pipe(x)[0], wanted)


@pytest.mark.parametrize("kind", language.KINDS)
def test_gradients_of_each_example_leave_a_model_as_it_was(kind):
    """By ``torch.func``, as training with differential privacy takes them; they add up to those of all examples."""
    model, x = language.lm(kind), language.tokens(3, 7)
    own = dict(model.named_parameters())
    wanted = torch.autograd.grad(model(x).logits.square().sum(), list(own.values()))
    values = {name: parameter.detach() for name, parameter in own.items()}
    by_example = vmap(grad(lambda w, row: functional_call(model, w, (row[None],)).logits.square().sum()), (None, 0))
    found = by_example(values, x)
    torch.testing.assert_close([found[name].sum(0) for name in own], list(wanted))
    kept = dict(model.named_parameters())
    assert kept.keys() == own.keys() and all(kept[name] is own[name] for name in own)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("position", ["pos_emb", "RoPE"])
@pytest.mark.parametrize("kind", language.KINDS)
def test_opacus_samples_gradients_of_each_example(kind, position):
    """By its hooks, as docs/extending-training.md shows; they are those of each example alone."""
    pytest.importorskip("opacus.privacy_engine")  # a folder of that name is no package
    page = blocks((ROOT / "docs/extending-training.md").read_text(encoding="utf-8"))
    (code,) = (block.text for block in page if "register_grad_sampler" in block.text)
    model, x = language.lm(kind, pos_enc_type=position), language.tokens(6, 7)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    wanted = []
    for row in x:
        loss = F.cross_entropy(model(row[None]).logits[0], row)
        wanted.append(torch.autograd.grad(loss, list(model.parameters())))
    loader = DataLoader(TensorDataset(x, x), batch_size=2)
    given = {"model": model, "loader": loader, "optimizer": torch.optim.SGD(model.parameters(), lr=0.1)}
    exec(code, given)  # by Poisson sampling: batches of any size
    assert model.state_dict().keys() == before.keys()
    assert any(not value.equal(before[name]) for name, value in model.state_dict().items())

    model.load_state_dict(before)
    given["optimizer"].zero_grad()
    F.cross_entropy(given["flat"](x).mT, x).backward()
    found = [parameter.grad_sample for parameter in model.parameters()]
    torch.testing.assert_close(found, [torch.stack(each) for each in zip(*wanted, strict=True)])
    given["optimizer"].zero_grad()
    F.cross_entropy(given["flat"](x[:0]).mT, x[:0]).backward()
    assert all(parameter.grad_sample.shape == (0, *parameter.shape) for parameter in model.parameters())
    given["optimizer"].step()
    assert all(parameter.isfinite().all() for parameter in model.parameters())


@pytest.mark.sweep(3)
@pytest.mark.parametrize("kind", language.KINDS)
def test_models_build_and_run_without_numbers(kind):
    with FakeTensorMode():
        model = language.build(kind, pos_enc_type="RoPE")
        logits, loss = model(x := torch.randint(language.VOCAB, (2, 9)), x)
        loss.backward()
    assert logits.shape == (2, 9, language.VOCAB)
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.slow
@pytest.mark.parametrize("symbols", [{"max_rel_pos": 8}, {"sinusoidal": True}], ids=str)
def test_relative_symbols_compile_no_more_graphs_than_symbolic_attention(symbols):
    """Over lengths that pass each size at which choices of what is faster change."""

    def graphs(kind, **more):
        torch._dynamo.reset()
        counter, model = CompileCounter(), language.lm(kind, n_layers=1, **more)
        compiled = torch.compile(model, backend=counter, fullgraph=True)
        with torch.no_grad():
            for length in (3, 4, 5, 8, 15, 16, 20):
                x = language.tokens(2, length)
                torch.testing.assert_close(compiled(x).logits, model(x).logits)
        return counter.frame_count

    sizes = {"symbol_dim": language.WIDTH, **symbols}
    assert graphs("position_relative", symbol_retrieval_kwargs=sizes) <= graphs("symbolic_attention")


FIRST_OF_FAMILY = [
    (name, next(kind for kind in kinds if kind not in families.PLAIN)) for name, (_, kinds) in families.FAMILIES.items()
]
"""A DAT of each."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "kind"),
    [pytest.param(*case, marks=pytest.mark.quick if case in FIRST_OF_FAMILY else ()) for case in families.CASES],
)
def test_every_family_compiles_to_one_graph(family, kind):
    """In training, with masks; a break would be an error. Broken graphs once made a table of times that went unseen."""
    sizes = ("n_layers_enc", "n_layers_dec") if family == "pairs" else ("n_layers",)
    if kind in seq2seq.ABSTRACTORS:  # only some of which have an encoder
        sizes = ()
    model, inputs, masks = families.build(family, kind, **dict.fromkeys(sizes, 1))
    torch._dynamo.reset()
    counter = CompileCounter()
    found = torch.compile(model.train(), backend=counter, fullgraph=True)(*inputs, **masks)
    assert counter.frame_count == 1
    torch.testing.assert_close(tree_leaves(found), tree_leaves(model(*inputs, **masks)))
