"""What a run is and came to, as plain values: from its log, checkpoint and configuration; a summary is not believed."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from apes.accounting.account import by_group, with_levels
from apes.accounting.exposure import Exposure
from apes.accounting.guarantee import Guarantee
from apes.accounting.words import HELD_OUT
from apes.terms.spelling import train_words
from apes.training.going_on import rounds_within
from apes.training.run import Progress
from apes.training.run_files import files_of
from apes.training.run_folder import RunFolder
from apes.training.train import OWN_TARGETS, ROUNDS, TARGET


@dataclass(frozen=True, eq=False)
class Certified:
    """What is certified about a run, and by whose word.

    Attributes:
        guarantee: What is proved, or why nothing is; None where it could not be asked.
        by_round: What was spent after every round.
        why: Why it could not be asked.
        participants: How many took part, round by round, where receipts say so and not the log.
        fingerprint: Of the invitation whose terms and key it was checked by, in a federation.
    """

    guarantee: Guarantee | None
    by_round: Sequence[float | None] = ()
    why: str | None = None
    participants: Sequence[int] | None = None
    fingerprint: str | None = None

    def as_dict(self, levels: Mapping[str, float] | None = None) -> dict[str, Any]:
        """As plain values, with the guarantee of groups of users by their budgets, and the levels in each."""
        if self.guarantee is None:
            unknown = dict.fromkeys(("epsilon", "epsilon_by_round", "delta", "seeded", "condition"))
            return {**unknown, "why": self.why, "caveats": [], "by_budget": []}
        said = self.guarantee.as_dict(self.by_round)
        is_certified = said["epsilon"] is not None
        groups = by_group(self.guarantee, self.guarantee.budgets) if is_certified else ()
        return {**said, "by_budget": with_levels(groups, levels or {})}


def is_federation(folder: RunFolder) -> bool:
    """Whether a run is one of a federation's analyzer."""
    return "receipts_key" in folder.config["choices"]


def levels_of(folder: RunFolder, guarantee: Guarantee | None) -> dict[str, float]:
    """The budgets of the levels that people who took part had chosen, as they were applied; none without levels.

    A folder that does not say who was lowered by a cap (a federation's, an earlier version's) has levels as they are.
    """
    if guarantee is None or folder.schema is None:
        return {}
    chosen: Mapping[str, float] = folder.config["levels"] or dict(folder.schema.budget_levels)
    present = set(guarantee.budgets.tolist())
    return {name: float(budget) for name, budget in chosen.items() if budget in present}


def facts_of(folder: RunFolder, certified: Certified) -> dict[str, Any]:
    """All that is to be said about a run."""
    reached, config = folder.load(), folder.config
    model = folder.model() if folder.has_model else None
    about = None if model is None else model[1]
    exposures = _exposures(folder, reached)
    facts = {
        "run": str(folder.path),
        "state": _state(folder, len(exposures), about),
        "is_federation": is_federation(folder),
        "data": config["data"],
        "version": config["version"],
        "planned_rounds": config["basis"]["rounds"],
        "rounds": len(exposures),
        "target_epsilon": config["basis"]["target"],
        "settings": dict(config["choices"]),
        "table": _table(folder) if exposures else None,
        "certified": certified.as_dict(levels_of(folder, certified.guarantee)),
        "fingerprint": certified.fingerprint,
        "model": about,
        "files": files_of(folder.path, folder.config["layout"]),
        "is_copy": folder.is_copy,
        **_course(reached, exposures, certified.participants, is_federation(folder)),
    }
    facts["accuracy_note"] = None
    if facts["table"] is not None and facts["loss"] is not None and not facts["is_federation"]:
        facts["accuracy_note"] = HELD_OUT
    facts["stopped"] = _stopped(facts)
    facts["rounds_within_target"] = _room(folder, exposures, facts)
    return facts | {"command": _command(facts), "next": _next(folder, facts)}


def _exposures(folder: RunFolder, reached: Progress | None) -> tuple[Exposure, ...]:
    """What was revealed round by round: as far as the run got, or in a copy as far as its log goes."""
    if reached is not None:
        return reached.exposures
    return folder.charged()[1] if folder.is_copy else ()


def _state(folder: RunFolder, rounds: int, about: dict[str, Any] | None) -> str:
    """``finished``, ``unfinished``, or ``not begun``: nothing was released yet."""
    if not rounds:
        return "not begun"
    # A model that does not say after how many rounds it stands is of an earlier version.
    stands = rounds if about is None else about.get("rounds")
    return "finished" if folder.has_model and stands == rounds else "unfinished"


def _course(
    reached: Progress | None, exposures: Sequence[Exposure], participants: Sequence[int] | None, is_federated: bool
) -> dict[str, Any]:
    """How it went, round by round; what is the owner's is not in a copy."""
    metrics = () if reached is None else reached.metrics
    present = [exposure.budgets.size for exposure in exposures] if not is_federated else participants
    last = metrics[-1] if metrics else None
    return {
        "participants_by_round": None if present is None else list(present),
        "accuracy": None if last is None else last.accuracy,
        "loss": None if last is None else last.loss,
        "baseline": None if last is None else last.baseline,
        "beats_baseline": None if last is None else last.judged.beats_baseline,
        "test_rows": None if last is None else last.test_rows,
        "accuracy_by_round": [entry.accuracy for entry in metrics],
        "loss_by_round": [entry.loss for entry in metrics],
        "seconds_by_round": [entry.seconds for entry in metrics],
        "reports": None if not exposures else _reports(exposures[0]),
    }


def _reports(exposure: Exposure) -> dict[str, Any]:
    """What a report is."""
    names = ("dimensions", "charged", "levels", "clip", "norm", "sparsifier", "mechanism", "shuffled")
    return {name: getattr(exposure, name) for name in names}


def _table(folder: RunFolder) -> dict[str, Any] | None:
    """What is public about the table; None without one."""
    schema = folder.schema
    if schema is None:
        return None
    return {
        "label": schema.label,
        "task": schema.task,
        "classes": list(schema.classes),
        "features": list(schema.columns.feature_names),
        "budget_levels": dict(schema.budget_levels),
        "bounds_from_data": list(schema.bounds_from_data),
        "schema_sha256": schema.digest,
    }


def _stopped(facts: dict[str, Any]) -> str | None:
    """What ended the run: all rounds are over, or the target, or everybody's own; None if it is not over."""
    asked = facts["settings"].get("rounds") or facts["planned_rounds"]
    if facts["state"] != "finished":
        return None
    if isinstance(facts["settings"].get("target_epsilon"), str) and facts["rounds"] < asked:
        return OWN_TARGETS
    return ROUNDS if facts["rounds"] >= facts["planned_rounds"] else TARGET


def _room(folder: RunFolder, exposures: Sequence[Exposure], facts: dict[str, Any]) -> int | None:
    """How many rounds in all the target covers, whoever chooses to go on; None where that is not to be had."""
    basis, is_proved = folder.config["basis"], facts["certified"]["epsilon"] is not None
    if not exposures or not is_proved or facts["is_federation"] or basis["target"] is None:
        return None
    return rounds_within(basis, exposures[0])


def _command(facts: dict[str, Any]) -> str | None:
    """What makes such a run anew; None for a federation's, and where the owner's files are not there to tell."""
    return None if facts["is_federation"] or facts["is_copy"] else train_words(facts["settings"])


def _next(folder: RunFolder, facts: dict[str, Any]) -> list[dict[str, str]]:
    """What can be done with the run, each with its command."""
    run, found = facts["run"], list[dict[str, str]]()

    def offer(what: str, *words: str) -> None:
        found.append({"what": what, "command": shlex.join(["apes", *words])})

    if facts["is_federation"]:
        offer("certify it by what was signed", "account", "--run", run, "--invitation", "INVITATION")
        if facts["table"] is not None and facts["state"] == "finished":
            offer("predict", "predict", run, "TABLE", "--out", "predictions.csv")
        return found
    can_go_on = folder.is_sorted and not folder.is_copy
    if facts["state"] != "finished" and can_go_on:
        offer("go on where it stopped", "train", "--resume", run)
    elif facts["state"] == "finished":
        rows = "TABLE" if facts["table"] is not None else "IMAGES.npz"
        offer("predict", "predict", run, rows, "--out", "predictions.csv")
    if facts["rounds"]:
        offer("compute the guarantee again, from the log alone", "account", "--run", run)
    room = facts["rounds_within_target"] or 0
    if facts["state"] == "finished" and can_go_on and room > max(facts["rounds"], facts["planned_rounds"]):
        what = f"add rounds, up to {room:,} in all; the target, {facts['target_epsilon']:g}, is what is guaranteed then"
        offer(what, "train", "--resume", run, "--rounds", str(room))
    return found
