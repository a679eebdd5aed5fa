"""The examples do what they say: what is to be learned is learned, in less time than a reader gives them."""

import json
import math
import re
import threading
import urllib.request
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any

import pytest
import torch

from dat._own_code import module_of
from tests.support.documents import ROOT
from tests.support.notebooks import code_cells, run_notebook

NUMBER = re.compile(r"-?\d+(?:\.\d+)?")


def script(name: str) -> ModuleType:
    return module_of(ROOT / "examples" / name)


def test_own_table():
    found = script("own_table.py").main(epochs=4, seeds=1)
    assert min(found["DAT"] + found["Transformer"]) > 0.8 > found["most frequent class"][0]


@pytest.mark.slow
def test_games():
    """The quickest of the models, also on objects that it has never seen."""
    found = script("games.py").main(epochs=20, seeds=1, names=["CoRelNet"])
    assert min(found["CoRelNet"]) > 0.85  # chance: 0.5


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing.* is deprecated:FutureWarning")
def test_text_to_server(tmp_path: Path):
    """The adapter lowers the loss, is part of what is served, and the server answers."""
    peft, transformers = pytest.importorskip("peft"), pytest.importorskip("transformers")
    example = script("text_to_server.py")
    exported = example.train_and_export(str(ROOT / "docs/tour.md"), tmp_path, steps=15)
    before, after = example.adapt(exported, str(ROOT / "dual_attention/language_models.py"), tmp_path, steps=60)
    assert after < before - 0.05

    with pytest.raises(SystemExit, match=r"none\.txt: expected more text, got 0 characters"):
        example.adapt(exported, str(tmp_path / "none.txt"), tmp_path, steps=1)

    base, merged = map(transformers.AutoModelForCausalLM.from_pretrained, (exported, tmp_path / "adapted"))
    beside = peft.PeftModel.from_pretrained(base, tmp_path / "adapter")
    tokens = torch.randint(256, (2, 30))
    with torch.no_grad():
        torch.testing.assert_close(merged.eval()(tokens).logits, beside.eval()(tokens).logits, atol=1e-4, rtol=1e-4)

    with example.server(tmp_path / "adapted", port=0) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address, prompt = f"http://127.0.0.1:{server.server_port}", json.dumps({"prompt": "def "}).encode()
        with urllib.request.urlopen(address, prompt) as answer:
            assert json.load(answer)["text"].startswith("def ")
        server.shutdown()


def check_outputs(name: str) -> dict[str, Any]:
    """Run a notebook, whose outputs must be those that it keeps; numbers may differ as between processors. Returns what
    its cells leave.
    """
    path = ROOT / "examples" / name
    kept, (new, namespace) = json.loads(path.read_text(encoding="utf-8")), run_notebook(path)
    assert len(kept["cells"]) <= 15
    for before, after in zip(code_cells(kept), code_cells(new), strict=True):
        assert before["execution_count"] == after["execution_count"]
        for was, found in zip(before["outputs"], after["outputs"], strict=True):
            assert was["output_type"] == found["output_type"]
            assert len(was.get("data", {}).get("image/png", "")) < 100_000
            texts = ["".join(output.get("text") or output["data"]["text/plain"]) for output in (was, found)]
            words = [re.sub(r" +", " ", NUMBER.sub("0", text)) for text in texts]
            assert words[0] == words[1]
            for one, other in zip(*(map(float, NUMBER.findall(text)) for text in texts), strict=True):
                assert math.isclose(one, other, rel_tol=0.1, abs_tol=3), texts
    return namespace


@pytest.mark.slow
def test_padded_classifier():
    """Both models learn, and the block is ahead of the layer that it replaces."""
    accuracy = check_outputs("padded_classifier.ipynb")["accuracy"]
    assert fmean(accuracy["after"]) > fmean(accuracy["before"]) > 0.7  # the more frequent class: 0.52


@pytest.mark.slow
def test_own_relation_and_symbols():
    """The relation is of use, and only symbols say where a partner stands."""
    accuracy = check_outputs("own_relation_and_symbols.ipynb")["accuracy"]
    assert min(accuracy["Near, ByHalf"]) > 0.75
    assert min(accuracy["Near, no symbols"][::2]) > 0.75
    assert max(accuracy["Near, no symbols"][1::2]) < 0.55


@pytest.mark.slow
def test_look_inside():
    """A relation has learned what the task asks, has not learned what it does not ask, and the model uses it."""
    left = check_outputs("look_inside.ipynb")
    assert left["right"] > 0.95
    assert float(left["found"]["trained", "colour"].max()) > 0.95
    assert float((left["found"]["trained", "shape"] - 0.5).abs().max()) < 0.1
    assert left["drops"]["all relations"] > 0.2
    assert left["drops"]["random directions"] < left["drops"][f"relation {left['best']}"]
