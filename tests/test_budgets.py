"""A population's budgets: the nine laws against scipy, the plain forms, files, and every bad input."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from apes.budgets import LAWS, make_budgets, parse_shares, spread_alike, users_by_share
from apes.errors import DataError, ParameterError

USERS = 200_000
# Massart 1990: P(sup |F_n - F| > t) <= 2 exp(-2 n t^2), also for laws with atoms; here 1e-6.
DISTANCE_LIMIT = np.sqrt(np.log(2 / 1e-6) / (2 * USERS))
# Table 2 of the paper and the caption of its Figure 6: (low, high) and (share, mean) of normal parts of variance 1.
UNIFORM = {"uniform1": (0.05, 0.5), "uniform2": (0.05, 1.0), "uniform3": (0.05, 3.0)}
NORMAL = {
    "gauss1": (0.05, 0.5, [(1.0, 0.1)]),
    "gauss2": (0.05, 1.0, [(1.0, 0.2)]),
    "gauss3": (0.05, 3.0, [(1.0, 0.5)]),
    "mixgauss1": (0.05, 0.5, [(0.9, 0.1), (0.1, 0.5)]),
    "mixgauss2": (0.05, 1.0, [(0.9, 0.2), (0.1, 1.0)]),
    "mixgauss3": (0.05, 3.0, [(0.9, 0.5), (0.1, 3.0)]),
}


def mixture_cdf(x, parts):
    return sum(share * norm.cdf(x, loc=mean) for share, mean in parts)


def distance(budgets, cdf):
    """Largest gap between the empirical distribution function and ``cdf``, inside the clipping range."""
    inner = np.linspace(budgets.min(), budgets.max(), 2001)[:-1]
    return np.abs(np.searchsorted(np.sort(budgets), inner, side="right") / budgets.size - cdf(inner)).max()


def test_the_nine_laws():
    assert set(LAWS) == set(UNIFORM) | set(NORMAL)


@pytest.mark.parametrize("name", UNIFORM)
def test_uniform_law(name):
    low, high = UNIFORM[name]
    budgets = make_budgets(name, USERS, 3)
    assert low <= budgets.min() < budgets.max() <= high
    assert np.unique(budgets).size == USERS  # no atoms: nothing is clipped
    assert distance(budgets, lambda x: (x - low) / (high - low)) <= DISTANCE_LIMIT
    assert distance(budgets, lambda x: (x - low) / (0.98 * (high - low))) > DISTANCE_LIMIT


@pytest.mark.parametrize("name", NORMAL)
def test_clipped_normal_law(name):
    low, high, parts = NORMAL[name]
    budgets = make_budgets(name, USERS, 3)
    assert (budgets.min(), budgets.max()) == (low, high)
    for observed, mass in (
        ((budgets == low).mean(), mixture_cdf(low, parts)),
        ((budgets == high).mean(), 1 - mixture_cdf(high, parts)),
    ):
        assert abs(observed - mass) <= 5 * np.sqrt(mass * (1 - mass) / USERS)  # false alarm 6e-7
    assert distance(budgets, lambda x: mixture_cdf(x, parts)) <= DISTANCE_LIMIT


@pytest.mark.parametrize("name", [name for name in NORMAL if name.startswith("mix")])
@pytest.mark.parametrize("share", [0.0, 0.05, 0.15])
def test_the_distance_sees_another_mix(name, share):
    _, _, ((_, mean), (_, other)) = NORMAL[name]
    budgets = make_budgets(name, USERS, 3)
    assert distance(budgets, lambda x: mixture_cdf(x, [(1 - share, mean), (share, other)])) > DISTANCE_LIMIT


@pytest.mark.parametrize("name", LAWS)
def test_the_seed_decides(name):
    budgets = make_budgets(name, 100, 5)
    assert (make_budgets(name, 100, 5) == budgets).all()
    assert not np.array_equal(make_budgets(name, 100, 6), budgets)
    assert budgets.dtype == np.float64
    assert budgets.shape == (100,)


def test_constant_and_grid_take_no_randomness():
    for seed in (1, 2):
        assert make_budgets("constant:0.5", 3, seed).tolist() == [0.5] * 3
        assert make_budgets("grid:0.05:1", 20, seed).tolist() == np.linspace(0.05, 1, 20).tolist()
        assert make_budgets("grid:1:0.5", 3, seed).tolist() == [1.0, 0.75, 0.5]
        assert make_budgets("grid:0.5:1", 1, seed).tolist() == [0.5]


@pytest.fixture
def table(tmp_path):
    def write(content, name="people.csv"):
        path = tmp_path / name
        path.write_text(content, encoding="utf-8")
        return path

    return write


@pytest.mark.parametrize(
    ("content", "column"),
    [
        ("0.5\n1.5\n2\n", ""),
        ("0.5\n\n1.5\n2", ""),
        ("epsilon\n0.5\n1.5\n2\n", ""),
        ("epsilon,name\n0.5,Ann\n1.5,Bob\n2,Cyd\n", ""),
        ("epsilon,name\r\n0.5,Ann\r\n1.5,Bob\r\n2,Cyd\r\n", ":epsilon"),
        ("name,my budget\nAnn,0.5\nBob,1.5\n'Cyd',2e0\n", ":my budget"),
        ('name,epsilon\n"Lee, Ann",0.5\n"Bob",1.5\nCyd, 2 \n', ":epsilon"),
    ],
)
@pytest.mark.parametrize("name", ["people.csv", "at 10:30.csv", "a:b:c"])
def test_file_forms(table, content, column, name):
    assert make_budgets(f"file:{table(content, name)}{column}", 3, 0).tolist() == [0.5, 1.5, 2.0]


def test_order_of_the_file_is_kept(table):
    values = np.random.default_rng(0).uniform(0.05, 3, 50)
    path = table("\n".join(map(repr, values.tolist())))
    assert make_budgets(f"file:{path}", 50, 9).tolist() == values.tolist()


def refusal(error, spec, users=3):
    with pytest.raises(error) as caught:
        make_budgets(spec, users, 0)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize("number", ["0", "-1", "nan", "inf", "-inf", "1e999", "-0.0"])
@pytest.mark.parametrize("form", ["constant:{}", "grid:{}:1", "grid:0.5:{}"])
def test_numbers_outside_the_range(form, number):
    spec = form.format(number)
    assert refusal(ParameterError, spec) == f"budgets must be in (0, inf), got {spec!r}"


@pytest.mark.parametrize(
    "spec",
    [
        *("", "uniform4", "Uniform2", "uniform2:1", "normal", "constant", "constant:", "constant:x", "constant:1:2"),
        *("grid", "grid:", "grid:1", "grid:1:", "grid:a:1", "grid:1:2:3", "file", "file:"),
    ],
)
def test_unknown_forms_are_answered_with_the_known_ones(spec):
    message = refusal(ParameterError, spec)
    assert message.startswith("budgets must be one of uniform1, ")
    assert message.endswith(f"; got {spec!r}")


@pytest.mark.parametrize(
    ("users", "why"), [(0, "in [1, 100000000]"), (-1, "in [1, 100000000]"), (2.0, "a whole number")]
)
@pytest.mark.parametrize("spec", ["uniform2", "constant:1", "grid:1:2", "file:none.csv"])
def test_number_of_users(spec, users, why):
    assert refusal(ParameterError, spec, users) == f"users must be {why}, got {users!r}"


@pytest.mark.parametrize("seed", [-1, 2**64, 1.5])
def test_seed(seed):
    with pytest.raises(ParameterError, match=r"^seed must be"):
        make_budgets("uniform2", 3, seed)


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "many", ""])
def test_bad_entries_of_a_file(table, text):
    for content in (f"1\n{text or '  '}\n2\n", f"epsilon,name\n1,a\n{text},b\n2,c\n"):
        path = table(content)
        message = refusal(ParameterError, f"file:{path}")
        assert message.startswith(f"in {path}: ")
        assert text in message


@pytest.mark.parametrize("users", [2, 4])
def test_wrong_count(table, users):
    for content in ("1\n1\n1\n", "epsilon\n1\n1\n1\n"):
        path = table(content)
        assert refusal(ParameterError, f"file:{path}", users) == (
            f"users must equal the 3 budgets in {path}, got {users}"
        )


def test_a_header_alone_holds_no_budgets(table):
    path = table("epsilon\n")
    assert refusal(ParameterError, f"file:{path}", 1) == f"users must equal the 0 budgets in {path}, got 1"


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_empty_file(table, content):
    path = table(content)
    assert refusal(DataError, f"file:{path}") == f"{path} holds no budgets: expected one row per user"


def test_missing_unreadable_and_ragged_files(table, tmp_path):
    message = refusal(DataError, f"file:{tmp_path / 'none.csv'}")
    assert message.startswith(f"cannot read the budgets in {tmp_path / 'none.csv'}: ")
    assert refusal(DataError, f"file:{tmp_path}").startswith(f"cannot read the budgets in {tmp_path}: ")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe1\n2\n3\n")
    assert refusal(DataError, f"file:{binary}").startswith(f"cannot read the budgets in {binary}: ")
    path = table("name,epsilon\na,1\nb\nc,1\n")
    assert refusal(DataError, f"file:{path}:epsilon") == f"{path} row 3 has no entry in column 'epsilon'"
    assert refusal(DataError, f"file:{path}:budget") == (
        f"{path} has no column 'budget'; its columns are name, epsilon"
    )


def test_byte_order_mark_of_spreadsheets(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_text("0.5\n1.5\n2\n", encoding="utf-8-sig")
    assert make_budgets(f"file:{path}", 3, 0).tolist() == [0.5, 1.5, 2.0]


@pytest.mark.parametrize("path", ["x" * 5000, "a\0b"], ids=["too long", "null"])
def test_impossible_paths(path):
    refusal(DataError, f"file:{path}")


@pytest.mark.parametrize(
    ("spec", "users", "counts"),
    [
        ("0.1:60%,0.5:30%,1:10%", 25_000, [15_000, 7_500, 2_500]),
        ("0.1:60%,0.5:30%,1:10%", 7, [4, 2, 1]),
        ("0.1:60%,0.5:30%,1:10%", 1, [1, 0, 0]),
        (" 0.1 : 60 % , 1 : 40 % ", 5, [3, 2]),
        ("1:33.3%,2:33.3%,3:33.4%", 1000, [333, 333, 334]),
        ("1:50%,2:50%", 3, [2, 1]),
        ("2:100%", 4, [4]),
        ("1:1e-9%,2:99.999999999%", 10, [0, 10]),
    ],
)
def test_shares(spec, users, counts):
    budgets, _ = parse_shares(spec)
    for seed in (1, 2):
        assert make_budgets(spec, users, seed).tolist() == np.repeat(budgets, counts).tolist()


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=12), st.integers(1, 10**6))
def test_shares_add_up_to_everybody(parts, users):
    shares = [Fraction(part, sum(parts)) for part in parts]
    counts = users_by_share(shares, users)
    assert counts.sum() == users
    # Nobody is off by a whole person.
    assert all(abs(count - share * users) < 1 for count, share in zip(counts.tolist(), shares, strict=True))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("0.1:60%,1:30%", "shares of budgets must add up to 100 %, got 90 % in"),
        ("0.1:60%,1:60%", "got 120 %"),
        ("0.1:50%,0.10:50%", "budgets must each have one share, got 0.1 more than once"),
        ("0.1:60,1:40%", "budgets must be shares such as"),
        ("0.1:60%%,1:40%", "budgets must be shares such as"),
        ("60%", "budgets must be shares such as"),
        ("0.1:60%,", "budgets must be shares such as"),
        (":60%,1:40%", "budgets must be shares such as"),
        ("x:60%,1:40%", "budgets must be one of"),
        ("0:60%,1:40%", "budgets must be in (0, inf)"),
        ("nan:60%,1:40%", "budgets must be in (0, inf)"),
        ("inf:60%,1:40%", "budgets must be in (0, inf)"),
        ("1:nan%", "shares of budgets must be in (0, 100] %"),
        ("1:inf%", "shares of budgets must be in (0, 100] %"),
        ("1:-10%,2:110%", "shares of budgets must be in (0, 100] %"),
        ("1:0%,2:100%", "shares of budgets must be in (0, 100] %"),
        ("1:many%", "shares of budgets must be in (0, 100] %"),
        ("1:1e-999999999%,2:100%", "shares of budgets must be in (0, 100] %"),
        ("1:0." + "0" * 10**5 + "1%", "shares of budgets must be in (0, 100] %"),
    ],
)
def test_nonsense_shares(spec, said):
    assert said in refusal(ParameterError, spec)


def test_a_file_says_how_many_there_are(table):
    path = table("epsilon\n0.5\n1.5\n2\n")
    assert make_budgets(f"file:{path}", None, 0).tolist() == [0.5, 1.5, 2.0]
    assert refusal(DataError, f"file:{table('epsilon')}", None).endswith("expected one row per user")
    assert refusal(ParameterError, "uniform2", None).startswith("users must be given: only a file says")


def test_more_people_spread_alike():
    own = np.array([3.0, 1.0, 1.0, 2.0])
    assert spread_alike(own, 4).tolist() == [1.0, 1.0, 2.0, 3.0]
    assert spread_alike(own, 8).tolist() == [1.0, 1.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert spread_alike(own, 1).tolist() == [2.0]
    assert spread_alike(np.array([0.5]), 10**5).tolist() == [0.5] * 10**5
