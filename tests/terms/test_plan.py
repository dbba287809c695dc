"""The plan refuses what does not fit together, and the stages and the exposure come from the same fields."""

from dataclasses import fields, replace

import numpy as np
import pytest

from apes import Dataset, ParameterError, Plan, Simulation, Terms, make_budgets
from apes.accounting.exposure import budgets_digest
from apes.terms.plan import schedule_digest


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"framework": "ape"}, r"framework must be one of .*'ape'"),
        ({"rounds": 0}, r"rounds must be in \[1, 1000000\], got 0"),
        ({"clip": 0.0}, r"clip must be in \(0, inf\), got 0.0"),
        ({"clip": float("nan")}, r"clip must be in \(0, inf\), got nan"),
        ({"clip": float("inf")}, r"clip must be in \(0, inf\), got inf"),
        ({"levels": 1}, r"levels must be in \[2, 256\], got 1"),
        ({"levels": 257}, r"levels must be in \[2, 256\], got 257"),
        ({"levels": "fine"}, r"levels must be in \[2, 256\] or 'continuous', got 'fine'"),
        ({"norm": 0.0}, r"norm must be in \(0, inf\), got 0.0"),
        ({"norm": float("nan")}, r"norm must be in \(0, inf\), got nan"),
        ({"norm": float("inf")}, r"norm must be in \(0, inf\), got inf"),
        ({"norm": 1.0, "levels": 256}, r"levels must be 2 with a norm, got 256"),
        ({"norm": 1.0, "levels": 2.0}, r"levels must be a whole number, got 2.0"),
        ({"norm": 1.0, "levels": "continuous"}, r"levels must be 2 with a norm, got 'continuous'"),
        ({"norm": 1.0, "calibration": "inverse"}, r"calibration must be left out: .* unbiased"),
        *(
            ({"norm": 1.0, "framework": framework}, r"norm must be left out: .*; got 1.0")
            for framework in ("s-apes", "s-apes-first", "s-apes-threshold", "unis", "pldp", "ldp-min", "non-private")
        ),
        ({"framework": "unis", "levels": 256}, r"levels must be left out"),
        ({"learning_rate": 0.0}, r"learning_rate must be in"),
        ({"momentum": 1.0}, r"momentum must be in"),
        ({"decay": -0.1}, r"decay must be in"),
        ({"averaging": float("nan")}, r"averaging must be in"),
        ({"calibration": "magic"}, r"calibration must be one of"),
        ({"framework": "pldp", "calibration": "inverse"}, r"calibration must be left out"),
        ({"levels": "continuous", "calibration": "likelihood"}, r"calibration must be inverse"),
        ({"keep": 0.2}, r"keep must be left out"),
        ({"framework": "s-apes", "keep": 0.0}, r"keep must be in"),
        ({"framework": "s-apes", "sparsifier": "best"}, r"sparsifier must be one of"),
        ({"seed": -1}, r"seed must be in"),
        ({"seed": 2**64}, r"seed must be in"),
    ],
    ids=str,
)
def test_bad_choices_name_parameter_range_and_value(choice, said):
    with pytest.raises(ParameterError, match=said) as caught:
        Plan(**choice)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ({"users": 0}, r"users must be in \[1, 100000000\], got 0"),
        ({"users": 2.5}, r"users must be a whole number, got 2.5"),
        ({"budgets": "constant:0"}, r"budgets must be in \(0, inf\), got 'constant:0'"),
        ({"update": "newton"}, r"update must be one of"),
        ({"mu": 0.1}, r"mu must be left out"),
        ({"update": "fedprox", "mu": -1.0}, r"mu must be in"),
        ({"update": "fedprox", "local_epochs": 0}, r"local_epochs must be in"),
        ({"seed": -1}, r"seed must be in"),
        ({"seed": 2**64}, r"seed must be in"),
    ],
    ids=str,
)
def test_bad_choices_of_a_simulation(choice, said):
    with pytest.raises(ParameterError, match=said) as caught:
        Simulation(**choice)
    assert "\n" not in str(caught.value)


def test_with_a_clip_bound_the_defaults_are_the_papers_setting():
    plan, simulation = Plan(clip=0.1), Simulation()
    assert (plan.framework, plan.terms.rounds, plan.terms.clip) == ("apes", 40, 0.1)
    assert (simulation.budgets, simulation.users) == ("uniform2", 10_000)
    assert (plan.terms.reports.levels, plan.terms.cap, plan.terms.target_epsilon) == (256, None, None)


@pytest.mark.parametrize(
    "choice", [{}, {"norm": 2.0}, {"cap": 0.2}, {"target_epsilon": 0.5}, {"rounds": 7, "delta": 1e-6}], ids=str
)
def test_an_open_plan_has_no_terms_yet(choice):
    assert Plan(**choice).is_open
    with pytest.raises(ParameterError, match="clip must be given, or found for the people who train"):
        Plan(**choice).terms  # noqa: B018 - raises


@pytest.mark.parametrize(
    "choice",
    [{"clip": 0.1}, {"levels": 2}, {"calibration": "inverse"}, {"framework": "unis"}, {"target_epsilon": "own:2"}],
    ids=str,
)
def test_other_plans_have_terms(choice):
    assert Plan(**choice).terms.clip == 0.1


def tiny_data(scale=1.0):
    images = scale * np.random.default_rng(2).random((40, 3), dtype=np.float32)
    labels = np.repeat(np.arange(4, dtype=np.uint8), 10)
    return Dataset("digits", images, labels, images[:4], labels[::10], "made for the test")


def identity(plan, simulation, data):
    """What a run is of: all that a resumed one compares."""
    terms = plan.terms.digest(simulation.model(data))
    return terms, schedule_digest(plan.schedule), plan.seed, simulation.people(data).digest


def test_the_identity_changes_with_every_field():
    plan, simulation, data = Plan(framework="s-apes-threshold"), Simulation(users=20, features="pixels"), tiny_data()
    of_plan = {
        "framework": "unis", "rounds": 9, "cap": 0.3, "optimizer": "adam", "last_step": 0.5,
        "clip": 0.2, "levels": 16, "learning_rate": 0.3, "momentum": 0.1,
        "decay": 0.1, "averaging": 1.0, "calibration": "inverse", "sparsifier": "random-b", "keep": 0.3,
        "delta": 1e-4, "target_epsilon": 2.0, "seed": 2,
    }  # fmt: skip
    fedprox = {"local_epochs": 3, "local_learning_rate": 0.5, "mu": 0.1}
    of_simulation = {"users": 9, "budgets": "uniform1", "split": "label", "update": "fedprox", "seed": 2}
    # Name, scale and features of the data are seen in the images or said to `digest`; a mechanism of one's own and a
    # norm have their own tests.
    assert {*of_plan, "mechanism", "norm"} == {field.name for field in fields(Plan)}
    assert {*of_simulation, *fedprox, "data", "normalise", "features"} == {field.name for field in fields(Simulation)}
    found = [
        identity(plan, simulation, data),
        *(identity(replace(plan, **{name: value}), simulation, data) for name, value in of_plan.items()),
        *(identity(plan, replace(simulation, **{name: value}), data) for name, value in of_simulation.items()),
        *(
            identity(plan, replace(simulation, update="fedprox", **{name: value}), data)
            for name, value in fedprox.items()
        ),
        identity(plan, simulation, tiny_data(0.5)),
    ]
    assert len(set(found)) == len(found)


def test_a_norm_is_part_of_the_terms():
    simulation, data = Simulation(users=20, features="pixels"), tiny_data()
    plans = [Plan(clip=0.1, **others) for others in ({}, {"levels": 2}, {"norm": 1.0}, {"norm": 2.0})]
    plans.append(Plan(norm=1.0, levels=2))
    assert len({identity(plan, simulation, data) for plan in plans}) == 5
    terms = plans[2].terms
    assert (terms.norm, terms.reports.levels, plans[2].as_dict()["norm"]) == (1.0, 2, 1.0)
    assert len({terms.reports.digest, plans[1].terms.reports.digest, plans[3].terms.reports.digest}) == 3
    exposure = terms.exposure(1, make_budgets("uniform2", 50, 1), 70)
    assert (exposure.norm, exposure.levels, exposure.clip, exposure.why_not_certified) == (1.0, 2, 0.1, None)
    assert exposure.form != plans[3].terms.exposure(1, exposure.budgets, 70).form
    assert type(exposure).from_dict(exposure.as_dict(), exposure.budgets).norm == 1.0


def test_the_exposure_says_what_the_stages_do():
    terms = Plan(framework="s-apes-threshold", clip=0.25, levels=32).terms
    budgets = make_budgets("uniform2", 50, 1)
    exposure = terms.exposure(3, budgets, 70)
    assert (exposure.round, exposure.budgets.size, exposure.dimensions, exposure.levels) == (3, 50, 70, 32)
    assert (exposure.clip, exposure.charged, exposure.why_not_certified) == (0.25, 70, None)
    assert (exposure.mechanism, exposure.shuffled, exposure.sparsifier) == ("clip-laplace", True, "threshold")
    line = exposure.as_dict()
    assert (line["users"], line["smallest_budget"], line["largest_budget"]) == (50, budgets.min(), budgets.max())
    assert exposure.budgets_sha256 == budgets_digest(np.random.default_rng(1).permutation(budgets))
    assert exposure.budgets_sha256 != budgets_digest(budgets * 1.0000001)


def test_delta_is_a_tenth_of_one_in_as_many_as_there_are():
    assert Terms().central_delta(50) == 1 / 500
    assert Terms(delta=1e-7).central_delta(50) == 1e-7
    assert Terms().accountant(50, settled=True).delta == 1 / 500


def test_a_feature_map_is_part_of_the_terms():
    terms, model = Terms(), Simulation(users=20, features="pixels").model(tiny_data())
    assert len({terms.digest(model, features) for features in ("", "one map", "another")}) == 3


@pytest.mark.parametrize(
    ("framework", "keep", "charged", "first"),
    [
        ("apes", None, 100, None),
        ("s-apes-threshold", 0.2, 100, None),
        # Two updates may each keep coordinates that the other does not.
        ("s-apes-first", 0.2, 40, 20),
        ("s-apes-first", 0.7, 100, 70),
        ("s-apes-first", None, 10, 5),
    ],
)
def test_all_coordinates_are_charged_in_which_reports_can_differ(framework, keep, charged, first):
    exposure = Terms(framework=framework, keep=keep).exposure(1, np.full(30, 0.5), 100)
    assert (exposure.charged, exposure.top_b_first, exposure.dimensions) == (charged, first, 100)


def test_of_top_b_nothing_is_certified():
    for keep in (0.2, 1.0):
        terms = Terms(framework="s-apes", keep=keep)
        assert terms.why_not_certified == "top-b looks at all of a user's coordinates at once"
        assert terms.exposure(1, np.full(30, 0.5), 100).why_not_certified == terms.why_not_certified


class Own:
    """A mechanism of one's own, which may or may not say why nothing is certified."""

    clip, levels, digest = 0.1, None, "own"

    def __init__(self, why):
        self.why_not_certified = why

    def draw(self, updates, budgets, draws):
        return updates

    def estimate(self, batch):
        return None

    def standard_error(self, budgets):
        return 1.0


def test_a_strangers_mechanism_says_why_it_has_no_certificate():
    assert Terms(mechanism=Own("nobody proved it")).why_not_certified == "apes: nobody proved it"
    for why in (None, "", 3):
        with pytest.raises(ParameterError, match=r"Own.why_not_certified must say why no guarantee is certified"):
            Terms(mechanism=Own(why))


def test_default_step_shrinks_with_the_noise():
    plan, rates = Plan(framework="unis"), []
    for e in (0.05, 0.1, 0.5, 5.0):
        noise = plan.terms.reports.calibrator(None, None).standard_error(np.full(10_000, e))
        rates.append(plan.schedule.steps(noise=noise).learning_rate)
    assert rates == sorted(rates)
    assert rates[-1] == 4.0
    # 2C sqrt(2) / e / sqrt(n) is the noise of the mean Laplace report.
    assert rates[0] == pytest.approx(0.018 / (0.2 * 2**0.5 / 0.05 / 100))


def test_targets_of_a_file_are_not_for_people_of_a_table(tmp_path):
    """Those are ordered by their ids, without the ones who judge: somebody else would get the target."""
    (tmp_path / "targets.csv").write_text("1\n2\n3\n")
    terms, budgets = Terms(target_epsilon=f"file:{tmp_path / 'targets.csv'}"), np.full(3, 0.5)
    assert terms.targets(budgets).tolist() == [1, 2, 3]
    with pytest.raises(ParameterError, match="a file's order is not theirs"):
        terms.targets(budgets, of_table=True)
