"""Models to explore, and their pages."""

import base64
import csv
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dat.checkpoints import Checkpoint
from dat.explorer.html import page_html
from dat.explorer.images import ImageSession
from dat.explorer.packing import pack
from dat.explorer.server import ExplorerServer
from dat.explorer.session import Session
from dual_attention import DualAttnTransformerLM, TransformerLM, VisionDualAttnTransformer, VisionTransformer
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.vision_models import VisionModel
from tests.support.tensors import moved

TEXT = "the cat sat on the mat"
ACTIVATIONS = ("softmax", "relu", "sigmoid", "tanh", "gelu", "gelu_erf", "silu")
"""Of relations, beside none."""
COMMON: dict[str, Any] = {"vocab_size": 257, "d_model": 32, "dff": 32, "dropout_rate": 0.0, "activation": "gelu"}
COMMON |= {"norm_first": True, "pos_enc_type": "RoPE"}


def dat(seed: int = 0, context: int = 64, **options: Any) -> DualAttnTransformerLM:
    torch.manual_seed(seed)
    symbols = {"d_model": 32, "n_heads": 2, "n_symbols": 12}
    heads = {"n_heads_sa": 2, "n_heads_ra": 2, "ra_kwargs": {"n_relations": 4}}
    sizes = {"n_layers": 2, "max_block_size": context, "symbol_retrieval_kwargs": symbols}
    return moved(DualAttnTransformerLM(**{**COMMON, **heads, **sizes, **options}), 0.15)


def transformer(context: int = 64) -> TransformerLM:
    torch.manual_seed(0)
    return TransformerLM(**COMMON, n_layers=1, n_heads=2, max_block_size=context).eval()


def vision(dual: bool = True) -> VisionDualAttnTransformer | VisionTransformer:
    torch.manual_seed(0)
    common: dict[str, Any] = {**COMMON, "image_shape": (3, 36, 36), "patch_size": (12, 12), "num_classes": 2}
    common = {name: common[name] for name in common if name not in ("vocab_size", "pos_enc_type")}
    if not dual:
        return VisionTransformer(**common, n_layers=1, n_heads=2).eval()
    symbols: dict[str, Any] = {"d_model": 32, "n_heads": 2, "n_symbols": 12}
    heads = {"n_heads_sa": 2, "n_heads_ra": 2, "ra_kwargs": {"n_relations": 3}}
    retrieval = {"symbol_retrieval": "symbolic_attention", "symbol_retrieval_kwargs": symbols}
    return moved(VisionDualAttnTransformer(**common, **heads, **retrieval, n_layers=2), 0.15)


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(dat(), ByteTokenizer(), "a model")


@dataclass
class Config:
    d_model: int = 32
    n_layers: int = 2


def of_checkpoint(model: Any) -> Session:
    """A session that tells the facts of its model."""
    about = Checkpoint("a-model", "hub format", Config(), model, (), torch.float32)
    return Session(model, ByteTokenizer(), "a model", checkpoint=about)


def saved(page: Any, kind: str, path: Path | None = None) -> Path:
    """The file of a button of the page, under a path that a test may choose."""
    with page.expect_download() as waiting:
        page.click(f"#{kind}")
    if path is None:
        return waiting.value.path()
    waiting.value.save_as(path)
    return path


def as_array(packed: dict[str, Any]) -> np.ndarray:
    """An array that Python packed for a page."""
    return np.frombuffer(base64.b64decode(packed["data"]), f"<{packed['type']}").reshape(packed["shape"])


def rows_of(file: Path) -> list[dict[str, str]]:
    """The lines of a CSV by heading."""
    with open(file, encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture
def serve() -> Iterator[Callable[..., ExplorerServer]]:
    """A function that starts a server of a model on a free port."""
    servers: list[ExplorerServer] = []

    def start(
        model: Any = None, text: str = "the cat sat", title: str = "a model", session: Any = None, **options: Any
    ) -> ExplorerServer:
        if session is not None:
            pass
        elif isinstance(model, VisionModel):
            session, text = ImageSession(model, title), "game same"
        else:
            session = Session(dat() if model is None else model, ByteTokenizer(), title)
        server = ExplorerServer(session, text, **options)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def exported(tmp_path):
    """A function that writes a page of a model into a file; returns its address."""

    def write(model=None, text=TEXT, recording=None):
        if recording is None:
            recording = Session(dat() if model is None else model, ByteTokenizer(), "a model").record(text)
        file = tmp_path / f"page-{len(list(tmp_path.iterdir()))}.html"
        file.write_text(page_html(pack(recording).json), encoding="utf-8")
        return file.as_uri()

    return write
