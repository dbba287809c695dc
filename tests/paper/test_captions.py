"""Captions and findings say what the results under them are: other results, other words; unlike is not compared."""

import copy
import re
from dataclasses import asdict

import pytest

from apes.paper.accuracy import accuracy, not_the_papers, rows, without_noise
from apes.paper.amplification import FIG2A
from apes.paper.fig2b import FIG2B
from apes.paper.findings import findings
from apes.paper.frontier.others import ON_MNIST
from apes.paper.frontier.picture import draw
from apes.paper.frontier.ways import AS_PUBLISHED, WAYS
from apes.paper.page import markdown
from apes.paper.printed import ACCURACY, EPSILON_UC, EPSILON_UC_TABLE_3, LAWS, NAMES
from apes.paper.privacy import beside, epsilon_uc
from apes.paper.setting import COLUMNS, OURS, PUBLISHED, Setting, quick
from apes.paper.sweeps import FIG3A
from apes.paper.table3 import TABLE3
from apes.paper.table4 import TABLE4
from apes.paper.variance_and_bias import FIG7, FIG8

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
        "without_noise": {"mean": 85.35, "best": 85.35, "best_round": size["rounds"], "rounds": size["rounds"]},
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
        "without_noise": {"mean": 85.35, "best": 85.35, "best_round": size["rounds"], "rounds": size["rounds"]},
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
    for order in experiment.tables(make(OTHERS)):
        if order.title.startswith("Order"):
            assert order.note.endswith("The paper's order is of mnist, 10,000 users, 40 rounds.")


def test_table_3_calls_nothing_certified_but_apes():
    (privacy, _) = TABLE3.tables(table3(PAPERS))
    certified = [place for place, heading in enumerate(privacy.headings) if heading.endswith("certified")]
    assert len(certified) == 2
    for row in privacy.rows:
        cells = [row[place] for place in certified]
        assert cells == (["0.0290", "2.136"] if row[0] == "APES" else ["-", "-"])


@pytest.mark.parametrize(
    ("data", "users", "rounds"), [("digits", 10_000, 40), ("mnist", 1_000, 40), ("mnist", 10_000, 5)]
)
def test_what_is_not_the_papers(data, users, rounds):
    size = Setting(data, users=users, rounds=rounds).size
    figures = {"accuracy": accuracies(), "size": size}
    assert {difference for *_, difference in rows(figures)} == {"-"}
    assert f"here {data}, {users:,} users, {rounds} rounds" in not_the_papers(figures)


def test_without_a_shuffler_other_users_do_not_compare_either():
    """The smallest of 1,000 budgets is not that of 10,000, so nor is what LDP-Min makes of it."""
    found = {"largest": 0.998, "smallest": 0.0504, "published": {"eon_numeric": 0.19, "fmt22_numeric": 0.23}}
    for setting, is_papers in ((quick("digits"), False), (Setting("digits"), True)):
        ours = epsilon_uc(setting, "uniform2", lambda part: found, EPSILON_UC_TABLE_3)
        assert {entry["is_papers"] for entry in ours.values()} == {is_papers}
        differences = {beside(entry, EPSILON_UC_TABLE_3[name])[-1] for name, entry in ours.items()}
        assert (differences == {"-"}) is not is_papers


@pytest.mark.parametrize("experiment", [TABLE3, TABLE4], ids=["table3", "table4"])
def test_what_has_not_settled_is_no_yardstick(experiment):
    figures = table3(OTHERS) if experiment is TABLE3 else table4(OTHERS)
    said = experiment.caption(figures)
    assert "4.68 points below training without noise at 85.35 %." in said
    figures["without_noise"] = {"mean": 47.48, "best": 61.43, "best_round": 1, "rounds": 5}
    said = experiment.caption(figures)
    assert "above training without noise" not in said
    assert "is at 47.48 % by then, and was at 61.43 % after round 1: it has not settled, and is no yardstick" in said
    # Within the spread, 0.1 here, it is no more than chance.
    figures["without_noise"]["mean"] = 80.62
    assert "0.05 points above training without noise at 80.62 %" in experiment.caption(figures)


def test_training_without_noise_and_its_best_round():
    runs = {1: [0.6, 0.5, 0.4], 2: [0.5, 0.8, 0.5]}
    found = without_noise(quick("digits"), lambda part: {"accuracy_by_round": runs[part.arguments["seed"]]})
    assert found == {"mean": pytest.approx(45), "best": pytest.approx(65), "best_round": 2, "rounds": 3}


def result_of(name, figures, data=("some",)):
    setting = asdict(quick("digits"))
    words = {"command": f"apes reproduce {name} --data digits --quick", "version": "0", "title": name}
    return {"name": name, "figures": figures, "setting": setting, "data": list(data), "seconds": 1.0, **words}


def test_a_page_speaks_of_what_was_trained_only():
    """Laws and bounds have no users, rounds, seeds or data set of the setting."""
    bare = markdown({"fig7": result_of("fig7", FIG7.figures(quick("digits"), None), data=())}, ".", 1.0)
    for untrue in ("1,000 users", "rounds", "seed", "data set", "As published", "several tables"):
        assert untrue not in bare
    figures = table3(OTHERS)
    alone = markdown({"table3": result_of("table3", figures)}, ".", 1.0)
    assert "Trained with 1,000 users, 5 rounds, 2 seeds, data set digits, where nothing else is said." in alone
    shorter = figures | {"size": OTHERS | {"rounds": 3}}
    assert "Trained with 1,000 users, 3 rounds, 2 seeds" in markdown({"table3": result_of("table3", shorter)}, ".", 1.0)


def test_bars_are_of_what_their_titles_say():
    """The paper prints no spread, and bars are as long as what they stand for."""
    for size, titles in ((PAPERS, ["the paper", "ours, as published", "ours"]), (OTHERS, None)):
        paper, *others = FIG2B.draw({"accuracy": accuracies(), "size": size}).axes
        assert paper.get_ylim()[0] == 0
        assert (len(paper.collections), len(others[0].collections)) == (0, 3)
        found = [axes.get_title() for axes in (paper, *others)]
        assert found == titles if titles else found[0].endswith("mnist, 10,000 users, 40 rounds")
        if size is OTHERS:
            assert all(title.endswith("digits, 1,000 users, 5 rounds") for title in found[1:])


def test_curves_that_coincide_are_one():
    figures = FIG8.figures(quick("digits"), None)
    (axes,) = FIG8.draw(figures).axes
    assert [line.get_label() for line in axes.get_lines()][3:] == ["Laplace, every C"]
    assert len(FIG7.draw(FIG7.figures(quick("digits"), None)).axes[0].get_lines()) == 6


def test_the_papers_sweep_is_named_where_it_is_another():
    curve = [{"mean": 70.0, "spread": 1.0, "runs": [1, 2]}] * 2
    curves = {column: dict.fromkeys(("Clip-Laplace", "Laplace"), curve) for column in COLUMNS}
    for size, of_others in ((PAPERS, False), (OTHERS, True)):
        said = FIG3A.caption({"places": [0.1, 0.3], "rounds": 3, "curves": curves, "size": size})
        assert ("whose figure of mnist and 10,000 users has no numbers" in said) is of_others


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
        "EoN's bound is not proved for different budgets. What some dataset forces exceeds it at 1 of these 2 points"
    )
    assert "exceeds it at none of these 1 points" in findings({"fig2a": {"figures": bounds(good, expected=1)}})[0]


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


def test_words_at_published_points_are_apart_and_inside():
    """On MNIST, with the curve of APES as published between them."""
    way = [{"epsilon": e, "accuracy": {"mean": a, "spread": 0.1}} for e, a in ((0.25, 86.0), (8.0, 98.0))]
    published = [
        {"epsilon": e, "accuracy": {"mean": a, "spread": 0.0}} for e, a in ((3.4, 71.7), (7.8, 75.5), (21, 82))
    ]
    ways = {name: {"title": name, "points": published if name == AS_PUBLISHED else way} for name in WAYS}
    others = [asdict(point) for point in ON_MNIST]
    figure = draw({"ways": ways, "published": others, "delta": 1e-5, "data": "mnist", "users": 10_000})
    figure.canvas.draw()
    (axes,) = figure.axes
    inside, boxes = axes.get_window_extent(), [words.get_window_extent() for words in axes.texts]
    assert len(boxes) == 5
    assert not any(one.overlaps(other) for i, one in enumerate(boxes) for other in boxes[:i])
    assert all(inside.x0 < box.x0 and box.x1 < inside.x1 and inside.y0 < box.y0 and box.y1 < inside.y1 for box in boxes)
    (curve,) = (line for line in axes.get_lines() if line.get_marker() == "D" and len(line.get_xdata()) == 3)
    path = curve.get_path().transformed(curve.get_transform())
    assert not any(path.intersects_bbox(box, filled=False) for box in boxes)


def test_the_spread_is_that_of_runs_and_not_of_their_mean():
    runs = {"a": [0.5, 0.90], "b": [0.5, 0.92], "c": [0.5, 0.94]}
    found = accuracy(runs, lambda part: {"accuracy_by_round": runs[part]})
    assert found["runs"] == pytest.approx([90, 92, 94])
    assert (found["mean"], found["spread"]) == pytest.approx((92, 2))
    assert accuracy("a", lambda part: {"accuracy_by_round": runs[part]}, 1) == {"runs": [50], "mean": 50, "spread": 0.0}
