"""What matters over a corpus: means of single texts, kept as they are finished, and what is wrong with a corpus."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dat.explorer import corpus
from dat.explorer.ablations import ablated, ablations
from dat.explorer.answers import answers_of
from dat.explorer.command import with_corpus
from dat.explorer.corpus import FINISHED, TABLE, CorpusRun, fires, held_out, read_corpus
from dat.explorer.example import EXAMPLES
from dat.explorer.exporting import Exporter
from dat.explorer.images import ImageSession
from dat.explorer.questions import QuestionSession
from dat.explorer.view_state import View
from dual_attention.generation.tokenizer import ByteTokenizer
from dual_attention.model_analysis.interventions import Effect
from tests.lab.explorer.conftest import dat, rows_of, saved, vision
from tests.lab.explorer.test_page import maps_of
from tests.lab.explorer.test_questions import QUESTION, model_of
from tests.lab.explorer.test_server import ask
from tests.support.refusals import refused

TEXTS = {"a.txt": "the cat sat on the mat", "b/c.txt": "a dog and a log", "z.md": "the log sat on the cat"}


class Other(ByteTokenizer):
    kind = "other"


@pytest.fixture
def folder(tmp_path):
    for name, text in TEXTS.items():
        (tmp_path / "texts" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "texts" / name).write_text(text, encoding="utf-8")
    return tmp_path / "texts"


def run_of(session, folder, results, **options):
    return CorpusRun(session, folder.name, read_corpus(session, str(folder)), results, **{"draws": 2, **options})


def opened(session, folder, results, later=False):
    """The session of a command."""
    return with_corpus(session, SimpleNamespace(corpus=str(folder), results=results and str(results), later=later))


@pytest.fixture
def measured(monkeypatch):
    """One entry for each text that is begun; estimates, of one random direction, do not count."""
    begun = []

    def counted(session, request, *rest):
        if request["draws"] > 1:
            begun.append(request)
        return ablations(session, request, *rest)

    monkeypatch.setattr(corpus, "ablations", counted)
    return begun


@pytest.fixture
def done(session, folder, tmp_path):
    run = run_of(session, folder, tmp_path / "results")
    assert [one.name for one in run.measure()] == list(TEXTS)
    return run


def test_effects_are_means_of_texts(session, done, tmp_path):
    single = [ablated(session, {"text": text, "draws": 2}) for text in TEXTS.values()]
    found = done.json
    assert found["source"] == "texts: 3 texts" and found["parts"] == single[0]["parts"]
    for place, effects in enumerate(found["effects"]):
        for which in (0, 1):
            own = Effect("", "", tuple(one["effects"][place][which] for one in single))
            assert effects[which] == pytest.approx(own.mean, abs=1e-6)
            assert found["intervals"][place][which] == pytest.approx(list(own.interval()), abs=1e-6)
            draws = [sum(one["controls"][place][draw][which] for one in single) / 3 for draw in (0, 1)]
            assert [draw[which] for draw in found["controls"][place]] == pytest.approx(draws, abs=1e-6)
    table = rows_of(tmp_path / "results" / TABLE)
    assert len(table) == 2 * len(found["parts"]) and {row["documents"] for row in table} == {"3"}
    assert float(table[1]["mean"]) == pytest.approx(found["effects"][0][1], rel=1e-3)


def test_relations_fire_where_they_are_largest(session, done):
    found = done.json["fires"]["blocks.1 2"]
    maps = {text: maps_of(session.model, text)["blocks.1"].relational.relations[0, ..., 2] for text in TEXTS.values()}
    tops = [max((float(x[i, j]), i, j) for i in range(len(x)) for j in range(i)) for x in maps.values()]
    high = [entry["example"] for entry in found["pairs"] if entry["end"] == "high"]
    for one, (value, i, j) in zip(high, sorted(tops, reverse=True), strict=True):
        assert one["value"] == pytest.approx(value, rel=1e-5)
        assert (one["receiver"]["place"], one["sender"]["place"]) == (i, j)
    for entry in found["pairs"]:
        (beside,) = entry["counterexamples"]
        apart = [one["receiver"]["place"] - one["sender"]["place"] for one in (entry["example"], beside)]
        assert apart[0] == apart[1] and beside["value"] != entry["example"]["value"]
    pairs, near = (
        sum(map(count, TEXTS.values())) for count in (lambda x: len(x) * (len(x) - 1) // 2, lambda x: len(x) - 1)
    )
    assert found["distances"][0][0] == "1" and found["distances"][0][2] == pytest.approx(near / pairs)
    for name in ("distances", "receivers", "senders"):
        assert sum(share for _, share, _ in found[name]) == pytest.approx(1)


def test_all_names_of_the_strongest_pairs_are_counted(session):
    """As those of all pairs are, with which they are compared."""
    text = "".join(map(chr, range(33, 123))) * 2
    found = fires(replace(session, model=dat(context=256)).record(text))["relations"].values()
    counts = [one["strongest"][name] for one in found for name in ("receivers", "senders")]
    assert max(map(len, counts)) > 20 and {sum(one.values()) for one in counts} == {180 * 179 // 200}


@pytest.mark.parametrize("kept", [0, 20, -9, -1])
def test_a_run_that_was_stopped_while_it_wrote(session, folder, tmp_path, kept):
    """Within a line, or before its end: that text is measured again, and the file is whole."""
    file = tmp_path / "results" / FINISHED
    next(run_of(session, folder, file.parent, draws=0).measure())
    file.write_text(file.read_text()[:kept])
    assert len(list(run_of(session, folder, file.parent, draws=0).measure())) == 3
    assert not run_of(session, folder, file.parent, draws=0).left and file.read_text().count("\n") == 4


def test_a_model_of_no_numbers_is_refused(session, folder, tmp_path):
    model = dat()
    next(model.parameters()).data.fill_(float("nan"))
    for _ in range(2):  # the second goes on
        with pytest.raises(ValueError, match=r"corpus: a\.txt: expected finite predictions of the model"):
            list(run_of(replace(session, model=model), folder, tmp_path / "results", draws=0).measure())


@pytest.mark.slow
def test_folders_of_the_command(session, folder, monkeypatch, capsys):
    """Results are beside the corpus, however it is named, and never in it; equal texts count once."""
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.chdir(folder)
    (folder / "a copy.txt").write_text(TEXTS["a.txt"], encoding="utf-8")
    for number, (name, results) in enumerate([("~/texts", None), (".", None), ("../texts/", "~/texts.effects")]):
        found = opened(session, name, results).corpus
        assert found["source"] == "texts: 3 texts" and (folder.parent / "texts.effects" / TABLE).is_file()
        said = f"3 texts without 1 copy of them, {0 if number else 3} to be measured"
        assert said in " ".join(capsys.readouterr().err.split())
    with pytest.raises(ValueError, match="results: expected a folder outside the corpus"):
        opened(session, ".", "results")


@pytest.mark.slow
def test_what_a_page_starts_is_what_the_command_measures(serve, session, folder, tmp_path):
    """Exactly, by two pages at a time, and of no other folder than that of the command."""
    command = opened(session, folder, tmp_path / "by command")
    server = serve(session=opened(session, folder, tmp_path / "by page", later=True))
    body, seen = json.dumps({"corpus": "/etc", "results": "/etc"}), set()
    with ThreadPoolExecutor() as pool:
        for asked in [pool.submit(ask, server, body, path="/measure-corpus") for _ in range(2)]:
            status, lines, _ = asked.result()
            *so_far, last = map(json.loads, lines.splitlines())
            assert status == 200 and last == command.kept
            seen.update(one["finished"] for one in so_far)
    assert server.session.corpus == command.corpus and seen == {0, 1, 2, 3}
    for name in (FINISHED, TABLE):
        assert (tmp_path / "by page" / name).read_bytes() == (tmp_path / "by command" / name).read_bytes()


@pytest.mark.slow
def test_what_a_page_stopped_goes_on(session, folder, tmp_path, measured):
    """In the same server, and in the next one; a text of which some batches are missing is measured again."""
    for begun, finished in ((2, 0), (4, 1)):
        later = opened(session, folder, tmp_path / "results", later=True)
        stream: Any = answers_of(later)["/measure-corpus"].answer({})
        assert next(stream) == {"finished": finished, "texts": 3}
        while len(measured) < begun:
            next(stream)
        stream.close()
        assert len(later.run.left) == 2 - finished and not later.kept
    *_, last = answers_of(later)["/measure-corpus"].answer({})
    assert len(measured) == 5 and last == later.kept
    assert later.corpus == opened(session, folder, tmp_path / "whole").corpus


def test_line_breaks_of_windows_end_lines(session, tmp_path):
    (tmp_path / "lines.txt").write_bytes(b"the cat\r\nthe dog\r\n\r\nthe cat")
    found = read_corpus(session, str(tmp_path / "lines.txt"))
    assert [(one.source, one.copies) for one in found] == [("the cat", 1), ("the dog", 0)]


@pytest.mark.slow
def test_a_run_goes_on_where_it_stopped(session, folder, tmp_path, measured):
    begun = run_of(session, folder, tmp_path / "results")
    next(begun.measure())
    with open(tmp_path / "results" / FINISHED, "a", encoding="utf-8") as file:
        file.write('{"digest": "half')  # it was stopped while it wrote
    again = run_of(session, folder, tmp_path / "results")
    assert [one.name for one in again.left] == ["b/c.txt", "z.md"] and again.seconds() > 0
    assert len(list(again.measure())) == 2 and len(measured) == 3
    assert again.json == run_of(session, folder, tmp_path / "results").json
    whole = run_of(session, folder, tmp_path / "others")
    list(whole.measure())
    assert whole.json == again.json and whole.seconds() == 0
    (folder / "a.txt").write_text("another cat", encoding="utf-8")
    assert [one.name for one in run_of(session, folder, tmp_path / "results").left] == ["a.txt"]


@pytest.mark.sweep(3)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda session: replace(session, model=dat(1)), "those of other weights;"),
        (lambda session: replace(session, layers=[1]), "those of other parts;"),
        (lambda session: replace(session, tokenizer=Other()), "those of other tokenizer;"),
        (lambda session: session, "those of other draws;"),
    ],
)
def test_results_of_other_settings_are_refused(session, done, folder, tmp_path, change, message):
    draws = 3 if "draws" in message else 2
    with pytest.raises(ValueError, match=message):
        run_of(change(session), folder, tmp_path / "results", draws=draws)


def test_a_long_text_is_read_in_pieces(session, tmp_path):
    """A long text is cut into pieces that the model can read, and the mean of its effects counts each token once."""
    text = "the cat sat on the mat. " * 4
    (tmp_path / "lines.txt").write_text(f"{text}\nshort\n", encoding="utf-8")
    run = run_of(session, tmp_path / "lines.txt", tmp_path / "results", draws=0)
    assert [one.name for one in run.measure()] == ["lines.txt:1", "lines.txt:2"]
    first, second = (ablated(session, {"text": piece, "draws": 0})["effects"] for piece in (text[:64], text[64:]))
    found = run.found[run.texts[0].digest]["effects"]
    expected = (64 * torch.tensor(first) + 32 * torch.tensor(second)) / 96
    torch.testing.assert_close(torch.tensor(found), expected, atol=1e-6, rtol=0)
    assert run.json["source"] == "lines.txt: 2 texts; 1 text longer than the model reads, in pieces"


def test_pictures_and_questions(tmp_path):
    image = pytest.importorskip("PIL.Image")
    (tmp_path / "pictures" / "of a").mkdir(parents=True)
    for number in range(2):
        image.new("RGB", (50, 40), (90 * number, 30, 200)).save(tmp_path / "pictures" / "of a" / f"{number}.png")
    run = run_of(ImageSession(vision(), "x"), tmp_path / "pictures", tmp_path / "results", draws=1)
    assert len(list(run.measure())) == 2 and run.json["source"] == "pictures: 2 pictures"
    assert run.json["fires"]["blocks.0 1"]["pairs"][0]["example"]["receiver"]["labels"]
    (tmp_path / "questions.txt").write_text(f"{QUESTION}\nSolve 2*x = 8 for x.\n", encoding="utf-8")
    run = run_of(QuestionSession(model_of(), "x"), tmp_path / "questions.txt", tmp_path / "others", draws=0)
    assert len(list(run.measure())) == 2 and run.json["texts"] == 2


def test_what_comes_with_the_examples(monkeypatch, tmp_path):
    """New pictures, as a card has them, and passages that make up the text; a folder of that name comes first."""
    monkeypatch.chdir(tmp_path)
    games, language = (EXAMPLES[name].open() for name in ("games", "language"))
    assert isinstance(games, ImageSession)
    pictures = held_out(games)
    drawn, _ = games.pictures(len(pictures))
    assert len({one.digest for one in pictures}) == len(pictures) == 64
    assert all(torch.equal(games.pixels(one.source)[0], pixels) for one, pixels in zip(pictures, drawn, strict=True))
    text = EXAMPLES["language"].held_out
    passages = [one.source for one in held_out(language, text)]
    assert " ".join(passages) == text.strip() and len(passages) > 9 and not EXAMPLES["games"].held_out
    options = SimpleNamespace(corpus="held-out", results=None, later=True, checkpoint=None)
    assert with_corpus(games, options, EXAMPLES["games"]).run.folder == tmp_path / "games-held-out.effects"
    (tmp_path / "held-out").write_text("To be or not to be\n", encoding="utf-8")
    found = with_corpus(language, options, EXAMPLES["language"]).run
    assert [one.name for one in found.texts] == ["held-out:1"] and found.folder == tmp_path / "held-out.effects"
    digits = ImageSession(vision(), "x", digits="digits")  # on which it may have been trained
    for session in (language, ImageSession(vision(), "x"), digits):
        with pytest.raises(ValueError, match="corpus: no held-out texts or pictures come with this model"):
            held_out(session)


def read_of(session, folder, files, pattern=""):
    (folder / "texts").mkdir()
    for name, data in files.items():
        (folder / "texts" / name).write_bytes(data)
    read_corpus(session, str(folder / "texts" / pattern))


test_what_is_refused = refused(
    *((lambda *where, files=files: read_of(*where, files), (OSError, ValueError), message) for files, message in (
        ({}, "corpus: the folder .* holds no file of text"),
        ({"a.txt": b"one two", "b.txt": b"", "c.txt": b" \n"}, r"got none in b\.txt, c\.txt"),
        ({"a.txt": b"one two", "b.jsonl": b""}, r"got none in b\.jsonl"),
        ({"a.txt": b"\xff\xfe"}, r"a\.txt"),
        ({"a.txt": b"one two", "b.txt": b"x"}, r"corpus: b\.txt: expected two tokens or more"),
      )),
    (lambda *where: read_of(*where, {"a.txt": b"one two"}, "*.txt"),
     r"corpus: expected a file or a folder, .* got the pattern .*\*\.txt"),
    (lambda _, folder: read_of(ImageSession(vision(), "x"), folder, {"a.txt": b"one two"}), FileNotFoundError,
     "corpus: expected a folder with pictures, got none in"),
    (lambda _, folder: read_of(ImageSession(vision(), "x"), folder, {"a.png": b"none"}),
     r"corpus: a\.png: image: expected an image"),
    (lambda session, _: Exporter(session, "x", View(page="effects", corpus=1)),
     "these effects are over a corpus; give it with --corpus"),
    by=lambda call, *, session, tmp_path: call(session, tmp_path),
)  # fmt: skip


@pytest.mark.slow
def test_the_page_of_a_corpus(visit, serve, session, done, tmp_path):
    """Intervals and random directions of every part, and where a relation fires; a file has the same."""
    session = replace(session, corpus=done.json)
    server, visitor = serve(session=session, text="another text"), visit()
    page = visitor.open(f"{server.address}#page=effects&corpus=1")
    assert "Means over texts: 3 texts, with 95 % intervals" in page.inner_text("#effects-note")
    assert page.locator("#effects-tools").is_hidden() and page.locator("#effects-table tbody tr").count() == 20
    Exporter(session, "another text", View(page="effects", corpus=1)).write(tmp_path / "own.csv")
    assert saved(page, "csv").read_bytes() == (tmp_path / "own.csv").read_bytes()
    page.select_option("#effects-over", "0")
    assert page.locator("#effects-found").is_hidden() and page.locator("#ablate").is_visible()
    page.click("#tab-card")
    page.click("[aria-label='blocks.1 relation 2']")
    page.wait_for_selector("#card-corpus:not([hidden])")
    assert page.locator("#card-corpus-high > li").count() == 3
    largest = session.fires("blocks.1", 2)["pairs"][0]["example"]["value"]
    shown = page.inner_text("#card-corpus-high > li >> nth=0 >> strong")
    assert float(shown) == pytest.approx(largest, rel=1e-3)
    page.wait_for_selector("#card-found:not([hidden])")
    part = {"mediator": "relation", "layer": "blocks.1", "kind": "relational", "number": 2}
    place = session.corpus["parts"].index(part)
    for row, which in enumerate((1, 0)):  # beside those of this text
        beside = page.locator("#card-facts tr", has_text="the same over the corpus").nth(row).locator("td")
        mean, _, about = beside.all_inner_texts()
        assert float(mean.split()[0]) == pytest.approx(session.corpus["effects"][place][which], rel=1e-3)
        interval = [float(end) for end in about.rpartition("interval ")[2].split(" to ")]
        assert interval == pytest.approx(session.corpus["intervals"][place][which], rel=5e-3)
    file = visit().open(saved(page, "html", tmp_path / "card.html").as_uri())
    assert file.inner_text("#card-corpus") == page.inner_text("#card-corpus")
    file.click("#tab-effects")
    assert "with 95 % intervals" in file.inner_text("#effects-note")


@pytest.mark.slow
def test_a_page_starts_stops_and_shows_a_run(visit, serve, session, folder, tmp_path):
    later = opened(session, folder, tmp_path / "results", later=True)
    page = visit().open(f"{serve(session=later).address}#page=effects&corpus=1")
    assert "Over the corpus: 3 texts, 3 to be measured: 121 forward passes each" in page.inner_text("#effects-cost")
    with later.run._lock:  # so that it waits
        page.click("#measure-corpus")
        page.wait_for_selector("#effects-cost:has-text('0 of 3 texts are finished.')")
        page.click("#stop-ablating")
        page.wait_for_selector("#measure-corpus:enabled")
        assert "0 of 3 texts are finished, with which it goes on" in page.inner_text("#effects-cost")
    page.click("#measure-corpus")
    page.wait_for_selector("#effects-found:not([hidden])")
    said = page.inner_text("#effects-note")
    assert "Means over texts: 3 texts, with 95 % intervals" in said and page.locator("#measure-corpus").is_hidden()
    page.reload()
    page.wait_for_selector("#effects-found:not([hidden])")
    assert page.inner_text("#effects-note") == said
