"""Renew the rows of clients.md: tools that others use with a model, each tried on small Dual Attention Transformers.

    python -m docs.clients [NAME ...]

What worked by the page and does no more is told, and the exit status is 1. `make clients` installs the tools.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import torch

from dual_attention import DualAttnTransformerLM, VisionDualAttnTransformer
from tests.library.hf import models, test_export

PAGE = Path(__file__).with_name("clients.md")
SECONDS = 3600
PYTHON = sys.executable
PYTEST = f"{PYTHON} -m pytest -q -n0"
SOURCE = "import sys; from docs import clients; clients.CLIENTS[sys.argv[1]].run(clients.Path(sys.argv[2]))"
ALONE = [PYTHON, "-u", "-c", SOURCE]
GREEDY: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
TRAINING = "train recall --data.n_val=32 --data.n_test=32 --model.d_model=16 --loop.steps=10 --loop.eval_every=10"


class Client(NamedTuple):
    """What is installed for a tool, and a function or a command that does in an empty folder what a user does."""

    packages: list[str]
    run: Callable[[Path], Any] | str


CLIENTS: dict[str, Client] = {}


def client(name: str, packages: str) -> Callable[[Callable[[Path], Any]], None]:
    return lambda run: CLIENTS.update({name: Client(packages.split(), run)})


def shell(command: str, *more: Any) -> None:
    """Run a command, which says last why it fails."""
    if status := subprocess.call([*command.split(), *map(str, more)], stderr=subprocess.STDOUT):
        sys.exit(status)


@client("torchao", "torchao")
def _(folder: Path) -> None:
    from torchao import quantization as ao  # pyright: ignore[reportMissingImports]

    for config in (ao.Int8WeightOnlyConfig(), ao.Int8DynamicActivationInt8WeightConfig()):
        model, x = models.causal(), models.tokens(2, 9)
        wanted = model(x).logits
        ao.quantize_(model, config)
        assert 0 < (model(x).logits - wanted).abs().max() < 0.03 * wanted.abs().max()
        model.generate(x, **GREEDY)


@client("AOTInductor", "torch")
@torch.no_grad()
def _(folder: Path) -> None:
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    model = test_export.causal_logits("symbolic_attention", pos_enc_type="RoPE").eval()
    program = torch.export.export(model, test_export.padded(2, 7), dynamic_shapes=test_export.open_sizes())
    package = aoti_compile_and_package(program, package_path=str(folder / "model.pt2"))
    test_export.assert_same(aoti_load_package(package), model, atol=1e-4, rtol=1e-4)


SHARDED = """
import torch
from accelerate import Accelerator
from torch.distributed.fsdp import fully_shard
from tests.library.hf import models
torch.manual_seed(0)
accelerator, model, x = Accelerator(cpu=True), models.causal().train(), models.tokens(4, 12)
for part in [part for part in model.modules() if type(part).__name__ in model._no_split_modules]:
    fully_shard(part)
optimizer, losses = accelerator.prepare(torch.optim.AdamW(fully_shard(model).parameters(), 1e-2)), []
for _ in range(10):
    losses.append(model(input_ids=x, labels=x).loss)
    accelerator.backward(losses[-1])
    optimizer.step()
    optimizer.zero_grad()
assert accelerator.num_processes == 2 and losses[-1] < losses[0] - 0.1, losses
"""


@client("accelerate", "accelerate")
def _(folder: Path) -> None:
    (script := folder / "train.py").write_text(SHARDED)
    shell(f"env PYTHONPATH=. {PYTHON} -m torch.distributed.run --standalone --nproc_per_node=2 {script}")


@client("PEFT", "peft")
def _(folder: Path) -> None:
    import peft

    names: Any = {"target_modules": ["wq", "wv"]}
    configs = [
        peft.LoraConfig(r=2, **names),
        peft.LoraConfig(r=2, use_dora=True, **names),
        peft.VeraConfig(r=2, **names),
    ]
    configs += [peft.LoHaConfig(r=2, **names), peft.OFTConfig(oft_block_size=4, **names)]
    for config in [*configs, peft.IA3Config(**names, feedforward_modules=[])]:
        model, x = peft.get_peft_model(models.causal(), config), models.tokens(2, 9)
        model(input_ids=x, labels=x).loss.backward()
        torch.optim.SGD([p for p in model.parameters() if p.grad is not None], 0.1).step()
        found = model.eval()(input_ids=x).logits
        model.generate(input_ids=x, **GREEDY)
        model.save_pretrained(folder)
        torch.testing.assert_close(model.merge_and_unload()(x).logits, found, atol=1e-3, rtol=1e-3)


@client("sentence-transformers", "sentence-transformers")
def _(folder: Path) -> None:
    import sentence_transformers as st  # pyright: ignore[reportMissingImports]
    from sentence_transformers.losses import MultipleNegativesRankingLoss  # pyright: ignore[reportMissingImports]
    from sentence_transformers.models import Pooling, Transformer  # pyright: ignore[reportMissingImports]

    from dual_attention.hf import DualAttnEncoderModel

    tokenizer, name, texts = models.byte_tokenizer(pad_token="<pad>"), str(folder), ["to be", "that is the question"]
    DualAttnEncoderModel(models.encoder_config(vocab_size=len(tokenizer))).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    model = st.SentenceTransformer(modules=[Transformer(name), Pooling(16)], device="cpu")
    pairs: Any = [st.InputExample(texts=[text, text.upper()]) for text in texts]
    loss = MultipleNegativesRankingLoss(model)
    model.fit([(torch.utils.data.DataLoader(pairs, 2), loss)], epochs=1, show_progress_bar=False)
    model.save(name)
    again = st.SentenceTransformer(name, device="cpu").encode(texts)
    torch.testing.assert_close(again[0], model.encode(texts[0]), atol=1e-5, rtol=0)


@client("timm", "timm torchvision")
def _(folder: Path) -> None:
    """Its tests are in its source."""
    shell(f"{PYTHON} -m pip download -q --no-deps --no-binary timm timm=={version('timm')} -d {folder}")
    shutil.unpack_archive(next(folder.glob("timm-*.tar.gz")), folder)
    (conftest,) = folder.glob("timm-*/tests/conftest.py")
    with conftest.open("a") as file:
        file.write("from dual_attention.timm_models import register_with_timm as register\nregister()\n")
    chosen = "(vidat or vit_plain) and not fx and not torchscript and not default_cfgs"
    shell(f"{PYTEST} --rootdir {folder} {conftest.with_name('test_models.py')} -k", chosen)


@client("torchvision", "torchvision")
def _(folder: Path) -> None:
    from torchvision.models.feature_extraction import create_feature_extractor  # pyright: ignore[reportMissingImports]

    model = VisionDualAttnTransformer((3, 8, 8), (4, 4), 5, d_model=32, n_layers=2, n_heads_sa=1, n_heads_ra=1)
    features = create_feature_extractor(model.eval(), {"encoder_blocks.1": "second"})
    assert features(torch.randn(2, 3, 8, 8))["second"].shape == (2, 5, 32)


@client("Optuna", "optuna")
def _(folder: Path) -> None:
    import optuna  # pyright: ignore[reportMissingImports]

    def objective(trial: Any) -> float:
        heads, x = trial.suggest_int("n_heads_ra", 1, 3), models.tokens(4, 9)
        return DualAttnTransformerLM(32, 32, 1, 4 - heads, heads, max_block_size=16).loss(x, x).item()

    study = optuna.create_study()
    study.optimize(objective, n_trials=3)
    assert study.best_params.keys() == {"n_heads_ra"}


@client("MLflow", "mlflow")
def _(folder: Path) -> None:
    import mlflow  # pyright: ignore[reportMissingImports]

    x = torch.randn(*models.IMAGES)
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlflow.db")
    mlflow.set_experiment(experiment_id=mlflow.create_experiment("dat", artifact_location=f"{folder}/artifacts"))
    with mlflow.start_run():
        mlflow.log_metric("loss", 0.5)
        logged = mlflow.pytorch.log_model(vision := models.vision().model, name="model", input_example=x.numpy())
    torch.testing.assert_close(mlflow.pytorch.load_model(logged.model_uri)(x), vision(x))


@client("bertviz", "bertviz ipython")
def _(folder: Path) -> None:
    from bertviz import head_view  # pyright: ignore[reportMissingImports]

    out, words = models.causal()(models.tokens(1, 6), output_attentions=True), [*"abcdef"]
    for maps in (out.attentions, [relations.permute(0, 3, 1, 2) for relations in out.relations]):
        assert "<script" in head_view([map.detach() for map in maps], words, html_action="return").data


USER = """
import torch
from dual_attention import DualAttention, SymbolicAttention
x = torch.randn(2, 9, 64)
out: torch.Tensor = DualAttention(64, 2, 2)(x, SymbolicAttention(64, 2, 8)(x)).output
reveal_type(out)
DualAttention("64", 2, 2)
"""


@client("mypy", "mypy")
def _(folder: Path) -> None:
    (script := folder / "user.py").write_text(USER)
    printed = subprocess.run([PYTHON, "-m", "mypy", "--strict", script], cwd=folder, text=True, stdout=-1).stdout
    assert printed.count(" error: ") == printed.count("[arg-type]") == printed.count('Revealed type is "torch.') == 1


def train_on(interpreter: str, folder: Path) -> None:
    """Install the package into a new environment, and train."""
    shell(f"{PYTHON} -m uv venv -q --python {interpreter} {folder}/env")
    shell(f"{PYTHON} -m uv pip install -q --python {folder}/env -c constraints.txt .[train]")
    shell(f"{folder}/env/bin/dat {TRAINING} --output.folder={folder}/runs")


ADAPTERS = f"{PYTEST} tests/library/model_analysis/adapters"
for name, packages, command in (
    ("Lightning", "lightning", f"{PYTEST} tests/library/hf/test_checkpoint_loops.py -k Lightning-DualAttnFor"),
    ("ONNX Runtime", "onnxruntime onnx onnxscript", f"{PYTEST} tests/library/hf/test_export.py -k onnx"),
    ("TRL", "trl datasets", f"{PYTEST} tests/library/hf/test_trl.py"),
    ("lm-eval", "lm-eval", f"{PYTEST} tests/library/hf/test_text.py tests/lab/cli/test_export.py -k harness"),
    ("trackio", "trackio", f"{PYTHON} -m dat {TRAINING} --output.tracker=trackio --output.folder="),
    ("TransformerLens", "transformer-lens", f"{ADAPTERS}/test_transformer_lens.py"),
    ("nnsight", "nnsight", f"{ADAPTERS}/test_other_tools.py -k nnsight"),
    ("captum", "captum", f"{ADAPTERS}/test_other_tools.py -k captum"),
    ("Opacus", "opacus", f"{PYTEST} tests/library/test_clients.py -k opacus"),
    (
        "nbconvert",
        "nbconvert ipykernel",
        f"{PYTHON} -m nbconvert --to html --execute examples/look_inside.ipynb --output-dir=",
    ),
    ("uv", "uv", f"{PYTHON} -m uv tool run -c constraints.txt --from .[train] dat {TRAINING} --output.folder="),
):
    CLIENTS[name] = Client(packages.split(), command)
for minor in ("3.10", "3.11", "3.12", "3.13"):
    client(f"Python {minor}", f"python{minor} uv")(partial(train_on, f"python{minor}"))
PACKAGES = [package for tool in CLIENTS.values() for package in tool.packages if not package.startswith("python3")]


def version_of(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return shutil.which(package) and package


def outcome(name: str) -> str:
    """How a tool fares, tried in a process of its own."""
    packages, run = CLIENTS[name]
    if missing := [package for package in packages if version_of(package) is None]:
        return f"untried: {' and '.join(missing)} is not installed"
    with tempfile.TemporaryDirectory() as folder:
        command = f"{run}{folder * run.endswith('=')}".split() if isinstance(run, str) else [*ALONE, name, folder]
        try:
            done = subprocess.run(command, text=True, stdout=-1, stderr=subprocess.STDOUT, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return f"fails: not done after {SECONDS} seconds"
    print(done.stdout, file=sys.stderr)
    return f"fails: {done.stdout.strip().rpartition(chr(10))[2]}".replace("|", "/") if done.returncode else "works"


def renew(names: list[str]) -> list[str]:
    """Try tools, write the row of each when it is done, and return the lines of those that worked and do no more."""
    lost = []
    for name in names:
        start = os.times()
        result = outcome(name)
        print(f"{name}: {result}, {sum(os.times()[2:4]) - sum(start[2:4]):.0f} s of CPU", file=sys.stderr)
        text = PAGE.read_text(encoding="utf-8")
        (before,) = re.findall(rf"^\| {re.escape(name)} \|.*$", text, re.MULTILINE)
        shown = (name, version_of(CLIENTS[name].packages[0]) or "–", torch.__version__, before.split(" | ")[3], result)
        PAGE.write_text(text.replace(before, after := f"| {' | '.join(shown)} |"), encoding="utf-8")
        if result != "works" and before.endswith("| works |"):
            lost.append(after)
    return lost


if __name__ == "__main__":
    lost = renew(sys.argv[1:] or [*CLIENTS])
    print(*lost, sep="\n")
    sys.exit(bool(lost))
