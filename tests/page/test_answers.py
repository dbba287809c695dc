"""The page's figures are the package's; what is none is not called one; what is copied gives the same."""

import json
import math
import shlex
import subprocess
import sys

import pytest

import apes
from apes.accounting.account import by_group
from apes.accounting.guarantee import certify_rounds
from apes.accounting.lower import lower_epsilon
from apes.page.answers import certified, forced, groups, outline, parts, total
from apes.page.estimate import about
from apes.page.setting import WAYS, read_setting
from apes.page.uploads import Uploads, read_upload
from tests.page.test_setting import ASKED

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


@pytest.mark.parametrize("way", WAYS)
def test_groups_are_those_of_the_account(way):
    asked = setting(way=way)
    everybody = certify_rounds(asked.exposure, asked.delta, asked.rounds)
    expected = [(group.budget, group.users, group.epsilon) for group in by_group(everybody, asked.exposure.budgets)]
    shown = [(high, users, certified(asked, high, low)) for high, low, users in groups(asked)]
    assert shown == expected


@pytest.mark.parametrize("way", WAYS)
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


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "changed",
    [{}, {"users": "25000"}, {"rounds": "100"}, {"shares": [["1", "50"], ["3", "50"]]}, {"delta": "1e-3"}],
    ids=str,
)
def test_an_estimate_is_close_to_the_proof(way, changed):
    """For the eye: within 2 %, of one bit 10 %; it is replaced by the proof and never called certified."""
    asked, off = setting(way=way, **changed), 0.1 if way == "one-bit" else 0.02
    assert about(asked.exposure, asked.delta, asked.rounds) == pytest.approx(certified(asked), rel=off)


@pytest.mark.parametrize(
    "changed",
    [
        {"users": "1"},
        {"users": "2", "shares": [["1000", "1"]]},
        {"shares": [["1e-300", "1"]]},
        {"shares": [["1e-12", "50"], ["500", "50"]]},
        {"shares": [["1e300", "1"]]},
        {"dimensions": "1000000000000", "rounds": "1000000"},
        {"delta": "1e-100"},
        {"delta": "0.5"},
        {"clip": "1e-30"},
        {"cap": "1e-9"},
    ],
    ids=str,
)
@pytest.mark.parametrize("way", WAYS)
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
    assert f"{200 * 1.0:.4g} for a whole round" in said["If the shuffler sides with the analyzer"]


COPIED = [
    *({"way": way} for way in WAYS),
    {"way": "one-bit", "clip": "0.05", "norm": "2"},
    {"way": "apes", "cap": "0.3"},
    {"way": "s-apes-first", "keep": "12.5", "shares": [["0.1", "1"], ["0.3", "1"], ["0.7", "1"]]},
]


@pytest.mark.parametrize("changed", COPIED, ids=str)
def test_what_is_copied_gives_the_figure(changed):
    asked = setting(**changed)
    copied = outline(asked)["copies"]
    words = shlex.split(copied["command"])
    assert words[0] == "apes"
    told = subprocess.run([sys.executable, "-m", *words], capture_output=True, text=True, check=True).stdout
    assert json.loads(told)["certified"]["total"]["epsilon"] == certified(asked)
    printed = subprocess.run(
        [sys.executable, "-c", copied["python"]], capture_output=True, text=True, check=True
    ).stdout
    assert float(printed) == certified(asked)


def test_what_is_copied_of_a_file(tmp_path):
    content = b"who,wish\n" + b"".join(b"p%d,%g\n" % (number, 0.1 + number % 7 / 10) for number in range(1500))
    (tmp_path / "my wishes.csv").write_bytes(content)
    uploads = Uploads()
    kept = uploads.keep(read_upload(content, "my wishes.csv", "wish"))
    asked = read_setting(SMALL | {"upload": kept.digest}, uploads)
    copied = outline(asked)["copies"]
    ran = [[sys.executable, "-m", *shlex.split(copied["command"])], [sys.executable, "-c", copied["python"]]]
    told, printed = (
        subprocess.run(words, capture_output=True, text=True, check=True, cwd=tmp_path).stdout for words in ran
    )
    assert json.loads(told)["certified"]["total"]["epsilon"] == float(printed) == certified(asked)


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
