"""Captions and findings say what the results under them are: other results, other words; unlike is not compared."""

import copy
import re

import pytest

from apes.paper.accuracy import not_the_papers, rows
from apes.paper.amplification import FIG2A
from apes.paper.findings import findings
from apes.paper.printed import ACCURACY, EPSILON_UC, EPSILON_UC_TABLE_3, LAWS, NAMES
from apes.paper.privacy import beside
from apes.paper.setting import COLUMNS, OURS, PUBLISHED, Setting, quick
from apes.paper.table3 import TABLE3
from apes.paper.table4 import TABLE4

PAPERS, OTHERS = Setting("mnist").size, quick("digits").size


def accuracies(laws=LAWS, shift=1.0):
    """Ours are the paper's and a bit more, so that every cell is another number."""
    return {
        column: {name: {law: {"mean": ACCURACY[name][law] + shift, "spread": 0.1, "runs": [1, 2]} for law in laws}
                 for name in NAMES}
        for column in COLUMNS
    }  # fmt: skip


def user_level(printed, is_papers):
    def entry(figure):
        both = {"coordinate": 1.01 * figure, "composed": 0.9 * figure}
        return {"by_convention": both, "convention": "coordinate", "epsilon": 1.01 * figure, "delta_c": 4.6e-9}

    return {name: entry(figure) | {"is_papers": is_papers} for name, figure in printed.items()}


def table3(size):
    return {
        "accuracy": accuracies(("uniform2",)),
        "epsilon_c": dict.fromkeys(EPSILON_UC_TABLE_3, 0.0688),
        "epsilon_uc": user_level(EPSILON_UC_TABLE_3, size["is_papers"]),
        "certified": {"coordinate": 0.029, "round": 2.136, "total": 20.24, "rounds": size["rounds"]},
        "lower": 0.02,
        "size": size,
    }


def table4(size):
    proved = {"round": 2.0, "total": 20.0}
    first = {"accuracy": {"mean": 80.0, "spread": 1.0, "runs": [1, 2]}, "certified": {"round": 0.4, "total": 3.18}}
    first |= {"accuracy_apes": first["accuracy"], "certified_apes": proved}
    printed = {law: {name: by_law[law] for name, by_law in EPSILON_UC.items()} for law in LAWS}
    return {
        "accuracy": accuracies(),
        "epsilon_uc": {law: user_level(printed[law], size["is_papers"]) for law in LAWS},
        "certified": dict.fromkeys(LAWS, proved),
        "rounds": size["rounds"],
        "size": size,
        "laplace_noise": 0.0132,
        "top_b_first": {"keep": 0.05, "rounds": size["rounds"], "laws": {"uniform2": first, "gauss1": first}},
        "cells_above_the_paper": 29,
        "cells": 30,
        "gap_to_non_private_uniform2": 1.0,
    }


def text_of(experiment, figures):
    tables = experiment.tables(figures)
    cells = [cell for table in tables for row in table.rows for cell in row]
    return " ".join([experiment.caption(figures), *(table.note for table in tables), *cells])


@pytest.mark.parametrize(("experiment", "make"), [(TABLE3, table3), (TABLE4, table4)], ids=["table3", "table4"])
def test_differences_are_of_the_same_data_users_and_rounds_only(experiment, make):
    like, unlike = (text_of(experiment, make(size)) for size in (PAPERS, OTHERS))
    assert "+1.00" in like
    assert "+1.0 %" in like
    assert "no difference is stated" not in like
    for signed in (r"[+-]\d+\.\d\d\b", r"[+-]\d+\.\d %"):
        assert re.search(signed, unlike) is None
    assert "no difference is stated" in unlike
    assert "5 rounds" in unlike


@pytest.mark.parametrize(
    ("data", "users", "rounds"), [("digits", 10_000, 40), ("mnist", 1_000, 40), ("mnist", 10_000, 5)]
)
def test_what_is_not_the_papers(data, users, rounds):
    size = Setting(data, users=users, rounds=rounds).size
    figures = {"accuracy": accuracies(), "size": size}
    assert {difference for *_, difference in rows(figures)} == {"-"}
    assert f"here {data}, {users:,} users, {rounds} rounds" in not_the_papers(figures)


def test_without_a_shuffler_the_number_of_users_does_not_matter():
    ours = {"epsilon": 80.2, "convention": "stated", "is_papers": True}
    assert beside(ours, 40.1)[-1] == "+100.0 %"


def test_captions_follow_the_figures():
    """Every number that is changed below is found again in the caption, and the old one is gone."""
    figures = table4(PAPERS)
    before = TABLE4.caption(figures)
    changed = copy.deepcopy(figures)
    changed["accuracy"][OURS]["apes"]["uniform2"]["mean"] = 12.34
    changed["accuracy"][PUBLISHED]["apes"]["gauss1"]["mean"] = 1.5
    changed["top_b_first"]["laws"]["uniform2"]["certified"]["total"] = 7.77
    changed |= {"cells_above_the_paper": 3, "laplace_noise": 0.57}
    after = TABLE4.caption(changed)
    for old, new in (("80.67 %", "12.34 %"), ("APES comes to 79.3", "APES comes to 1.5"), ("3.18", "7.77")):
        assert (old in before, new in before, old in after, new in after) == (True, False, False, True), new
    assert ("29 of 30" in before, "3 of 30" in after) == (True, True)
    assert ("APES is before UniS under 6 of 6" in before, "APES is before UniS under 5 of 6" in after) == (True, True)


def point(certified, lower, published, largest=1.0):
    names = "eon_closed eon_numeric bbgn19_bennett gddtk21 fmt22_closed fmt22_numeric".split()
    figures = dict.fromkeys(names, published) | {"erlingsson19": None}
    return {"certified": certified, "lower": lower, "published": figures, "largest": largest}


def bounds(*points, expected):
    return {
        "users": [1_000] * len(points),
        "curves": {"uniform2": list(points)},
        "certified_below_every_published_and_above_lower": expected == len(points),
        "points_as_expected": expected,
        "points": len(points),
    }


def test_figures_of_bounds():
    good, bad = point(0.1, 0.09, 0.2), point(0.1, 0.3, 0.2, largest=2.5)
    figures = bounds(good, good, expected=2)
    assert "At all 2 points" in FIG2A.caption(figures)
    assert "Erlingsson et al. 2019 is outside its range at all of them, and not drawn." in FIG2A.caption(figures)
    (legend,) = FIG2A.draw(figures).legends
    assert "Erlingsson et al. 2019" not in {text.get_text() for text in legend.get_texts()}
    figures = bounds(good, bad, expected=1)
    assert "NOT at all, but at 1 of 2 points" in FIG2A.caption(figures)
    assert "Local budgets up to 2.5;" in FIG2A.caption(figures)
    assert findings({"fig2a": {"figures": figures}})[0].startswith(
        "EoN's bound is not proved for different budgets: at 1 of these 2 points"
    )


def test_no_two_curves_look_alike():
    figures = bounds(point(0.1, 0.09, 0.2), expected=1)
    figures["curves"]["uniform2"][0]["published"]["erlingsson19"] = 0.3
    lines = FIG2A.draw(figures).axes[0].get_lines()
    looks = [(line.get_color(), line.get_linestyle(), line.get_marker()) for line in lines]
    assert len(set(looks)) == len(looks) == 9


def test_findings_are_said_where_results_bear_them_out():
    papers, others = ({"table3": {"figures": table3(size)}} for size in (PAPERS, OTHERS))
    assert findings(others) == []
    twice, readings = findings(papers)
    assert "79.6 in Table 4 and as 76.9 in Table 3. 77.67 comes out" in twice
    # What 76.9 would need, found again: a millionth more or less is enough to tell.
    needed = float(re.search(r"would need (\d\.\d+)\.", twice)[1])
    assert 0.069 < needed < 0.0695
    assert "58.18 and 25.86, or 51.84 and 23.04" in readings or "'coordinate'" in readings
    assert findings({}) == []
    assert len(findings({"table4": {"figures": table4(OTHERS)}})) == 2
