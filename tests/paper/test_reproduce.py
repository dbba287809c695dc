"""The reproduction: worked out once, written whole, and the paper's privacy columns come out."""

import base64
import json
import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest
from typer.testing import CliRunner

from apes.cli.main import app
from apes.errors import DataError
from apes.paper.accuracy import cell
from apes.paper.amplification import _PUBLISHED as PUBLISHED_BOUNDS
from apes.paper.experiments import EXPERIMENTS
from apes.paper.findings import findings
from apes.paper.page import write_page
from apes.paper.parts import KINDS, Part, Workshop
from apes.paper.printed import ACCURACY, EPSILON_C, EPSILON_UC, EPSILON_UC_TABLE_3, NAMES
from apes.paper.privacy import bounds_part, epsilon_c, epsilon_uc, user_part
from apes.paper.report import write_report
from apes.paper.run import work, write
from apes.paper.setting import OURS, PUBLISHED, Setting, quick
from apes.storage.files import write_bytes

# Small runs, or made-up ones, of everything; the pictures take longest.
pytestmark = pytest.mark.service

TINY = Setting(
    "digits",
    users=60,
    rounds=1,
    seeds=(1, 2),
    populations=(1_000, 3_000),
    clips=(0.1, 0.3),
    ratios=(0.1, 0.2),
    sweep_rounds=1,
    targets=(1.0, 8.0),
)


# What takes minutes, as small as it can be.
TINIEST = replace(TINY, users=40, seeds=(1,), populations=(1_000,), clips=(0.1,), ratios=(0.2,), targets=(8.0,))


def silent(done, total, what):
    pass


class SmallWorkshop(Workshop):
    """Trains on fewer images."""

    def __init__(self, folder, images):
        super().__init__(folder, None)
        self._images = images

    def dataset(self, name, normalise):
        return self._images


def made_up(part):
    """Values of the kind that a part comes to, which depend on what it is about."""
    seed, arguments = int(part.name.rpartition("-")[2], 16), part.arguments
    rng, data = np.random.default_rng(seed), {"data": "made up"}
    run = {"accuracy_by_round": sorted(rng.uniform(0.2, 0.9, arguments.get("rounds", 1)).tolist())}
    run["accuracy"] = run["accuracy_by_round"][-1]
    of_target = {"epsilon": arguments.get("target_epsilon", 9.0), "rounds": 1, "dimensions": 7850, "images": 60}
    scale = float(rng.uniform(0.01, 0.1))
    names = (*PUBLISHED_BOUNDS, "erlingsson19")
    published = {name: scale * (2 + number) for number, name in enumerate(names)}
    return {
        "train": run | data | {"loss": 1.0},
        "within-target": run | data | of_target | {"clip": 0.1, "norm": None, "cap": None},
        "trusted-server": run | data | of_target | {"norm": 1.0, "noise": 0.1},
        "user-level": {"round": scale, "total": 2 * scale},
        "calibration": data
        | {"counts": [1, 3, 1], "edges": [-0.1, -0.05, 0.05, 0.1], "mean": 0.0, "deviation": 0.03}
        | {"largest_report": 0.1},
        "bounds": {
            "certified": scale,
            "certified_continuous": scale,
            "lower": scale / 2,
            "published": published,
            "largest": 1.0,
            "smallest": 0.05,
        },
    }[part.kind]


class MadeUpWorkshop(SmallWorkshop):
    """Keeps what was never worked out: for what becomes of results."""

    def work_out(self, part, tell=lambda share: None):
        tell(1.0)
        kept = {"kind": part.kind, "arguments": part.arguments, "values": made_up(part), "seconds": 1.0}
        write_bytes(self._path(part), json.dumps(kept).encode())


@pytest.fixture(
    scope="module",
    params=[(MadeUpWorkshop, TINY), pytest.param((SmallWorkshop, TINIEST), marks=pytest.mark.exhaustive)],
    ids=["made up", "worked out"],
)
def made(request, tmp_path_factory, small_digits):
    """Everything, tiny, once; with made-up figures, and worked out."""
    folder = tmp_path_factory.mktemp("results")
    kind, setting = request.param
    workshop, reports = kind(folder, small_digits), []
    work(EXPERIMENTS.values(), setting, workshop, lambda done, total, what: reports.append((done, total)))
    results = {name: write(e, setting, workshop, folder, f"apes reproduce {name}") for name, e in EXPERIMENTS.items()}
    return folder, workshop, results, reports, setting


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_result_says_what_it_is(made, name):
    folder, _, results, _, setting = made
    stored = json.loads((folder / f"{name}.json").read_text())
    assert stored == results[name]
    assert stored["command"] == f"apes reproduce {name}"
    assert stored["setting"]["seeds"] == list(setting.seeds)
    assert {"version", "data", "seconds", "figures", "title"} <= stored.keys()


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_pictures_and_tables_come_from_the_file_alone(made, name):
    folder, *_ = made
    experiment = EXPERIMENTS[name]
    figures = json.loads((folder / f"{name}.json").read_text())["figures"]
    assert len(experiment.caption(figures)) > 80
    for table in experiment.tables(figures):
        assert table.rows
        assert {len(row) for row in table.rows} == {len(table.headings)}
    if experiment.draw is None:
        assert not (folder / f"{name}.png").exists()
    else:
        assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_progress_reaches_its_end(made):
    # Sums of weights, in another order than the total.
    reports = [(round(done, 9), total) for done, total in made[3]]
    assert reports == sorted(reports)
    assert reports[-1][0] == pytest.approx(reports[-1][1])


def test_nothing_is_run_twice(made, monkeypatch):
    _, workshop, _, _, setting = made
    monkeypatch.setattr(workshop, "work_out", lambda *_: pytest.fail("worked out again"))
    work(EXPERIMENTS.values(), setting, workshop, silent)


@pytest.mark.parametrize("kind", KINDS)
def test_parts_are_worked_out(kind, tmp_path, small_digits):
    """The smallest part of every kind, for real: it has what is made up of it above."""
    parts = [part for experiment in EXPERIMENTS.values() for part in experiment.parts(TINY) if part.kind == kind]
    part = min(parts, key=lambda part: (part.weight, part.name))
    workshop = SmallWorkshop(tmp_path, small_digits)
    workshop.work_out(part)
    values = workshop.result(part)
    assert values.keys() <= made_up(part).keys()
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert workshop.seconds(part) > 0


def test_a_table_of_parts_that_were_worked_out(tmp_path, small_digits):
    """One experiment from end to end: its figures are those of its parts."""
    setting, workshop = replace(TINY, seeds=(1,)), SmallWorkshop(tmp_path, small_digits)
    experiment = EXPERIMENTS["fig3a"]
    work([experiment], setting, workshop, silent)
    result = write(experiment, setting, workshop, tmp_path, "apes reproduce fig3a")
    (part,) = cell(setting, OURS, "apes", "uniform2")
    shown = result["figures"]["curves"][OURS]["Clip-Laplace"][0]["runs"]
    assert shown == [100 * workshop.result(part)["accuracy_by_round"][0]]
    assert (tmp_path / "fig3a.png").read_bytes().startswith(b"\x89PNG")


def test_what_a_kill_left_undone_is_done(made, monkeypatch):
    folder, workshop, results, _, setting = made
    part = cell(setting, OURS, "apes", "uniform2")[-1]
    path = folder / "parts" / f"{part.name}.json"
    before = json.loads(path.read_text())["values"]
    path.unlink()
    done = []
    original = workshop.work_out
    monkeypatch.setattr(workshop, "work_out", lambda part, tell: (done.append(part), original(part, tell)))
    work(EXPERIMENTS.values(), setting, workshop, silent)
    assert done == [part]
    assert json.loads(path.read_text())["values"] == before
    assert write(EXPERIMENTS["table3"], setting, workshop, folder, "x")["figures"] == results["table3"]["figures"]


@pytest.mark.unit
def test_damaged_part(tmp_path):
    workshop, part = Workshop(tmp_path, None), Part("bounds", {})
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / f"{part.name}.json").write_text("{")
    with pytest.raises(DataError, match="damaged"):
        workshop.result(part)


class Outline(HTMLParser):
    """What a browser would find: titles by id, where links lead, cells row by row, all text; and tags left open."""

    VOID = frozenset({"meta", "img"})

    def __init__(self, page):
        super().__init__()
        self.ids, self.links, self.images, self.rows, self.text, self.open = [], [], [], [], "", []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        self.ids += [given["id"]] if "id" in given else []
        self.links += [given["href"]] if tag == "a" else []
        self.images += [given["src"]] if tag == "img" else []
        if tag not in self.VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1].append(data)


@pytest.fixture(scope="module")
def report(made):
    folder, _, results, *_ = made
    return Outline(write_report(results, folder, 60.0).read_text(encoding="utf-8"))


def test_report_is_self_contained(made, report):
    pictures = [made[0] / f"{name}.png" for name, e in EXPERIMENTS.items() if e.draw is not None]
    assert report.open == []
    assert report.images == [
        f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}" for picture in pictures
    ]
    assert report.ids == [*EXPERIMENTS, "findings"]
    assert report.links == [f"#{name}" for name in report.ids]


def test_report_says_everything(made, report):
    results, setting = made[2], made[4]
    seeds = "2 seeds" if len(setting.seeds) == 2 else "1 seed"
    assert f"{setting.users} users, 1 round, {seeds}, data set digits" in report.text
    said = findings(results)
    assert said
    assert all(finding in report.text for finding in said)
    for name, experiment in EXPERIMENTS.items():
        figures = results[name]["figures"]
        assert experiment.caption(figures) in report.text
        assert f"apes reproduce {name}, {results[name]['seconds']:.0f} s." in report.text
        for table in experiment.tables(figures):
            assert table.title in report.text
            assert table.note in report.text
            for row in (table.headings, *table.rows):
                assert row in report.rows


def test_page_shows_every_picture(made, tmp_path):
    folder, _, results, *_ = made
    write_page(results, folder, tmp_path / "docs" / "reproduction.md", 60.0)
    text = (tmp_path / "docs" / "reproduction.md").read_text()
    assert text.startswith("# The paper, reproduced\n\nMade by `apes reproduce all`")
    pictures = re.findall(r"\]\((figures/reproduction/\w+\.png)\)", text)
    assert len(pictures) == sum(e.draw is not None for e in EXPERIMENTS.values())
    assert all((tmp_path / "docs" / picture).exists() for picture in pictures)


@pytest.mark.unit
def test_the_two_columns_differ_as_they_should():
    published, ours = (cell(Setting("mnist"), column, "apes", "uniform2")[0].arguments for column in (PUBLISHED, OURS))
    assert published["update"] == "fedprox"
    assert published["levels"] == "continuous"
    assert published["normalise"] == "unit-norm"
    assert "levels" not in ours
    assert published["clip"] == ours["clip"] == 0.1
    assert published["split"] == ours["split"] == "label"


@pytest.mark.unit
def test_what_unis_and_pldp_share():
    """The same reports, permuted or not: one accuracy for both, as the paper prints."""
    assert cell(TINY, OURS, "unis", "gauss1") == cell(TINY, OURS, "pldp", "gauss1")
    assert cell(TINY, OURS, "ldp-min", "gauss1") == cell(TINY, OURS, "ldp-min", "uniform2")


@pytest.mark.unit
def test_the_papers_tables_have_a_figure_for_every_framework():
    private = NAMES.keys() - {"non-private"}
    assert ACCURACY.keys() == NAMES.keys()
    assert EPSILON_UC.keys() == EPSILON_C.keys() == EPSILON_UC_TABLE_3.keys() == private


def test_privacy_columns_of_table_3(tmp_path):
    """e_c to 0.001; e_uc under the convention that produced each, to 1 %; the certified figure far below."""
    setting, workshop = Setting("digits"), Workshop(tmp_path, None)
    for part in (bounds_part(setting.users, "uniform2"), user_part(setting, "uniform2")):
        workshop.work_out(part)
    coordinate = epsilon_c(setting, "uniform2", workshop.result)
    assert coordinate["apes"] == pytest.approx(EPSILON_C["apes"], abs=0.001)
    assert coordinate["unis"] == pytest.approx(EPSILON_C["unis"], abs=0.001)
    user = epsilon_uc(setting, "uniform2", workshop.result, EPSILON_UC_TABLE_3)
    named = {name: entry["convention"] for name, entry in user.items()}
    assert named == {
        "ldp-min": "stated",
        "pldp": "d times the largest budget",
        "unis": "coordinate",
        "apes": "coordinate",
        "s-apes": "composed",
    }
    for name, entry in user.items():
        assert entry["epsilon"] == pytest.approx(EPSILON_UC_TABLE_3[name], rel=0.01)
    assert workshop.result(user_part(setting, "uniform2"))["round"] < 2.2


@pytest.mark.parametrize(
    ("arguments", "message"), [(["fig9"], "WHAT must be one of"), (["fig7", "--data", "cats"], "data must be one of")]
)
def test_refused(arguments, message, tmp_path):
    outcome = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert outcome.exit_code == 2
    assert message in outcome.stderr


def test_command(tmp_path):
    outcome = CliRunner().invoke(app, ["reproduce", "fig7", "--quick", "--out", str(tmp_path), "--json"])
    assert outcome.exit_code == 0
    answer = json.loads(outcome.stdout)
    assert answer["results"]["fig7"]["figures"]["budgets"]
    assert "Made by <code>apes reproduce fig7 --data digits --quick</code>" in (tmp_path / "report.html").read_text()


@pytest.mark.unit
def test_quick_is_smaller_in_every_way():
    large, small = Setting("digits"), quick("digits")
    assert small.users < large.users
    assert len(small.populations) < len(large.populations)
    assert set(small.populations) < set(large.populations)
    assert len(large.seeds) >= 3
