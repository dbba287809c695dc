"""The frontier: accuracy against the certified epsilon of a whole training, with a trusted server as yardstick."""

from dataclasses import asdict

from apes.accounting.words import counted
from apes.paper.accuracy import accuracy, below, spread
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.frontier.others import ON_MNIST
from apes.paper.frontier.picture import draw
from apes.paper.frontier.tuned import tuned
from apes.paper.frontier.ways import (
    AS_PUBLISHED,
    DELTA,
    LAW,
    ONE_BIT,
    ONE_BIT_AS_IT_IS,
    ONE_BIT_PIXELS,
    TRUSTED,
    TRUSTED_PIXELS,
    WAYS,
    searched_for,
    targets_of,
    way_parts,
)
from apes.paper.parts import Part
from apes.paper.setting import Setting

_REFERENCE = 1.0


def _parts(setting: Setting) -> list[Part]:
    return [part for name in WAYS for target in targets_of(setting, name) for part in way_parts(setting, name, target)]


def _figures(setting: Setting, result: Results) -> Figures:
    ways = {name: [_point(setting, name, t, result) for t in targets_of(setting, name)] for name in WAYS}
    first = result(way_parts(setting, ONE_BIT, setting.targets[0])[0])
    return {
        "data": setting.data,
        "users": setting.users,
        "images_per_user": first["images"] / setting.users,
        "budgets": LAW,
        "delta": DELTA,
        "targets": list(setting.targets),
        "seeds": list(setting.seeds),
        "search": _search(setting),
        "ways": {name: {"title": WAYS[name].title, "points": points} for name, points in ways.items()},
        "published": [asdict(point) for point in ON_MNIST] if setting.data == "mnist" else [],
    }


def _search(setting: Setting) -> Figures | None:
    """How settings were searched for, where the runs are made with such: the command, and runs by way and target."""
    kept = tuned(setting.data)
    if kept is None or searched_for(setting, ONE_BIT, setting.targets[0]) is None:
        return None
    return {
        "made_by": kept["made_by"],
        "runs": {name: [point["runs"] for point in way["points"]] for name, way in kept["ways"].items()},
    }


def _point(setting: Setting, name: str, target: float | None, result: Results) -> Figures:
    """Accuracy of a way at a target, in per cent, and what was spent and settled; None where no round fits."""
    parts = way_parts(setting, name, target)
    found = [result(part) for part in parts]
    facts = {key: found[0].get(key) for key in ("rounds", "clip", "norm", "cap", "dimensions")}
    facts["searched_for"] = searched_for(setting, name, target)
    if any(one["accuracy"] is None for one in found):
        return {"target": target, "accuracy": None, "epsilon": None, **facts}
    # Seeds draw budgets of their own: the largest is true of all.
    epsilon = max(one["epsilon"] for one in found)
    return {"target": target, "accuracy": accuracy(parts, result), "epsilon": epsilon, **facts}


def _at(figures: Figures, way: str, target: float | None) -> Figures:
    return next(point for point in figures["ways"][way]["points"] if point["target"] == target)


def _cell(point: Figures) -> str:
    found = point["accuracy"]
    if found is None:
        return "no round fits"
    return spread(found)


def _tables(figures: Figures) -> list[Table]:
    tables = [_accuracies(figures), _settled(figures)]
    if figures["search"] is not None:
        tables.append(_searched(figures))
    if figures["published"]:
        tables.append(_others(figures))
    return tables


def _accuracies(figures: Figures) -> Table:
    rows = [
        [way["title"], *(_cell(_at(figures, name, target)) for target in figures["targets"])]
        for name, way in figures["ways"].items()
    ]
    note = (
        f"± is the sample standard deviation over seeds {', '.join(map(str, figures['seeds']))}; without it, one run. "
        "The trusted server sees bare updates and adds Gaussian noise itself: a yardstick, which nobody trains under "
        "here. All others show nobody anything but shuffled reports."
    )
    title = f"Accuracy (%) at a certified epsilon of the whole training, delta {figures['delta']:g}"
    return Table(title, ["way", *(f"{target:g}" for target in figures["targets"])], rows, note)


def _settled(figures: Figures) -> Table:
    """Rounds, cap and what was spent, way by way."""
    rows = []
    for name, way in figures["ways"].items():
        points = [_at(figures, name, target) for target in figures["targets"]]
        settled = [str(p["rounds"]) + ("" if p["cap"] is None else f", {p['cap']:.2g}") for p in points]
        rows.append([way["title"], f"{points[0]['dimensions']:,}", *settled])
    where = "fixed on the embedded digits"
    if figures["search"] is not None:
        where = f"searched for on the training part for one bit and the trusted server, {where} for all others"
    note = (
        f"Rounds, and the cap on local budgets where there is one. Rounds, norm and step were {where}; caps that were "
        "not searched for follow from the budgets, which are public."
    )
    return Table("Rounds and caps", ["way", "d", *(f"{target:g}" for target in figures["targets"])], rows, note)


def _searched(figures: Figures) -> Table:
    """What was found for both sides, target by target."""
    names = ("rounds", "norm", "learning_rate", "momentum", "last_step", "cap")
    rows = []
    for way in figures["ways"].values():
        for point in way["points"]:
            if point["searched_for"] is not None:
                values = [point["searched_for"].get(name) for name in names]
                rows.append([way["title"], f"{point['target']:g}", *("-" if v is None else f"{v:g}" for v in values)])
    runs = "; ".join(
        f"{figures['ways'][name]['title']}: {', '.join(map(str, counts))}"
        for name, counts in figures["search"]["runs"].items()
    )
    note = (
        f"Found on the training part, by held-out people, never on test images ({figures['search']['made_by']}); runs "
        f"per target: {runs}. What this search cost in privacy is in no epsilon here, on either side."
    )
    headings = ["way", "epsilon", "rounds", "norm R", "step", "momentum", "last step", "cap"]
    return Table("Settings that were found", headings, rows, note)


def _others(figures: Figures) -> Table:
    rows = [
        [p["name"], f"{p['accuracy']:g}", f"{p['epsilon']:g}", p["unit"], f"{p['users']:,}", f"{p['dimensions']:,}"]
        for p in figures["published"]
    ]
    note = "As their authors print them. Another unit of privacy is another promise: figures do not compare as such."
    return Table("Published on MNIST", ["by", "accuracy (%)", "epsilon", "what is hidden", "n", "d"], rows, note)


def _caption(figures: Figures) -> str:
    reference = min(figures["targets"], key=lambda target: abs(target - _REFERENCE))
    images = figures["images_per_user"]
    said = [
        f"{figures['users']:,} users with {images:g} images of {figures['data']} each, budgets {figures['budgets']}; "
        f"epsilon at delta {figures['delta']:g} of the whole training, one user's data replaced, proved for everybody."
    ]
    for ours, yardstick, what in ((ONE_BIT, TRUSTED, "features"), (ONE_BIT_PIXELS, TRUSTED_PIXELS, "pixels")):
        said.append(_beside(figures, reference, (ours, yardstick, what)))
    said.append(_without_a_search(figures, reference))
    said.append(_as_published(figures))
    if not figures["published"]:
        said.append("Figures that others published stand beside those of mnist only.")
    return " ".join(said)


def _beside(figures: Figures, reference: float, pair: tuple[str, str, str]) -> str:
    ours, yardstick, what = pair
    gaps = {t: gap for t in figures["targets"] if (gap := _gap(figures, ours, yardstick, t)) is not None}
    if reference not in gaps:
        return f"At {reference:g}, no round fits on {what}."
    widest = max(gaps, key=lambda target: gaps[target])
    both = [_cell(_at(figures, way, reference)) for way in (ours, yardstick)]
    return (
        f"At {reference:g}, one bit per coordinate on {what} reaches {both[0]} %, a trusted server {both[1]} %: ours "
        f"is {below(gaps[reference])} it, and at the least favourable target ({widest:g}) {below(gaps[widest])}."
    )


def _without_a_search(figures: Figures, reference: float) -> str:
    if figures["search"] is None:
        return "No settings were searched for on this data set, for either side."
    as_it_is = _cell(_at(figures, ONE_BIT_AS_IT_IS, reference))
    return (
        "Settings of both were searched for on the training part, alike. Without that, as `apes train` is, one bit on "
        f"features reaches {as_it_is} %."
    )


def _gap(figures: Figures, ours: str, yardstick: str, target: float) -> float | None:
    """By how many points ours is below the yardstick; None where one of them has no round."""
    theirs, own = (_at(figures, way, target)["accuracy"] for way in (yardstick, ours))
    return None if theirs is None or own is None else float(theirs["mean"] - own["mean"])


def _as_published(figures: Figures) -> str:
    whole = _at(figures, AS_PUBLISHED, None)
    fits = [target for target in figures["targets"] if _at(figures, AS_PUBLISHED, target)["accuracy"] is not None]
    begins = f"{min(fits):g} is the first that a round of it fits" if fits else "none is met by even one round"
    return (
        f"APES as published reaches {_cell(whole)} % after its {counted(whole['rounds'], 'round')}, which cost "
        f"{whole['epsilon']:.1f}; of the targets, {begins}."
    )


FRONTIER = Experiment(
    "frontier",
    "The frontier: accuracy against certified epsilon",
    _parts,
    _figures,
    _tables,
    _caption,
    draw,
    is_of_paper=False,
)
