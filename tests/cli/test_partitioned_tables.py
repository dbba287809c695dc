"""Tables in many files on the command line: the same model as of one table; every bad file in one line."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from apes.cli.main import app

pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
CHOICES = ["--user-column", "who", "--label-column", "y", "--budget-column", "wish", "--bounds", "0:10"]
TERMS = ["--norm", "0.5", "--clip", "0.1", "--rounds", "3", "--delta", "1e-3", "--seed", "1"]


def crowd(users=200):
    rng = np.random.default_rng(2)
    number = np.repeat(np.arange(users), 2)
    x = rng.uniform(0, 10, number.size)
    return pa.table(
        {"who": [f"p{at:04d}" for at in number], "x": x, "y": (x > 5).astype(int), "wish": 0.1 + number / users}
    )


def write(folder, table, files=4):
    folder.mkdir(exist_ok=True)
    for at in range(files):
        step = table.num_rows // files
        parquet.write_table(table.slice(at * step, step), folder / f"part-{at}.parquet", write_page_checksum=True)


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "parts", crowd())
    parquet.write_table(crowd(), tmp_path / "whole.parquet")
    return tmp_path


def apes(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def train(data, *more):
    return apes("train", "--data", data, *CHOICES, *TERMS, *more, "--json")


def said(done):
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def refused(done, *words):
    assert (done.exit_code, done.stdout) == (2, ""), done
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("apes: "))
    for word in words:
        assert word in line


@pytest.mark.service
def test_the_same_model_as_of_one_table(here, monkeypatch):
    whole = said(train("whole.parquet"))
    parts = said(train("parts/", "--out", "run"))
    pattern = said(train("parts/part-*.parquet", "--cache-mb", "0", "--threads", "1"))
    for name in ("model_sha256", "accuracy_by_round", "table", "certified", "users"):
        assert parts[name] == whole[name] == pattern[name]
    told = json.loads((here / "run" / "private/choices.json").read_text())
    assert (told["choices"]["data"], told["data"]) == (str(here / "parts"), f"own table in files: {here / 'parts'}")
    # Gone on with from anywhere, and predicted by like any other run.
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert said(apes("train", "--resume", "../run", "--json"))["model_sha256"] == whole["model_sha256"]
    assert said(apes("predict", "../run", "../whole.parquet", "--out", "p.csv", "--json"))["rows"] == 400


@pytest.mark.service
def test_without_a_test_part_nobody_looks_at_bounds(here):
    assert said(train("parts", "--test-share", "0"))["table"]["clipped"] is None
    done = apes("train", "--data", "parts", *CHOICES, *TERMS, "--test-share", "0")
    assert "outside the bounds: not looked at" in " ".join(done.stdout.split())


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda folder: (folder / "part-2.parquet").write_bytes(b""), "part-2.parquet cannot be read as Parquet"),
        (
            lambda folder: parquet.write_table(crowd().drop_columns("x"), folder / "zz.parquet"),
            "column 'x' is in one of them only",
        ),
        (lambda folder: parquet.write_table(crowd().slice(5, 1), folder / "zz.parquet"), "user 'p0002' is in"),
        (lambda folder: parquet.write_table(crowd().slice(0, 0), folder / "zz.parquet"), "zz.parquet has no rows"),
        (lambda folder: [path.unlink() for path in folder.iterdir()], "parts has no .parquet files"),
    ],
)
def test_a_bad_folder_is_one_line_and_nothing_is_written(spoil, words, here):
    spoil(here / "parts")
    refused(train("parts", "--out", "run"), words)
    assert not (here / "run").exists()


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 4 : len(content) // 4 + 30] = bytes(30)
    path.write_bytes(bytes(content))


def test_damage_in_the_middle(here):
    damage(here / "parts" / "part-1.parquet")
    refused(train("parts", "--out", "run"), "part-1.parquet cannot be read as Parquet")
    assert not (here / "run").exists()


@pytest.mark.service
def test_a_file_that_is_damaged_while_a_run_goes_on(here, monkeypatch):
    """What was reached stays, and is gone on with once the file is back."""
    # Pieces are known by what is in them: none that another test kept.
    fresh = ["--cache-mb", "0", "--max-rows", "9"]
    whole = said(train("parts", *fresh))["model_sha256"]
    from apes.training.run_folder import RunFolder

    path, save = here / "parts" / "part-1.parquet", RunFolder.save
    content = path.read_bytes()

    def spoil(folder, progress):
        save(folder, progress)
        damage(path)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", spoil)
        refused(train("parts", *fresh, "--out", "run"), "part-1.parquet has changed since it was opened")
    assert len((here / "run" / "exposures.jsonl").read_text().splitlines()) >= 1
    refused(apes("train", "--resume", "run", "--json"), "part-1.parquet")
    path.write_bytes(content)
    assert said(apes("train", "--resume", "run", "--json"))["model_sha256"] == whole


@pytest.mark.service
def test_other_rows_are_not_gone_on_with(here):
    said(train("parts", "--out", "run"))
    table = crowd()
    write(here / "parts", table.set_column(1, "x", pa.array(table["x"].to_numpy()[::-1].copy())))
    refused(apes("train", "--resume", "run", "--json"), "resume must be of the same people (data or budgets)")


def test_options_that_would_do_nothing(here):
    refused(
        train("whole.parquet", "--cache-mb", "5"), "--cache-mb must be left out: data is not a folder of files; got 5"
    )
    refused(train("parts", "--cache-mb", "-5"), "--cache-mb must be in [0, ")
    refused(train("parts", "--data-dir", "."), "--data-dir must be left out")
    refused(apes("predict", "run", "parts", "--out", "p.csv"), "run")


@pytest.mark.service
def test_counts_that_do_not_fit_make_no_folder(here, monkeypatch):
    monkeypatch.setattr("apes.training.memory.free_bytes", lambda: 100)
    refused(train("parts", "--out", "run"), "levels must be fewer", "got 2")
    assert not (here / "run").exists()
