"""Effects of ablations in a small DAT that has learned to copy: exactly, and to first order.

``python -m studies.looking_inside.first_order_effects`` trains it for half a minute on one core and
prints how far the two agree, as the notebook beside it quotes.
"""

import time

import torch
from torch import Tensor, nn

from dual_attention import DualAttnTransformerLM, SymbolConfig
from dual_attention.model_analysis.interventions import (
    Ablate,
    Prediction,
    Target,
    approximate_effects,
    faithfulness,
    measure_effects,
)

TOKENS, LENGTH, STEPS = 32, 16, 150


def repeated(batch: int, generator: torch.Generator) -> Tensor:
    """Random tokens, and the same again, ``(batch, 2 * LENGTH)``."""
    half = torch.randint(TOKENS, (batch, LENGTH), generator=generator)
    return torch.cat([half, half], dim=1)


def trained(generator: torch.Generator) -> DualAttnTransformerLM:
    """A model that has learned to copy."""
    torch.manual_seed(0)
    symbols = SymbolConfig(d_model=64, n_heads=4, n_symbols=32)
    model = DualAttnTransformerLM(
        vocab_size=TOKENS,
        d_model=64,
        n_layers=2,
        n_heads_sa=2,
        n_heads_ra=2,
        dff=128,
        dropout_rate=0.0,
        activation="gelu",
        norm_first=True,
        max_block_size=2 * LENGTH,
        symbol_retrieval="symbolic_attention",
        symbol_retrieval_kwargs=symbols,
        ra_kwargs={"n_relations": 8},
    )
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(STEPS):
        x = repeated(64, generator)
        loss = model.loss(x[:, :-1], x[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


def predict_copies(model: nn.Module, document: Tensor) -> Prediction:
    """Predictions of the second half, with a wrong token beside each right one."""
    targets = document[:, 1:].clone()
    targets[:, : LENGTH - 1] = -1
    foils = ((targets + 7) % TOKENS).masked_fill(targets < 0, -1)
    return Prediction(model(document[:, :-1]).logits, targets, foils)


def ablations() -> dict[str, Ablate]:
    """Mean-ablations of each head, selection, relation and symbol of two layers."""
    found = {}
    for layer in range(2):
        for kind in ("sensory", "relational"):
            for head in range(2):
                for mediator in ("head", "selection"):
                    target = Target(mediator, layers=layer, heads={kind: head})
                    found[f"{mediator} {layer}.{kind}.{head}"] = Ablate(target, "mean")
        for relation in range(8):
            found[f"relation {layer}.{relation}"] = Ablate(Target("relation", layers=layer, relations=relation), "mean")
        for head in range(2):
            found[f"symbol {layer}.{head}"] = Ablate(Target("symbol", layers=layer, heads=head), "mean")
    return found


def main() -> None:
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    model = trained(generator)
    documents = [repeated(50, generator) for _ in range(2)]
    study = ablations()
    print("| metric | mediator | n | exact (mean size) | correlation | slope | same sign |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for metric in ("loss", "logit_difference"):
        times = []
        results = []
        for measure in (measure_effects, approximate_effects):
            started = time.perf_counter()
            results.append(measure(model, documents, study, metrics=[metric], predict=predict_copies))
            times.append(time.perf_counter() - started)
        for mediator in ("", "head", "selection", "relation", "symbol"):
            exact, first = ([effect for effect in each if effect.name.startswith(mediator)] for each in results)
            found = faithfulness(exact, first)
            print(
                f"| {metric} | {mediator or 'all'} | {found.n} | {found.mean_size:.2g} | {found.correlation:.2f} "
                f"| {found.slope:.3g} | {found.same_sign:.2f} |"
            )
        print(f"{metric}: exact {times[0]:.1f} s, first order {times[1]:.1f} s")


if __name__ == "__main__":
    main()
