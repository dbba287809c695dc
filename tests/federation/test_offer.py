"""Joining with open eyes: what is shown before anything is made, and what it says of the price."""

import json
import os
import pty
import shutil
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from parties import LIMITS, agreed, apes, task_for_few

from apes import Examples, LogisticRegression, Terms
from apes.accounting.words import judged, meaning
from apes.cli import offers as apes_offers
from apes.data.table.schema import Schema
from apes.errors import DataError, ParameterError
from apes.federation.fingerprints import check_fingerprint, fingerprint
from apes.federation.invitation import Invitation
from apes.federation.offer import offer_of
from apes.federation.parties import Servers, invite
from apes.federation.terms import FederationTerms
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.model import check_fit
from apes.shuffler.service.policy import Limits
from apes.storage.settings import read_settings, write_settings

PRINTS = {"invitation": fingerprint(b"an invitation")}


def offered(terms, budgets, lifetime=None):
    return offer_of(terms, np.array(budgets), Lifetime(lifetime), PRINTS)


def test_the_boldest_price_is_the_limit_that_was_agreed(small):
    """Who has the largest budget pays what the terms cost anybody at most."""
    terms = agreed(rounds=3)
    (price,) = offered(terms, [1.0]).prices
    by_limit = terms.limit.epsilon(1e-3)
    assert price.central == min(by_limit, 3 * 15 * (1 + 2.0**-50))
    assert price.meaning == meaning(price.central, 1e-3)
    assert (price.report, price.colluding) == pytest.approx((15, 45))
    assert price.colluding_delta == 0


def test_prices_grow_with_the_own_budget():
    prices = offered(agreed(rounds=3), [0.05, 0.05, 0.3, 1.0]).prices
    assert [(price.budget, price.users) for price in prices] == [(0.05, 2), (0.3, 1), (1.0, 1)]
    assert prices[0].central < prices[1].central <= prices[2].central
    assert all(price.central <= price.colluding for price in prices)


def test_many_budgets_are_rounded_up_to_a_few():
    budgets = np.linspace(0.05, 1, 200)
    prices = offered(agreed(), budgets).prices
    assert len(prices) <= 5
    assert sum(price.users for price in prices) == 200
    assert prices[-1].budget == 1.0


def test_a_hundred_thousand_rounds_show_what_they_cost():
    """Finding 6 of the attack: they were accepted without a word."""
    few, many = (offered(agreed(rounds=rounds), [1.0]).prices[0] for rounds in (1, 100_000))
    assert many.colluding == pytest.approx(1e5 * few.colluding)
    assert many.central > 1000 * few.central
    assert "protects nobody" in many.meaning


def test_numbers_that_would_fill_the_readers_memory_are_refused():
    """What is offered is certified before anybody is asked: a cohort of 10^9 took 8 GB of whoever looked at it."""
    for cohort in (10**7 + 1, 10**9, 10**30):
        with pytest.raises(ParameterError, match=r"smallest_cohort must be in \[1, 10000000\]"):
            replace(LIMITS, smallest_cohort=cohort)
    with pytest.raises(ParameterError, match=r"dimensions must be in \[1, 2147483648\]"):
        agreed(features=10**9)


@pytest.mark.service
def test_the_largest_cohort_that_is_taken_can_be_certified():
    assert offered(agreed(limits=replace(LIMITS, smallest_cohort=10**7)), [1.0]).smallest_cohort == 10**7


@pytest.mark.parametrize("high", [10**400, "wide", None, [1], float("nan")])
def test_a_schema_whose_bounds_are_no_numbers_is_refused(high):
    columns = {"numbers": [{"name": "age", "low": 0, "high": high}], "categories": [], "row_norm": 2.0}
    rest = {"label": "ill", "task": "classification", "classes": ["no", "yes"], "target": None, "budget_levels": []}
    with pytest.raises((DataError, ParameterError)):
        Schema.from_dict({"version": 1, "columns": columns, **rest})
    columns["numbers"][0]["high"] = 120
    assert Schema.from_dict({"version": 1, "columns": columns, **rest}).columns.numbers[0].high == 120


def test_a_model_that_does_not_fit_into_memory_fits_nobodys_rows(small):
    """One line, where a model of so many coordinates cannot even be begun."""
    large = replace(small.terms.model, features=10**14)
    with pytest.raises(DataError, match="data does not fit the model, from user 1 on"):
        check_fit(large, None, "data")


def test_a_norm_lowers_what_is_left_without_a_shuffler():
    """With a bound of the norm, a whole report tells less than its bits one by one."""
    terms = replace(Terms(rounds=3, delta=1e-3), levels=2, clip=0.1, norm=0.1)
    plain = agreed(features=400)
    price = offered(FederationTerms(terms, plain.model, LIMITS), [1.0]).prices[0]
    assert price.colluding < 3 * price.report
    assert price.colluding_delta == 1e-3


def test_a_target_is_the_most_that_is_shown():
    (price,) = offered(agreed(rounds=1000, target_epsilon=0.5), [1.0]).prices
    assert price.central == 0.5


@pytest.mark.parametrize(
    ("epsilon", "words"),
    [
        (0.1, "strong protection"),
        (1.0, "strong protection"),
        (3.0, "good protection"),
        (10.0, "weak protection"),
        (10.001, "protects nobody"),
        (402, "protects nobody"),
        (float("inf"), "nothing is guaranteed"),
        (float("nan"), "nothing is guaranteed"),
        (None, "nothing is guaranteed"),
    ],
)
def test_an_epsilon_is_called_what_it_is(epsilon, words):
    assert words in meaning(epsilon, 1e-3)
    assert judged(epsilon, 1e-3).endswith(f" at delta 0.001: {meaning(epsilon, 1e-3)}")


@pytest.mark.parametrize("delta", [1.1e-3, 0.4, 0.5, float("nan")])
def test_an_epsilon_at_a_large_delta_is_no_protection(delta):
    """Whatever epsilon is; 0.1 at a delta of 0.4 was once called strong."""
    assert "this protects nobody" in meaning(0.1, delta)


def test_fingerprints_are_compared_as_people_write_them():
    own = fingerprint(b"a")
    for told in (own, own.upper(), own.replace(" ", ""), own.replace(" ", ":"), f" {own} "):
        check_fingerprint(told, own)
    with pytest.raises(DataError, match="not the one that you were told: do not join"):
        check_fingerprint(fingerprint(b"b"), own)
    # Every digit counts.
    for place in (0, 20, len(own) - 1):
        other = own[:place] + ("0" if own[place] != "0" else "1") + own[place + 1 :]
        with pytest.raises(DataError, match="not the one that you were told: do not join"):
            check_fingerprint(other, own)
    for told in ("", own[:-1], own[:4], "g" * 32):
        with pytest.raises(ParameterError, match="fingerprint must be 32 hexadecimal digits"):
            check_fingerprint(told, own)


@pytest.fixture(scope="module")
def invited(tmp_path_factory):
    """An invitation, its fingerprint as the organiser saw it, and somebody's data."""
    folder = tmp_path_factory.mktemp("o")
    invitation = inviting(folder / "org", Terms(rounds=4, levels=16, delta=1 / 30), Limits(0.5, 2.0, 3))
    rng = np.random.default_rng(1)
    arrays = {"features": rng.random((3, 784), dtype=np.float32), "labels": np.arange(3, dtype=np.uint8)}
    np.savez(folder / "data.npz", offsets=np.array([0, 3]), budgets=[0.5], **arrays)
    return folder, invitation.fingerprint


def inviting(folder, terms, limits):
    """Invite to learn ten classes of images under these terms."""
    agreed_on = FederationTerms(terms, LogisticRegression(784, 10), limits)
    test = Examples(np.zeros((1, 784), np.float32), np.zeros(1, np.uint8))
    return invite(folder, task_for_few(agreed_on, test), Servers(("h", 1), ("h", 2), 2))


def joining(invited, device, *more):
    folder, _ = invited
    given = ("--one-account", "--invitation", folder / "org" / "invitation", "--data", folder / "data.npz")
    return ("federation", "join", device, *given, *more)


def test_everything_is_shown_before_anything_is_made(invited, tmp_path):
    """Without a terminal and without --yes: all of it on the screen, one line, and nothing on the disk."""
    code, output, errors = apes(*joining(invited, tmp_path / "d"))
    assert code == 2
    assert output == ""
    assert "add --yes" in errors.splitlines()[-1]
    assert not list(tmp_path.iterdir())
    for word in ("logistic-regression", "784", "at least 3 people", "certified", "colluding", "shuffler", invited[1]):
        assert word in errors, errors
    assert "this protects nobody; aim for 1 to 3" in " ".join(errors.split())


def test_json_carries_the_same_facts(invited, tmp_path):
    code, output, _ = apes(*joining(invited, tmp_path / "d", "--yes", "--json", "--fingerprint", invited[1]))
    assert code == 0
    offer = json.loads(output)["offer"]
    assert (offer["model"], offer["features"], offer["rounds"], offer["smallest_cohort"]) == (
        "logistic-regression",
        784,
        4,
        3,
    )
    assert offer["fingerprints"]["invitation"] == invited[1]
    keys = {f"{whose} key" for whose in ("authority's", "shuffler's", "receipts'", "analyzer's", "organiser's")}
    assert set(offer["fingerprints"]) == {"invitation", *keys}
    (price,) = offer["prices"]
    assert (price["budget"], price["users"]) == (0.5, 1)
    assert price["report"] == pytest.approx(0.5 * 7850)
    assert price["central"] > 10
    assert price["meaning"] == "this protects nobody; aim for 1 to 3"


def test_what_was_shown_is_what_is_joined(invited, tmp_path, monkeypatch):
    """Another invitation in its place, well signed by somebody else, while its owner is asked: it was joined once."""
    folder, told = invited
    swapped, other = tmp_path / "invitation", tmp_path / "other"
    shutil.copytree(folder / "org" / "invitation", swapped)
    inviting(other, Terms(rounds=100_000, levels=16, delta=0.4), Limits(0.5, 50.0, 1))
    ask = apes_offers.ask

    def slowly(*given):
        offer = ask(*given)
        for file in (other / "invitation").iterdir():
            (swapped / file.name).write_bytes(file.read_bytes())
        return offer

    monkeypatch.setattr(apes_offers, "ask", slowly)
    given = ("--one-account", "--invitation", swapped, "--data", folder / "data.npz", "--yes", "--fingerprint", told)
    code, _, errors = apes("federation", "join", tmp_path / "d", *given)
    assert code == 0, errors
    honest = folder / "org" / "invitation"
    joined = json.loads((tmp_path / "d" / "vault" / "vault.json").read_text())
    signed = json.loads((honest / "invitation.json").read_text())
    assert (joined["shuffler_key"], joined["analyzer_key"]) == (signed["shuffler_key"], signed["analyzer_key"])
    for mine, theirs in (("vault/terms.json", "terms.json"), ("courier/authority.pem", "authority.pem")):
        assert (tmp_path / "d" / mine).read_bytes() == (honest / theirs).read_bytes()


def test_every_column_is_shown(capsys):
    """The one that matters might be the last."""
    names = tuple(f"x{number}" for number in range(40))
    offer = replace(offer_of(agreed(), np.array([0.5]), Lifetime(), {}), columns=names, label="ill")
    apes_offers.show(offer)
    said = " ".join(capsys.readouterr().err.split())
    assert all(name in said for name in names)


def test_a_swapped_shuffler_key_is_refused(invited, tmp_path):
    """Finding 6 of the attack: it was accepted without a word. Signed by who swapped it, the fingerprint is another."""
    folder, told = invited
    swapped = tmp_path / "invitation"
    shutil.copytree(folder / "org" / "invitation", swapped)
    key = X25519PrivateKey.generate().public_key().public_bytes_raw().hex()
    forged = replace(read_settings(swapped / "invitation.json", Invitation), shuffler_key=key)
    write_settings(swapped / "invitation.json", forged.signed(Ed25519PrivateKey.generate()))
    given = ("--one-account", "--invitation", swapped, "--data", folder / "data.npz", "--yes", "--fingerprint", told)
    code, _, errors = apes("federation", "join", tmp_path / "d", *given)
    assert code == 2
    assert errors.count("\n") == 1
    assert "not the one that you were told: do not join" in errors
    assert not (tmp_path / "d").exists()


@pytest.mark.parametrize(
    ("said", "code"),
    [
        pytest.param(b"\n", 1, marks=pytest.mark.process),
        pytest.param(b"n\n", 1, marks=pytest.mark.exhaustive),
        pytest.param(b"y\n", 0, marks=pytest.mark.process),
    ],
)
def test_somebody_at_a_terminal_is_asked(invited, tmp_path, said, code):
    """A real terminal: only a yes makes anything."""
    ours, theirs = pty.openpty()
    os.write(ours, said)
    command = [sys.executable, "-m", "apes", *map(str, joining(invited, tmp_path / "d"))]
    done = subprocess.run(command, stdin=theirs, capture_output=True, text=True, timeout=300)
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code, done.stderr
    assert "Join?" in done.stderr
    assert (tmp_path / "d").exists() == (code == 0)
    assert ("nothing was made" in done.stderr) == (code == 1)


@pytest.mark.service
def test_train_and_account_call_an_epsilon_what_it_is(tmp_path):
    """Finding 7 of the attack: a run ended at epsilon 402 without a word about it."""
    few = ("--users", 20, "--rounds", 1, "--budgets", "constant:1")
    code, output, errors = apes("train", "--preset", "paper", "--out", tmp_path / "run", *few)
    assert code == 0, errors
    words = "this protects nobody; aim for 1 to 3"
    assert words in " ".join(output.split())
    assert json.loads((tmp_path / "run" / "private/summary.json").read_text())["certified"]["meaning"] == words
    code, output, _ = apes("account", "--run", tmp_path / "run")
    assert code == 0
    assert words in output
    papers = ("--preset", "paper", "--delta", 3.6e-5)
    for dimensions, said in ((7850, words), (1, "protection")):
        code, output, _ = apes("account", *papers, *few, "--dimensions", dimensions, "--json")
        assert code == 0
        assert said in (meaning := json.loads(output)["meaning"])
        code, output, _ = apes("account", *papers, *few, "--dimensions", dimensions)
        assert code == 0
        assert meaning in " ".join(output.split())
