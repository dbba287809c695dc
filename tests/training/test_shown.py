"""The walk: of what may be shown of a run, the model alone depends on people's data, and nothing else.

Two data sets that differ in one person's rows, trained on under the same keys: whatever differs in a file that may be
shown would tell which of the two it was, beyond what was released under noise.
"""

import json

import numpy as np
import pytest

import apes
from apes.cli.choices import make_choices
from apes.cli.training_result import finish, summary_of
from apes.cli.training_task import new_folder, task_of
from apes.training import train as training
from apes.training.keys import RunKeys
from apes.training.run import Identity
from apes.training.run_files import SHOWN

KEYS = RunKeys(apes.StreamKey(bytes(range(32))), bytes(range(32, 64)))
PEOPLE, TRAINS, JUDGES = 60, 7, 5


def write_table(path, changed):
    """Rows of people; one of them may have others."""
    rng = np.random.default_rng(4)
    lines = ["who,age,size,sick,wish"]
    for person in range(PEOPLE):
        for _ in range(3):
            age, size = rng.integers(20, 90), rng.integers(1, 10)
            if person == changed:
                age, size = 110 - age, 10 - size
            lines.append(f"p{person},{age},{size},{'yes' if age + size > 60 else 'no'},{('low', 'high')[person % 2]}")
    path.write_text("\n".join(lines) + "\n")


def run_in(folder, table):
    """Train on a table in a folder of its own, to the end, as `apes train --out` does."""
    options = {"data": str(table), "user_column": "who", "label_column": "sick", "budget_column": "wish"}
    options |= {"budget_levels": "low=0.5,high=1", "bounds": "0:10,age=0:120", "rounds": 3, "delta": 1e-3}
    chosen = make_choices(options, tables=True)
    task = task_of(chosen, None, None)
    run = new_folder(folder, chosen, task, None, KEYS)
    workers = apes.Workers(threads=1)
    result = training.train(task.model, task.people, task.plan, workers=workers, keys=KEYS, after_round=run.save)
    summary = summary_of(chosen, task, result, 1.0) | {"out": str(folder)}
    finish(run, chosen, task, result, summary)
    return folder, task


def shown(folder):
    """Every file that may be shown, by its name in the folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and "private" not in path.relative_to(folder).parts]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.fixture(scope="module")
def walked(tmp_path_factory):
    """A run, and its neighbours: one of the people has other rows, who trains or who judges."""
    here, runs = tmp_path_factory.mktemp("walk"), {}
    for name, changed in (("as it is", None), ("one trains otherwise", TRAINS), ("one judges otherwise", JUDGES)):
        (here / name).mkdir()
        write_table(here / name / "people.csv", changed)
        runs[name] = run_in(here / name / "run", here / name / "people.csv")
    (_, task), (_, trains), (_, judges) = runs.values()
    # They differ where they are to, and nowhere else.
    assert task.people.digest == judges.people.digest != trains.people.digest
    assert task.people.test.digest == trains.people.test.digest != judges.people.test.digest
    return {name: folder for name, (folder, _) in runs.items()}


def differing(one, other):
    one, other = shown(one), shown(other)
    assert one.keys() == other.keys()
    return {name for name in one if one[name] != other[name]}


def test_every_file_that_may_be_shown_is_known(walked):
    for run in walked.values():
        assert {name.split("/")[0] for name in shown(run)} == set(SHOWN)


def test_the_model_and_what_names_it_are_all_that_differs(walked):
    runs = walked["as it is"], walked["one trains otherwise"]
    assert differing(*runs) == {"model.npz", "certificate.json"}
    certificates = [json.loads((run / "certificate.json").read_text()) for run in runs]
    digests = [certificate.pop("model_sha256") for certificate in certificates]
    assert certificates[0] == certificates[1]
    assert digests[0] != digests[1]
    models = [dict(np.load(run / "model.npz")) for run in runs]
    assert models[0]["about"] == models[1]["about"]
    assert models[0].keys() == models[1].keys() == {"weights", "about"}


def test_of_who_judges_nothing_is_to_be_seen(walked):
    assert differing(walked["as it is"], walked["one judges otherwise"]) == set()


def test_what_follows_from_people_as_they_are_is_the_owners(walked):
    own = walked["as it is"] / "private"
    for name in ("identity.json", "checkpoint.npz", "metrics.jsonl", "summary.json"):
        for other in ("one trains otherwise", "one judges otherwise"):
            assert (own / name).read_bytes() != (walked[other] / "private" / name).read_bytes()


def test_nothing_that_may_be_shown_names_a_place_of_this_machine(walked):
    for run in walked.values():
        place = str(run.parents[1]).encode()
        assert [name for name, content in shown(run).items() if place in content] == []


@pytest.mark.parametrize("name", ["one trains otherwise", "one judges otherwise"])
def test_with_what_earlier_logs_said_the_walk_fails(tmp_path, walked, monkeypatch, name):
    """So it is shown to work: digests of people and of the test part stood in every line."""
    monkeypatch.setattr(Identity, "shown", property(lambda identity: dict(vars(identity))))
    runs = [run_in(tmp_path / str(number), walked[each].parent / "people.csv")[0] for number, each in
            enumerate(("as it is", name))]  # fmt: skip
    assert "exposures.jsonl" in differing(*runs)


def test_the_name_of_a_run_follows_from_its_keys_alone(walked):
    names = {
        json.loads((run / "exposures.jsonl").read_text().splitlines()[0])["run"]["name"] for run in walked.values()
    }
    assert names == {KEYS.name}
    assert RunKeys.draw().name != KEYS.name
