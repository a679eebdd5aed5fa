"""What the room imports, and what it says when something is missing."""

import subprocess
import sys
from pathlib import Path

import pytest

import dual_attention.hf
from tests.library.hf.models import causal

WITHOUT = """
import sys
sys.modules["transformers"] = None
import dual_attention.hf
loaded = {"huggingface_hub", "safetensors"} & sys.modules.keys()
assert not loaded, loaded
from dual_attention.hf import DualAttnTransformerLM_HFHub, load_language_model, to_hub
"""

READ = """
import sys
from dual_attention.checkpoints.language import load_language_model
load_language_model(sys.argv[1])
assert not {"huggingface_hub", "transformers"} & sys.modules.keys()
"""

REGISTERED = """
import sys
{}
from transformers import AutoModel, AutoModelForCausalLM
assert type(AutoModelForCausalLM.from_pretrained(sys.argv[1])).__name__ == "DualAttnForCausalLM"
assert type(AutoModel.from_pretrained(sys.argv[1])).__name__ == "DualAttnModel"
"""


def test_it_does_without_transformers():
    done = subprocess.run([sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_language_models_are_read_without_importing_it(tmp_path: Path):
    causal("transformer").save_pretrained(tmp_path)
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "imports",
    [
        "from dual_attention.hf import load_language_model",
        pytest.param("from transformers import AutoConfig; import dual_attention.hf", marks=pytest.mark.slow),
    ],
)
def test_the_auto_classes_know_the_models(imports: str, tmp_path: Path):
    """Importing dual_attention.hf is enough, before transformers or after it."""
    causal("transformer").save_pretrained(tmp_path)
    command = [sys.executable, "-c", REGISTERED.format(imports), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_without_that_import_they_do_not(tmp_path: Path):
    """transformers then asks whether it may run the folder's loader."""
    causal("transformer").save_pretrained(tmp_path)
    command = [sys.executable, "-c", REGISTERED.format(""), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "trust_remote_code=True" in done.stderr


@pytest.mark.parametrize(
    ("name", "missing"), [("DualAttnTransformerLM_HFHub", "huggingface_hub"), ("DualAttnForCausalLM", "transformers")]
)
def test_what_to_install(name: str, missing: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(vars(dual_attention.hf), name, raising=False)
    with pytest.raises(
        ImportError, match=rf"'{missing}' could not be imported .*pip install \"relational-attention\[hf\]\""
    ):
        getattr(dual_attention.hf, name)


def test_names():
    assert set(dual_attention.hf.__all__) <= set(dir(dual_attention.hf))
    with pytest.raises(AttributeError, match="has no attribute 'DualAttnForNothing'"):
        _ = dual_attention.hf.DualAttnForNothing
