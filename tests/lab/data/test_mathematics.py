"""Questions of mathematics: the generator, its cache, the official layout, and the vocabulary."""

import json
import os
import random
import re
import subprocess
import sys

import numpy as np
import pytest
import sympy
import torch

from dat.data.mathematics import (
    END,
    MODULES,
    PAD,
    START,
    VOCABULARY,
    decode_text,
    encode_answers,
    encode_questions,
    generated,
    generated_folder,
    generator,
    load_questions,
    read_pairs,
)
from dat.data.mathematics.files import LEVELS, path_of, shares
from dat.data.mathematics.generator import draw_pairs
from dat.training.lock import LOCK
from tests.support.questions import write_official
from tests.support.refusals import refusals, refused

LINEAR = MODULES[0]


# The generator ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_seed_decides_the_text_in_any_process():
    """With the generator's own sets it depends on the hashes of strings, and on addresses in memory."""
    program = (
        "import json; from dat.data.mathematics import MODULES, generator;"
        "print(json.dumps([generator.draw_pairs(module, 'train-easy', 4, 5) for module in MODULES]))"
    )
    here = [[list(pair) for pair in draw_pairs(module, "train-easy", 4, 5)] for module in MODULES]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    there = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(there.stdout) == here


def test_more_questions_begin_with_the_same_and_generators_are_left_alone():
    random.seed(3)
    np.random.seed(3)
    few = draw_pairs(LINEAR, "interpolate", 3, 1)
    drawn = random.random(), np.random.rand()
    random.seed(3)
    np.random.seed(3)
    assert drawn == (random.random(), np.random.rand())
    assert draw_pairs(LINEAR, "interpolate", 6, 1)[:3] == few != draw_pairs(LINEAR, "interpolate", 3, 2)


@pytest.mark.parametrize("split", ["train-easy", "interpolate", "extrapolate"])
def test_linear_equations_are_solved(split):
    for question, answer in draw_pairs(LINEAR, split, 10, 0):
        left, right, variable = re.fullmatch(r"Solve (.*) = (.*) for (\w)\.", question).groups()
        found = eval(f"({left}) - ({right})", {variable: int(answer)})
        assert found == 0


def test_parts_of_a_question_come_from_every_category():
    """Here a factor is 7/4, which only the generator's arithmetic can draw."""
    assert len(draw_pairs("polynomials__add", "interpolate", 2, 199)) == 2


@pytest.mark.slow
def test_sums_of_polynomials_are_right():
    checked = 0
    for question, answer in draw_pairs("polynomials__add", "train-easy", 60, 0):
        defined = r"Let (\w)\((\w)\) = ([^.]*)\. "
        told = re.fullmatch(defined + defined + r"[A-Z][a-z ]* ([^.]*)[.?]", question)
        if told:
            f, x, first, g, y, second, asked = told.groups()
            functions = {f: sympy.Lambda(sympy.Symbol(x), first), g: sympy.Lambda(sympy.Symbol(y), second)}
            assert sympy.expand(sympy.sympify(asked, functions) - sympy.sympify(answer)) == 0, question
            checked += 1
    assert checked > 10


def test_what_fails_in_the_generator_is_drawn_again(monkeypatch):
    problem_of, pairs = generator.sampler(LINEAR, "interpolate"), draw_pairs(LINEAR, "interpolate", 3, 1)
    failures = iter([True, False, True, False, False])

    def failing():
        if next(failures):
            raise AssertionError
        return problem_of()

    monkeypatch.setattr(generator, "sampler", lambda *_: failing)
    assert draw_pairs(LINEAR, "interpolate", 3, 1) == pairs


def test_processes_that_draw_do_without_torch():
    program = "import sys, dat.data.mathematics.generated; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)


def test_products_are_expanded():
    for question, answer in draw_pairs("polynomials__expand", "train-easy", 5, 0):
        expression = sympy.sympify(question.removeprefix("Expand ").removesuffix("."))
        assert sympy.expand(expression - sympy.sympify(answer)) == 0


def test_difficulty_grows():
    """Numbers of questions to extrapolate are larger than any of training."""
    means = []
    for split in (*LEVELS, "extrapolate"):
        texts = [question for question, _ in draw_pairs(LINEAR, split, 30, 0)]
        means.append(sum(map(len, texts)) / 30)
    assert means == sorted(means)


# The cache ----------------------------------------------------------------------------------------------------------


def test_questions_are_generated_once(tmp_path, monkeypatch):
    told = []
    folder = generated_folder(
        tmp_path, LINEAR, n_train=7, n_test=2, seed=4, workers=1, report=lambda *n: told.append(n)
    )
    assert told[-1] == (11, 11)
    assert [len(read_pairs(folder / split / f"{LINEAR}.txt")) for split in LEVELS] == shares(7) == [3, 2, 2]
    assert len(read_pairs(folder / "extrapolate" / f"{LINEAR}.txt")) == 2
    assert json.loads((folder / "about.json").read_text())["versions"]["mathematics_dataset"] == "1.0.1"
    monkeypatch.setattr(generated, "_generate", None)  # not called
    assert generated_folder(tmp_path, LINEAR, n_train=7, n_test=2, seed=4) == folder


def test_a_stopped_generation_leaves_nothing(tmp_path):
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        generated_folder(tmp_path, LINEAR, n_train=3, n_test=1, seed=0, workers=1, report=stop)
    assert [path for path in tmp_path.iterdir() if path.suffix != LOCK] == []


def test_a_changed_file_is_named(tmp_path):
    folder = generated_folder(tmp_path, LINEAR, n_train=3, n_test=1, seed=0, workers=1)
    path = folder / "train-easy" / f"{LINEAR}.txt"
    path.write_text("Solve 0 = x for x.\n0\n")
    with pytest.raises(ValueError, match=f"{LINEAR}.txt: damaged or changed .* remove the folder"):
        generated_folder(tmp_path, LINEAR, n_train=3, n_test=1, seed=0)


@pytest.mark.slow
def test_several_processes_give_the_same(tmp_path):
    alone, both = (
        generated_folder(tmp_path / str(n), LINEAR, n_train=160, n_test=1, seed=0, workers=n) for n in (1, 2)
    )
    checksums = [(folder / "checksums.json").read_text() for folder in (alone, both)]
    assert checksums[0] == checksums[1]


@pytest.mark.slow
def test_a_script_without_a_guard_is_told(tmp_path):
    """Workers import the script that starts them; one that draws again would wait for its parent."""
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from dat.data.mathematics.generated import generated_folder\n"
        f"generated_folder(Path({str(tmp_path)!r}), {LINEAR!r}, n_train=160, n_test=1, seed=0, workers=2)\n"
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert "put what it does below if __name__ == '__main__':" in done.stderr
    assert {path.name for path in tmp_path.iterdir() if path.suffix != LOCK} == {script.name}


def test_an_unknown_module(tmp_path):
    with pytest.raises(ValueError, match=r"module: expected one of algebra__linear_1d, .* got 'chess'"):
        generated_folder(tmp_path, "chess", n_train=3, n_test=1, seed=0)


# The official layout ------------------------------------------------------------------------------------------------


def test_sets_are_equal_shares_of_the_levels(tmp_path):
    found = load_questions(write_official(tmp_path), LINEAR, n_train=4, n_val=3, n_test=5)
    assert [question for question, _ in found.sets["train"]] == [
        "What is 0 + 0?", "What is 0 + 1?", "What is 1 + 0?", "What is 2 + 0?",
    ]  # fmt: skip
    assert found.sets["val"][0] == ("What is 0 + 2?", "2")
    assert {name: len(pairs) for name, pairs in found.sets.items()} == {"train": 4, "val": 3, "interpolate": 5}
    assert load_questions(tmp_path, LINEAR, n_train=4, n_val=0, n_test=5).sets.keys() == {"train", "interpolate"}
    write_official(tmp_path, extrapolate=True)
    assert "extrapolate" in load_questions(tmp_path, LINEAR, n_train=4, n_val=3, n_test=5).sets


@pytest.mark.parametrize(("n_train", "n_val"), [(4, 4), (5, 4), (5, 5), (3, 2)])
def test_what_is_generated_is_enough(tmp_path, n_train, n_val):
    """Whatever two numbers add up to: shares of each of them may come to more than those of their sum."""
    for split, n in {**dict(zip(LEVELS, shares(n_train + n_val), strict=True)), "interpolate": 1}.items():
        path_of(tmp_path, split, LINEAR).parent.mkdir()
        lines = [f"{split} {number}\n{number}\n" for number in range(n)]
        path_of(tmp_path, split, LINEAR).write_text("".join(lines), encoding="utf-8")
    sets = load_questions(tmp_path, LINEAR, n_train=n_train, n_val=n_val, n_test=1).sets
    assert [len(sets[name]) for name in ("train", "val")] == [n_train, n_val]
    assert not set(sets["train"]) & set(sets["val"])


def test_what_is_in_another_set_is_not_trained_on(tmp_path):
    write_official(tmp_path)
    path = tmp_path / "train-easy" / f"{LINEAR}.txt"
    pairs = ["What is 3 + 0?\n3\n", "What is 0 + 9?\n9\n", "What is 0 + 9?\n9\n", "What is 3 + 0?\n3\n"]
    path.write_text("".join(pairs))
    found = load_questions(tmp_path, LINEAR, n_train=12, n_val=0, n_test=2)
    assert found.left_out == {"interpolate": 2} and found.repeated == 1
    assert len(found.sets["train"]) == 10
    assert not {question for question, _ in found.sets["train"]} & {q for q, _ in found.sets["interpolate"]}
    assert found.origin["questions"] == {"train": 10, "interpolate": 2}


@refusals(
    ("What is 1 + 1?\n", "cut short: expected an answer after each question, got none after line 1"),
    ("What is 1 + 1?\n2\n", "expected at least 2 questions, found 1"),
    (None, "there is no such file; expected the unpacked archive mathematics_dataset-v1.0, which https://github"),
    (b"\xff\xfe", "expected text, question and answer on alternating lines"),
    of="text",
    error=(ValueError, FileNotFoundError),
)
def test_files_that_are_no_use(tmp_path, text, error, message):
    path = write_official(tmp_path) / "interpolate" / f"{LINEAR}.txt"
    if text is None:
        path.unlink()
    else:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(error, match=re.escape(message)) as error:
        load_questions(tmp_path, LINEAR, n_train=3, n_val=0, n_test=2)
    assert str(path) in str(error.value)


# The vocabulary -----------------------------------------------------------------------------------------------------


def test_the_vocabulary_is_the_papers():
    assert (len(VOCABULARY), PAD, END, START) == (85, 0, 23, 28)
    assert VOCABULARY[:12] == ("", " ", "!", "'", "(", ")", "*", "+", ",", "-", ".", "/")
    assert VOCABULARY[-2:] == ("{", "}") and not set('"#$%&\\^_`|~') & set(VOCABULARY)


def test_texts_become_indices_and_texts_again():
    questions, answers = encode_questions(["What is 1 + 1?", "a" * 160]), encode_answers(["2", "-12*x**2"])
    assert (questions.shape, answers.shape, questions.dtype) == ((2, 161), (2, 32), torch.uint8)
    assert [decode_text(row) for row in questions] == ["What is 1 + 1?", "a" * 160]
    assert answers[0].tolist() == [START, VOCABULARY.index("2"), END] + [PAD] * 29
    assert decode_text(answers[1]) == "-12*x**2"
    assert encode_questions([]).shape == (0, 161)


test_texts_that_do_not_fit = refused(
    (["ok", "a;b"], "question: expected characters of the vocabulary, got ';' in 'a;b'"),
    (["x^2"], r"question: expected characters of the vocabulary, got '\^' in 'x\^2'"),
    (["π"], "question: expected characters of the vocabulary, got 'π' in 'π'"),
    (["a" * 161], "question: expected at most 160 characters, got 161"),
    by=encode_questions,
)
