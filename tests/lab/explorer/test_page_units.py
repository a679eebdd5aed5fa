"""Parts of the page by themselves, in Node and without a browser: the laws of ``page/*.test.js``."""

import json
import os
import random
from pathlib import Path

import torch

from dat.explorer.corpus import CorpusRun, CorpusText
from dat.explorer.figures import Seen, pair_map, seen_ablations
from dat.explorer.packing import PackedRows, pack, packed_array
from dat.explorer.session import Session
from dat.explorer.view_state import View, packed_text
from dual_attention._base.colours import colour_map
from dual_attention.generation.tokenizer import ByteTokenizer
from tests.lab.explorer.conftest import ACTIVATIONS, TEXT, dat, transformer
from tests.support import page_tools

LAWS = Path(__file__).parent / "page"


def cases(folder):
    """What Python computes, and the page has to."""
    kinds = {torch.uint8: 200, torch.int8: -100, torch.int16: -30_000, torch.int32: 1 << 30, torch.float32: 0.1}
    arrays = [torch.tensor([[number, 0, 1]], dtype=kind) for kind, number in kinds.items()]
    packed = PackedRows.of(torch.randn(30, 4, 5), 16)
    rows = {"scales": None, **packed.json()}
    shares, colours = torch.linspace(-1, 1, 256), colour_map(signed=True)
    texts = ["", TEXT, "語 𝔘\n\0" * 50, "a" * 100_000]
    return {
        "arrays": [{"packed": packed_array(x), "values": x.flatten().tolist(), "shape": [*x.shape]} for x in arrays],
        "rows": {"packed": rows, "values": packed.unpacked.flatten(1).tolist()},
        "colours": [[share, [*map(int, colours((share + 1) / 2, bytes=True))]] for share in shares.tolist()],
        "table": table(),
        "texts": [[text, packed_text(text)] for text in texts],
        "maps": [case for model in models() for case in maps(model)],
        "corpora": [corpus(folder / f"{count}", count) for count in (1, 2)],
        "long": pack(Session(transformer(256), ByteTokenizer(), "").record(TEXT * 9), 8).json["heads"][0],
    }


def table():
    """Numbers of every size, and texts that a spreadsheet would compute or that need quotes."""
    drawn = random.Random(0)
    sizes = [0.0, -0.0, 1.0, 1e-6, 1e-7, 123456789012345680000.0, 1e21, 5e-324, 2.0**53, 0.1, float(torch.tensor(0.1))]
    sizes += [drawn.choice((-1, 1)) * drawn.random() * 10.0 ** drawn.randint(-25, 25) for _ in range(500)]
    texts = ["".join(drawn.choices("=+-@＝＋－＠'\",\n\r\t 1.e5a猫", k=drawn.randint(0, 6))) for _ in sizes]
    rows = [[number, x, text, None] for number, (x, text) in enumerate(zip(sizes, texts, strict=True))]
    seen = Seen("", ["number", "x", "=text", "none"], rows)
    return {"headings": seen.headings, "rows": rows, "csv": seen.csv}


def corpus(folder, count):
    """Effects over as many texts, and their table."""
    texts = [CorpusText("a", TEXT, "a"), CorpusText("b", TEXT[::-1], "b")][:count]
    run = CorpusRun(Session(dat(), ByteTokenizer(), ""), "texts", texts, folder, draws=1)
    list(run.measure())
    return {"found": run.json, "csv": seen_ablations(run.json, View()).csv}


def models():
    yield transformer()
    yield dat()
    for activation in ACTIVATIONS:
        shared = {"n_relations": 3, "n_kv_heads": 1, "rel_activation": activation}
        yield dat(ra_kwargs=shared, sa_kwargs={"shaw_max_rel_pos": 2})


def maps(model):
    """All maps of the last layer, in every view, and what a server answers who has an outline only."""
    recording = Session(model, ByteTokenizer(), "").record("the cat sat")
    whole = pack(recording, 32)
    for place, heads in [*enumerate(recording.heads)][-2:]:
        packed = whole.json["heads"][place]
        counted = {name: rows["queries"].values.shape[0] for name, rows in whole.rows[place].items()}
        answers = {name: whole.maps(place, name, range(count)) for name, count in counted.items()}
        on_demand = {"outline": whole.outline["heads"][place], "answers": answers}
        for relational, factors in ((False, heads.weights), (True, heads.relations)):
            for number in range(0 if factors is None else factors.maps):
                ways = ("raw", "attended", "contribution") if relational else ("attention", "contribution")
                for view in ways:
                    if view == "contribution" and not relational and heads.sender_norms is None:
                        continue
                    head = 1 if relational else number
                    _, values = pair_map(heads, View(relation=number, head=head, view=view), relational=relational)
                    relation = number if relational else None
                    case = {"heads": packed, "relation": relation, "head": head, "view": view}
                    yield {**case, **on_demand, "values": values.tolist()}


def test_laws_of_the_parts_of_the_page(tmp_path):
    file = tmp_path / "cases.json"
    file.write_text(json.dumps(cases(tmp_path)), encoding="utf-8")
    laws = sorted(LAWS.glob("*.test.js"))
    done = page_tools.node("--test", *laws, env={**os.environ, "CASES": str(file)})
    assert done.returncode == 0, done.stdout
