"""The frontier: accuracy against the certified epsilon of a whole training, with a trusted server as yardstick."""

from dataclasses import asdict

from apes.accounting.words import counted
from apes.paper.accuracy import accuracy, below, spread
from apes.paper.experiment import Experiment, Figures, Results, Table
from apes.paper.frontier.others import ON_MNIST
from apes.paper.frontier.picture import draw
from apes.paper.frontier.ways import (
    AS_PUBLISHED,
    DELTA,
    LAW,
    ONE_BIT,
    ONE_BIT_PIXELS,
    TRUSTED,
    TRUSTED_PIXELS,
    WAYS,
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
        "ways": {name: {"title": WAYS[name].title, "points": points} for name, points in ways.items()},
        "published": [asdict(point) for point in ON_MNIST] if setting.data == "mnist" else [],
    }


def _point(setting: Setting, name: str, target: float | None, result: Results) -> Figures:
    """Accuracy of a way at a target, in per cent, and what was spent and settled; None where no round fits."""
    parts = way_parts(setting, name, target)
    found = [result(part) for part in parts]
    facts = {key: found[0].get(key) for key in ("rounds", "clip", "norm", "cap", "dimensions")}
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
    return [_accuracies(figures), _settled(figures)] + ([_others(figures)] if figures["published"] else [])


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
    note = (
        "Rounds, and the cap on local budgets where there is one. Rounds, norm, clip bound and share to keep were "
        "fixed on the embedded digits; caps follow from the budgets, which are public."
    )
    return Table("Rounds and caps", ["way", "d", *(f"{target:g}" for target in figures["targets"])], rows, note)


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
