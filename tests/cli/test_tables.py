"""Own tables on the command line: train, resume, predict; and every bad table in one line, with nothing written."""

import csv
import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from apes import LogisticRegression, People, Plan, train
from apes.cli.main import app
from apes.training.run_folder import RunFolder

LEVELS = {"low": 0.1, "medium": 0.5, "high": 1.0}
TABLE = ["--user-column", "who", "--label-column", "diagnosis", "--budget-column", "privacy"]
TABLE += ["--budget-levels", "low=0.1,medium=0.5,high=1", "--bounds", "0:10,age=0:120"]
TABLE += ["--categories", "city=Bonn|Ulm", "--ignore", "note"]
WITHOUT_BUDGETS = [*TABLE[:4], *TABLE[8:], "--ignore", "note,privacy"]
TERMS = ["--norm", "0.5", "--clip", "0.1", "--rounds", "6", "--delta", "1e-3", "--seed", "3"]
HEADER = ["who", "age", "city", "dose", "note", "privacy", "diagnosis"]


def people(users=300):
    """Whether somebody is ill shows in the dose; 1 to 4 rows each."""
    rng, rows = np.random.default_rng(1), []
    for user in range(users):
        level = list(LEVELS)[rng.integers(3)]
        for _ in range(rng.integers(1, 5)):
            dose, age, city = rng.uniform(0, 10), rng.uniform(0, 120), ["Bonn", "Ulm"][rng.integers(2)]
            diagnosis = "ill, badly" if dose > 5 else "well"
            rows.append([f"p{user}", f"{age:.1f}", city, f"{dose:.3f}", "x", level, diagnosis])
    return rows


def write(path, rows, header=HEADER):
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([header, *rows])


def predictions(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "people.csv", people())
    return tmp_path


def apes(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def said(done):
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def train_table(*more):
    return apes("train", "--data", "people.csv", *TABLE, *TERMS, *more)


@pytest.mark.service
def test_train_and_predict(here):
    result = said(train_table("--target-epsilon", "4", "--out", "run", "--json"))
    table, certified = result["table"], result["certified"]
    assert table["users"] + table["test_users"] == 300
    assert table["rows"] == len(people())
    assert table["clipped"] == {}
    assert (result["users"], result["budgets"], result["split"]) == (table["users"], "column privacy", None)
    assert result["accuracy"] > 0.7
    assert 0.5 <= result["baseline"] < 0.65
    assert result["beats_baseline"] is True
    assert certified["epsilon"] <= 4
    assert [group["levels"] for group in certified["by_budget"]] == [["low"], ["medium"], ["high"]]
    epsilons = [group["epsilon"] for group in certified["by_budget"]]
    assert epsilons == sorted(epsilons)
    assert sum(group["users"] for group in certified["by_budget"]) == table["users"]
    config = json.loads((here / "run" / "config.json").read_text())
    own = json.loads((here / "run" / "private" / "choices.json").read_text())
    assert own["choices"]["data"] == str(here / "people.csv")
    assert config["schema"]["classes"] == ["ill, badly", "well"]
    # A table without users, labels and budgets.
    write(here / "new.csv", [row[1:4] for row in people()], HEADER[1:4])
    told = said(apes("predict", "run", "new.csv", "--out", "out/predictions.csv", "--json"))
    assert told["rows"] == len(people()) == sum(told["predicted"].values())
    found = [row["prediction"] for row in predictions(here / "out" / "predictions.csv")]
    assert np.mean([word == row[-1] for word, row in zip(found, people(), strict=True)]) > 0.7
    # The same as from Python, and in scikit-learn.
    crowd = People.from_table(
        "people.csv",
        user="who",
        label="diagnosis",
        budget="privacy",
        budgets=LEVELS,
        ignore=["note"],
        seed=3,
        bounds={"*": (0, 10), "age": (0, 120)},
        categories={"city": ["Bonn", "Ulm"]},
    )
    plan = Plan(norm=0.5, clip=0.1, rounds=6, delta=1e-3, target_epsilon=4.0, seed=3)
    run = train(LogisticRegression.of(crowd), crowd, plan)
    assert run.model_sha256 == result["model_sha256"]
    assert run.model.predict("new.csv").tolist() == found
    assert run.model.to_sklearn().predict(run.model.in_units("new.csv")).tolist() == found


UNBOUNDED = [*TABLE[:8], *TABLE[10:]]


@pytest.mark.parametrize(
    ("more", "missing", "add"),
    [
        ([], "2 columns of numbers: age, dose", "--bounds age=LOW:HIGH,dose=LOW:HIGH, with"),
        (["--bounds", "age=0:120"], "1 column of numbers: dose", "--bounds age=0:120,dose=LOW:HIGH, with"),
        (
            ["--bounds", "file:some.csv"],
            "1 column of numbers: dose",
            "a row of column, low, high for each of them to --bounds file:",
        ),
    ],
)
def test_a_table_without_bounds_is_not_trained_on(here, more, missing, add):
    (here / "some.csv").write_text("column,low,high\nage,0,120\n")
    before = sorted(path.name for path in here.iterdir())
    done = apes("train", "--data", "people.csv", *UNBOUNDED, *TERMS, "--out", "run", *more)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"apes: no bounds for {missing}. Add {add}")
    assert "--bounds-from-data makes bounds from the data, which no guarantee covers" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert sorted(path.name for path in here.iterdir()) == before


@pytest.mark.service
def test_bounds_from_data_are_said_wherever_the_guarantee_is(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    made = ["train", "--data", "people.csv", *UNBOUNDED, *TERMS, "--bounds", "age=0:120", "--bounds-from-data"]
    result = said(apes(*made, "--out", "run", "--json"))
    words = "bounds of dose were made from the data, and what they tell about people is not covered"
    assert result["certified"]["caveats"] == [words]
    assert json.loads((here / "run" / "private/summary.json").read_text())["certified"]["caveats"] == [words]
    assert said(apes("show", "run", "--json"))["certified"]["caveats"] == [words]
    assert said(apes("account", "--run", "run", "--json"))["certified"]["caveats"] == [words]
    assert RunFolder.open(here / "run").model()[1]["caveats"] == [words]
    assert words in (here / "run" / "private/report.html").read_text()
    for command in (["show", "run"], ["account", "--run", "run"], made):
        assert words in " ".join(apes(*command).stdout.split())
    # The command that makes such a run says it as well; and it is gone on with.
    assert "--bounds-from-data" in said(apes("show", "run", "--json"))["command"]
    assert said(apes("train", "--resume", "run", "--json"))["model_sha256"] == result["model_sha256"]


@pytest.mark.service
def test_what_is_clipped_in_more_than_a_tenth_of_the_rows_is_said_before_training(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    done = apes("train", "--data", "people.csv", *UNBOUNDED, *TERMS, "--bounds", "age=0:60,dose=0:9.5", "--out", "run")
    lines = done.stderr.splitlines()
    share = float(
        re.fullmatch(r"column age is clipped: it lies outside its bounds in (\d+) % of the rows", lines[0])[1]
    )
    rows = people()
    assert share == round(100 * np.mean([float(row[1]) > 60 for row in rows]))
    # One column in twenty is none to speak of.
    assert 0.01 < np.mean([float(row[3]) > 9.5 for row in rows]) < 0.1
    assert sum("lies outside" in line for line in lines) == 1
    files = [path for path in (here / "run").rglob("*") if path.is_file()]
    assert len(files) > 5
    assert not any(b"lies outside" in path.read_bytes() for path in files)


@pytest.mark.service
def test_resume_from_another_folder(here, monkeypatch):
    whole = said(train_table("--out", "whole", "--json"))
    (here / "bounds.csv").write_text("column,low,high\n*,0,10\nage,0,120\n")
    save = RunFolder.save

    def full_disk(folder, progress):
        if progress.rounds > 3:
            raise OSError("no space left")
        save(folder, progress)

    with monkeypatch.context() as patch:
        patch.setattr(RunFolder, "save", full_disk)
        done = train_table("--bounds", "file:bounds.csv", "--out", "part", "--json")
    assert (done.exit_code, done.stdout, "no space left" in done.stderr) == (2, "", True)
    done = apes("predict", "part", "people.csv", "--out", "p.csv")
    assert (done.exit_code, (here / "p.csv").exists()) == (2, False)
    assert "part has no model yet: finish the run first" in done.stderr
    (here / "elsewhere").mkdir()
    monkeypatch.chdir(here / "elsewhere")
    assert said(apes("train", "--resume", "../part", "--json"))["model_sha256"] == whole["model_sha256"]
    again = said(apes("train", "--resume", "../part", "--data", "../people.csv", *TABLE[:2], "--json"))
    assert again["model_sha256"] == whole["model_sha256"]
    done = apes("train", "--resume", "../part", "--user-column", "privacy")
    assert done.exit_code == 2
    assert "--user-column must be 'who' to resume this run, got 'privacy'" in done.stderr


@pytest.mark.service
def test_a_changed_table_is_not_gone_on_with(here):
    said(train_table("--out", "run", "--json"))
    rows = people()
    rows[0][1] = "119.9"
    rows[1][1] = "119.9"
    write(here / "people.csv", [*rows[5:], *rows[:5]])
    trained = [row[0] for row in rows[:2]]
    done = apes("train", "--resume", "run")
    assert done.exit_code == 2, trained
    assert "resume must be of the same people (data or budgets)" in done.stderr
    (here / "people.csv").unlink()
    done = apes("train", "--resume", "run")
    assert done.exit_code == 2
    assert f"there is no file {here / 'people.csv'}" in done.stderr


@pytest.mark.service
def test_real_valued_labels(here):
    rows = [[row[0], row[3], row[5], str(3 * float(row[3]) + 100)] for row in people(600)]
    write(here / "doses.csv", rows, ["who", "dose", "privacy", "pressure"])
    choices = [
        "--user-column",
        "who",
        "--label-column",
        "pressure",
        "--budget-column",
        "privacy",
        "--task",
        "regression",
    ]
    choices += ["--budget-levels", "low=0.5,medium=1,high=2", "--bounds", "0:10,pressure=100:130", *TERMS]
    result = said(apes("train", "--data", "doses.csv", *choices, "--learning-rate", "5", "--out", "run", "--json"))
    assert result["accuracy"] is None
    # Of the labels themselves: 8.7.
    assert result["table"]["root_mean_square_error"] < 6
    assert result["table"]["baseline_root_mean_square_error"] == pytest.approx(8.7, rel=0.1)
    assert result["beats_baseline"] is True
    assert said(apes("show", "run", "--json"))["baseline"] == result["baseline"]
    told = said(apes("predict", "run", "doses.csv", "--out", "p.csv", "--json"))
    found = [float(row["prediction"]) for row in predictions(here / "p.csv")]
    assert (told["lowest"], told["highest"]) == (min(found), max(found))
    assert np.corrcoef(found, [float(row[3]) for row in rows])[0, 1] > 0.9
    assert (here / "run" / "private/accuracy.png").exists()


@pytest.mark.service
def test_a_model_that_is_no_better_than_a_guess_is_said_to_be_so_first(here, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    # All doses lie above their bounds: nothing is learned of them.
    useless = ["train", "--data", "people.csv", *UNBOUNDED, *TERMS, "--bounds", "age=0:120,dose=-2:-1"]
    done = apes(*useless, "--out", "run")
    assert done.exit_code == 0
    words = "The model is no better than always guessing the most frequent class"
    assert done.stdout.startswith(words)
    assert "column dose is clipped: it lies outside its bounds in 100 % of the rows" in done.stderr
    shown = apes("show", "run").stdout
    assert shown.startswith(words)
    page = (here / "run" / "private/report.html").read_text()
    assert page.index(words) < page.index("certified epsilon")
    result = json.loads((here / "run" / "private/summary.json").read_text())
    assert result["beats_baseline"] is False
    # Of the rows that judge, as their own file says them.
    judged = json.loads((here / "run" / "private/metrics.jsonl").read_text().splitlines()[-1])
    assert judged["baseline"] == result["baseline"]
    assert judged["test_rows"] == result["test_rows"] < len(people())


@pytest.mark.service
def test_nobody_to_judge(here):
    result = said(train_table("--test-share", "0", "--out", "run", "--json"))
    assert (result["accuracy"], result["loss"], result["users"]) == (None, None, 300)
    assert (result["baseline"], result["beats_baseline"]) == (None, None)
    words = "No test part: how good the model is is not known."
    assert apes("show", "run").stdout.startswith(words)
    assert words in (here / "run" / "private/report.html").read_text()
    assert not (here / "run" / "private/accuracy.png").exists()


@pytest.mark.service
def test_law_of_budgets_npz_and_parquet(here):
    pandas = pytest.importorskip("pandas")
    rows = np.array(people(), dtype=object)
    features = rows[:, [1, 3]].astype(float)
    np.savez(here / "t.npz", features=features, who=rows[:, 0].astype(str), y=(rows[:, 6] == "well").astype(int))
    frame = pandas.DataFrame({"features.0": features[:, 0], "features.1": features[:, 1], "who": rows[:, 0]})
    frame["y"] = (rows[:, 6] == "well").astype(int)
    frame.to_parquet(here / "t.parquet")
    choices = [
        "--user-column",
        "who",
        "--label-column",
        "y",
        "--budgets",
        "uniform2",
        "--bounds",
        "0:10,features.0=0:120",
    ]
    results = [said(apes("train", "--data", name, *choices, *TERMS, "--json")) for name in ("t.npz", "t.parquet")]
    assert results[0]["model_sha256"] == results[1]["model_sha256"]
    assert results[0]["budgets"] == "uniform2"
    assert said(apes("train", "--data", "t.npz", *choices, *TERMS, "--out", "run", "--json"))
    said(apes("predict", "run", "t.npz", "--out", "p.csv", "--json"))
    assert {row["prediction"] for row in predictions(here / "p.csv")} <= {"0", "1"}


@pytest.mark.service
def test_predict_images(here):
    from apes import load

    images = load("digits").test_images[:50]
    result = said(apes("train", "--users", "300", "--rounds", "3", "--seed", "3", "--out", "run", "--json"))
    np.savez(here / "images.npz", features=images)
    np.savez(here / "bytes.npz", features=np.rint(255 * images).astype(np.uint8).reshape(-1, 28, 28))
    for name in ("images", "bytes"):
        told = said(apes("predict", "run", f"{name}.npz", "--out", f"{name}.csv", "--json"))
        assert told["rows"] == 50
    assert (here / "images.csv").read_text() == (here / "bytes.csv").read_text()
    labels = [str(label) for label in load("digits").test_labels[:50].tolist()]
    found = [row["prediction"] for row in predictions(here / "images.csv")]
    assert abs(np.mean([a == b for a, b in zip(found, labels, strict=True)]) - result["accuracy"]) < 0.35
    np.savez(here / "small.npz", features=images[:, :9])
    for name, words in (("small.npz", "does not fit the run"), ("people.csv", "must be an .npz file")):
        done = apes("predict", "run", name, "--out", "p.csv")
        assert (done.exit_code, (here / "p.csv").exists()) == (2, False)
        assert words in done.stderr


def bad(change):
    rows = people(30)
    return change(rows) or rows


def cell(row, column, value):
    def change(rows):
        rows[row - 1][HEADER.index(column)] = value

    return change


BAD_TABLES = {
    "row 7, column 'age': is missing": cell(7, "age", ""),
    "row 8, column 'age': must be a number, got 'old'": cell(8, "age", "old"),
    "row 9, column 'age': must be finite": cell(9, "age", "-inf"),
    "row 9, column 'city': must be one of categories Bonn, Ulm; got 'Rom'": cell(9, "city", "Rom"),
    "row 3, column 'privacy': must be one of budget levels": cell(3, "privacy", "some"),
    "row 5, column 'diagnosis': is missing": cell(5, "diagnosis", ""),
    "row 6, column 'who': is missing": cell(6, "who", " "),
    "column 'privacy': a person must have one budget, got": lambda rows: [
        *rows,
        [*rows[0][:5], "low" if rows[0][5] != "low" else "high", "well"],
    ],
    "row 4: has 6 cells where the header has 7": lambda rows: rows[3].pop() and None,
    "has no rows": lambda rows: rows.clear(),
}


@pytest.mark.parametrize("words", BAD_TABLES)
def test_bad_tables_are_one_line_and_nothing_is_written(words, here):
    write(here / "people.csv", bad(BAD_TABLES[words]))
    done = train_table("--out", "run")
    assert (done.exit_code, done.stdout) == (2, "")
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith(f"apes: {here / 'people.csv'}")
    assert words in lines[0]
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--budgets", "file:budgets.csv"], "--budget-column or --budgets must be given, one of them"),
        (["--users", "5"], "users must be left out: the table says whose its rows are; got 5"),
        (["--split", "iid"], "split must be left out"),
        (["--normalise", "pixels"], "normalise must be left out"),
        (["--data-dir", "."], "--data-dir must be left out: data is a file"),
        (["--budgets", "uniform2"], "--budget-column or --budgets must be given, one of them"),
        (["--bounds", "0-1"], "bounds must be LOW:HIGH or NAME=LOW:HIGH"),
        (["--bounds", "age=0:x"], "bounds must have numbers after the names, got 'x'"),
        (["--bounds", "age=0:1,age=0:2"], "bounds must be NAME=VALUE,NAME=VALUE,... with names that differ"),
        (["--bounds", "0:1,0:2"], "bounds must be NAME=VALUE,NAME=VALUE,... with names that differ"),
        (["--bounds", "file:none.csv"], "there is no file"),
        (["--bounds", "tall=0:1"], "bounds must be of columns to learn from, got 'tall'"),
        (["--budget-levels", "low=0.1"], "must be one of budget levels low; got"),
        (["--budget-levels", "low"], "--budget-levels must be NAME=VALUE"),
        (["--budget-levels", "low=much"], "--budget-levels must have numbers after the names, got 'much'"),
        (["--categories", "city=Bonn|Bonn"], "categories of column 'city' must be names that differ"),
        (["--categories", "city"], "categories must be NAME=VALUE"),
        (["--ignore", "note,nothing"], "has no column 'nothing'"),
        (["--classes", "well"], "classes must be 2 to 65536 names, got 1"),
        (["--classes", "well,ill"], "column 'diagnosis': must be one of classes well, ill; got 'ill, badly'"),
        (["--task", "guess"], "task must be one of classification, regression"),
        (["--task", "regression"], "row 1, column 'diagnosis': must be a number"),
        (["--task", "regression", "--update", "fedprox"], "update must be one of gradient; got 'fedprox'"),
        (["--max-rows", "0"], "--max-rows must be in [1, inf), got 0"),
        (["--test-share", "1"], "--test-share must be in [0, 1), got 1.0"),
        (["--target-epsilon", "0.0001"], "not even one round keeps within --target-epsilon"),
    ],
)
def test_bad_choices_are_one_line_and_nothing_is_written(more, words, here):
    done = train_table("--out", "run", *more)
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not (here / "run").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train", "--data", "none.csv", *TABLE], "there is no file"),
        (["train", "--data", "people.csv", *TABLE[2:]], "--user-column must name a column of"),
        (["train", "--data", "people.csv", *TABLE[:2], *TABLE[4:]], "--label-column must name a column of"),
        (
            [
                "train",
                "--data",
                "people.csv",
                *TABLE[:4],
                *TABLE[8:],
                "--ignore",
                "note,privacy",
                "--budgets",
                "file:b",
            ],
            "budgets of a table must be in a column of it, or by a law, got 'file:",
        ),
        (["train", "--user-column", "who"], "--user-column must be left out: data names no table"),
        (["train", "--bounds", "0:1"], "bounds must be left out: data names no table"),
        (["train", "--data", "none"], "data must be one of digits"),
        # Flower tries an address of this machine when it is imported.
        pytest.param(
            ["federation", "init", "trial", "--devices", "5", "--data", "people.csv"],
            "--user-column, --label-column and --budget-column must name columns of",
            marks=pytest.mark.service,
        ),
        pytest.param(
            ["federation", "init", "trial", "--devices", "5", "--data", "none"],
            "data must be one of digits",
            marks=pytest.mark.service,
        ),
        (["predict", "none", "people.csv", "--out", "p.csv"], "none holds no run"),
    ],
)
def test_commands_that_cannot_be(arguments, words, here):
    before = sorted(here.iterdir())
    done = apes(*arguments)
    assert done.exit_code == 2
    assert words in done.stderr
    assert sorted(here.iterdir()) == before


@pytest.mark.service
def test_bad_rows_to_predict_leave_what_was_there(here):
    said(train_table("--out", "run", "--json"))
    (here / "p.csv").write_text("before")
    write(here / "bad.csv", [["30", "Bonn", "1"], ["31", "Rom", "2"]], HEADER[1:4])
    write(here / "few.csv", [["30", "Bonn"]], HEADER[1:3])
    for name, words in (
        ("bad.csv", "bad.csv, row 2, column 'city': must be one of categories Bonn, Ulm; got 'Rom'"),
        ("few.csv", "few.csv has no column 'dose'"),
        ("none.csv", "there is no file none.csv"),
    ):
        done = apes("predict", "run", name, "--out", "p.csv")
        assert (done.exit_code, done.stdout) == (2, "")
        assert words in done.stderr
        assert (here / "p.csv").read_text() == "before"
    done = apes("predict", "run", "few.csv", "--out", "few.csv")
    assert (done.exit_code, "out must be a file of its own" in done.stderr) == (2, True)
    assert (here / "few.csv").read_text().startswith("age")
