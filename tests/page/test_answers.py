"""The page's figures are the package's; what is none is not called one; what is copied gives the same."""

import json
import math
import shlex

import pytest
from levels import sampled
from typer.testing import CliRunner

import apes
from apes.accounting.account import by_group
from apes.accounting.guarantee import certify_rounds
from apes.accounting.lower import lower_epsilon
from apes.cli.main import app
from apes.errors import ParameterError
from apes.page.answers import certified, forced, group, groups, outline, parts, total
from apes.page.estimate import about
from apes.page.setting import WAYS, read_setting
from apes.page.uploads import Uploads, read_upload
from apes.page.words import sentence, trusted
from tests.page.test_setting import ASKED

# One bit takes longest: what is forced is counted exactly there.
BY_COST = [*WAYS[:2], pytest.param("one-bit", marks=pytest.mark.service)]
SMALL = ASKED | {"users": "3000", "rounds": "4", "dimensions": "200", "norm": "1", "clip": "0.1"}


def setting(**changed):
    return read_setting(SMALL | changed, Uploads())


def test_the_figure_is_that_of_certify():
    budgets = apes.make_budgets("0.1:60%,0.5:30%,1:10%", 3000, seed=1)
    proved = apes.certify(budgets, delta=1e-6, dimensions=200, rounds=4)
    assert total(setting())["epsilon"] == proved.epsilon
    assert forced(setting()) == proved.lower
    first = apes.certify(budgets, delta=1e-6, dimensions=200, rounds=4, top_b_first=10)
    assert total(setting(way="s-apes-first"))["epsilon"] == first.epsilon


@pytest.mark.service
@pytest.mark.parametrize("way", BY_COST)
def test_groups_are_those_of_the_account(way):
    asked = setting(way=way)
    everybody = certify_rounds(asked.exposure, asked.delta, asked.rounds)
    expected = [(each.budget, each.users, each.epsilon) for each in by_group(everybody, asked.exposure.budgets)]
    shown = [(high, users, certified(asked, high, low)) for high, low, users in groups(asked)]
    assert shown == expected


def test_groups_of_several_budgets_are_those_of_the_account():
    """Among few people it matters whom a group leaves out of those who hide it."""
    shares = [[str(number / 10), "5"] for number in range(1, 21)]
    asked = setting(users="60", shares=shares, rounds="1", dimensions="1", delta="1e-3", way="one-bit")
    everybody = certify_rounds(asked.exposure, asked.delta, asked.rounds)
    expected = [(each.budget, each.epsilon) for each in by_group(everybody, asked.exposure.budgets)]
    shown = [group(asked, number, *ends) for number, ends in enumerate(groups(asked))]
    assert any(each["smallest"] < each["budget"] for each in shown)
    assert [(each["budget"], each["epsilon"]) for each in shown] == expected


@pytest.mark.parametrize("way", BY_COST)
def test_no_group_is_certified_below_what_is_forced(way):
    asked = setting(way=way)
    for high, low, _ in groups(asked):
        assert 0 < forced(asked, high) <= certified(asked, high, low)
    # The victim with the largest budget is the one whom it was about before.
    assert forced(asked, groups(asked)[-1][0]) == forced(asked)


def test_a_victim_is_somebody():
    budgets = apes.make_budgets("0.1:60%,1:40%", 500, seed=1)
    assert lower_epsilon(budgets, 1e-6, 256, 100, victim=0.1) < lower_epsilon(budgets, 1e-6, 256, 100)
    with pytest.raises(apes.ParameterError, match="victim must be the budget of somebody"):
        lower_epsilon(budgets, 1e-6, 256, 100, victim=0.3)


CHANGES = [{}, {"users": "25000"}, {"rounds": "100"}, {"shares": [["1", "50"], ["3", "50"]]}, {"delta": "1e-3"}]


@pytest.mark.service
@pytest.mark.parametrize(
    ("changed", "way"), sampled([(changed, way) for changed in CHANGES for way in WAYS], 7), ids=str
)
def test_an_estimate_is_close_to_the_proof(way, changed):
    """For the eye: within 2 %, of one bit 10 %; it is replaced by the proof and never called certified."""
    asked, off = setting(way=way, **changed), 0.1 if way == "one-bit" else 0.02
    assert about(asked.exposure, asked.delta, asked.rounds) == pytest.approx(certified(asked), rel=off)


EXTREMES = [
    {"users": "1"},
    {"users": "2", "shares": [["1000", "1"]]},
    {"shares": [["1e-300", "1"]]},
    {"shares": [["1e-12", "50"], ["500", "50"]]},
    {"shares": [["1e300", "1"]]},
    {"delta": "1e-100"},
    {"delta": "0.5"},
    {"clip": "1e-30"},
    {"cap": "1e-9"},
]


@pytest.mark.service
@pytest.mark.parametrize(
    ("way", "changed"),
    [
        *(("apes", changed) for changed in EXTREMES),
        *(
            pytest.param(way, {"dimensions": "1" + "0" * 12, "rounds": "1000000"}, marks=pytest.mark.service)
            for way in WAYS
        ),
        *(("s-apes-first", changed) for changed in EXTREMES[:2]),
        *(pytest.param("s-apes-first", changed, marks=pytest.mark.exhaustive) for changed in EXTREMES[2:]),
        *(pytest.param("one-bit", changed, marks=pytest.mark.service) for changed in EXTREMES[:2]),
        *(pytest.param("one-bit", changed, marks=pytest.mark.exhaustive) for changed in EXTREMES[2:]),
    ],
    ids=str,
)
def test_extremes_have_an_answer(way, changed):
    """The first parts, which are shown while somebody drags: figures, or words, and all of it JSON."""
    asked, answered = setting(way=way, **changed), []
    for name, make in parts(asked):
        json.dumps(make(), allow_nan=False)
        answered.append(name)
        if name == "lower":
            break
    assert answered == ["about", "total", "lower"]


def test_an_epsilon_that_protects_nobody_is_called_so():
    said = total(setting(rounds="1000", dimensions="100000"))
    assert said["epsilon"] > 10
    assert "protects nobody" in said["meaning"]


def test_nothing_certified_is_no_figure():
    said = total(setting(users="2", shares=[["1e300", "1"]], dimensions="1e12"))
    assert said["epsilon"] is None
    assert "nothing is guaranteed" in said["meaning"]


def test_who_is_trusted_is_said():
    said = {entry["about"]: entry["is"] for entry in outline(setting())["trusted"]}
    assert "all 4 rounds" in said["What is protected"]
    assert "shuffler" in said["Who is trusted"]
    # 200 coordinates at 1.0, and what rounding in floating point may hide: from above.
    assert "200.1 for a whole round" in said["If the shuffler sides with the analyzer"]


COPIED = [
    {"way": "apes"},
    {"way": "s-apes-first"},
    pytest.param({"way": "one-bit"}, marks=pytest.mark.service),
    pytest.param({"way": "one-bit", "clip": "0.05", "norm": "2"}, marks=pytest.mark.service),
    {"way": "apes", "cap": "0.3"},
    {"way": "s-apes-first", "keep": "12.5", "shares": [["0.1", "1"], ["0.3", "1"], ["0.7", "1"]]},
]


def epsilon_of_command(command, monkeypatch):
    """What a copied line certifies for all rounds; of all that `apes account` works out, only that."""
    words, asked = shlex.split(command), []
    assert words[:2] == ["apes", "account"]

    def no_account(question, show):
        asked.append(question)
        raise ParameterError("this is enough")

    with monkeypatch.context() as patch:
        patch.setattr("apes.accounting.account.account", no_account)
        CliRunner().invoke(app, words[1:])
    (question,) = asked
    return certify_rounds(question.exposure, question.delta, question.rounds).epsilon


def printed_by(python, capsys):
    exec(python, {})  # the copied lines are what is tested
    return float(capsys.readouterr().out)


@pytest.mark.parametrize("changed", COPIED, ids=str)
def test_what_is_copied_gives_the_figure(changed, monkeypatch, capsys):
    asked = setting(**changed)
    copied = outline(asked)["copies"]
    assert epsilon_of_command(copied["command"], monkeypatch) == certified(asked)
    assert printed_by(copied["python"], capsys) == certified(asked)


def test_what_is_copied_has_every_digit_of_delta(monkeypatch, capsys):
    asked = setting(delta="1.23456789e-05")
    copied = outline(asked)["copies"]
    assert "--delta 1.23456789e-05" in copied["command"]
    assert epsilon_of_command(copied["command"], monkeypatch) == certified(asked)
    assert printed_by(copied["python"], capsys) == certified(asked)


def test_what_is_copied_of_a_file(tmp_path, monkeypatch, capsys):
    content = b"who,wish\n" + b"".join(b"p%d,%g\n" % (number, 0.1 + number % 7 / 10) for number in range(1500))
    (tmp_path / "my wishes.csv").write_bytes(content)
    uploads = Uploads()
    kept = uploads.keep(read_upload(content, "my wishes.csv", "wish"))
    asked = read_setting(SMALL | {"upload": kept.digest}, uploads)
    copied = outline(asked)["copies"]
    monkeypatch.chdir(tmp_path)
    assert epsilon_of_command(copied["command"], monkeypatch) == certified(asked)
    assert printed_by(copied["python"], capsys) == certified(asked)


def test_a_cap_lowers_the_figure():
    assert certified(setting(cap="0.3")) < certified(setting()) == certified(setting(cap="1"))


def test_figures_of_two_files_of_one_name_are_not_mixed_up():
    """Figures are remembered: by what is in a file, not by what it is called."""
    uploads = Uploads()
    contents = (b"0.1\n" * 300, b"0.9\n" * 300)
    kept = [uploads.keep(read_upload(content, "wishes.csv", None)) for content in contents]
    low, high = (certified(read_setting(SMALL | {"upload": each.digest}, uploads)) for each in kept)
    assert low < high


@pytest.mark.parametrize(("epsilon", "factor"), [(0.5, "1.7"), (1.0, "2.8"), (3.0, "21"), (15.2, "e^15.2")])
def test_the_odds_are_rounded_against_us(epsilon, factor):
    assert f"changes its odds by a factor of {factor} at most" in sentence(epsilon, 1e-6)


def test_what_is_left_without_the_shuffler_is_rounded_against_us():
    said = {entry["about"]: entry["is"] for entry in trusted(setting(), {"dimension": 0.46911, "user": 3682.1})}
    about = said["If the shuffler sides with the analyzer"]
    assert "epsilon 0.4692 per coordinate" in about
    assert "3,683 for a whole round" in about


def test_what_a_norm_guarantees_without_the_shuffler_is_rounded_against_us():
    local = {"dimension": 1.0, "user": 200.0, "user_at_delta": 12.34123}
    said = {entry["about"]: entry["is"] for entry in trusted(setting(way="one-bit"), local)}
    assert "12.35 for a whole round at delta 1e-06" in said["If the shuffler sides with the analyzer"]


@pytest.mark.service
def test_parts_come_in_order_and_cover_everything():
    names = [name for name, _ in parts(setting())]
    assert names[:3] == ["about", "total", "lower"]
    assert names.count("group") == 3
    assert set(names) == {"about", "total", "lower", "group", "curve", "published"}
    places = [make() for name, make in parts(setting(rounds="1", dimensions="1")) if name == "curve"]
    assert {entry["along"] for entry in places} == {"rounds", "users"}
    by_users = [entry["epsilon"] for entry in places if entry["along"] == "users"]
    assert by_users == sorted(by_users, reverse=True)
    assert all(math.isfinite(epsilon) for epsilon in by_users)
