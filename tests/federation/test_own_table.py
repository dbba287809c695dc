"""Own tables in a federation: every device encodes its rows by the schema of the terms, as one table would."""

import json
from dataclasses import replace

import numpy as np
import pytest
from own_tables import (
    BOUNDS,
    BUDGET_LEVELS,
    CITIES,
    CLASSES,
    HEADER,
    LIMITS,
    OPTIONS,
    SERVERS,
    WITH_LEVELS,
    rows_of,
    write_table,
)
from parties import PAPERS, apes, joining, task_for_few
from trials import told

from apes import Examples, LinearRegression, LogisticRegression, People
from apes.cli import offers as apes_offers
from apes.errors import DataError
from apes.federation.offer import offer_of
from apes.federation.parties import Servers, invite
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import Layout
from apes.federation.vault.folder import read_vault
from apes.federation.vault.lifetime import Lifetime
from apes.storage.arrays import read_arrays


@pytest.fixture(scope="module")
def invitation(tmp_path_factory):
    """An invitation by a public table of four people."""
    folder = tmp_path_factory.mktemp("t")
    public = write_table(folder / "public.csv", rows_of(range(90, 94)))
    told("federation", "invite", folder / "org", "--data", public, *OPTIONS, *WITH_LEVELS, *SERVERS, *LIMITS)
    return folder / "org" / "invitation"


def whole(rows, **changes):
    """The same rows as one table, read by Python."""
    columns = {name: [row[at] for row in rows] for at, name in enumerate(HEADER)}
    known = {"user": "person", "label": "diagnosis", "budget": "privacy", "budgets": BUDGET_LEVELS, "bounds": BOUNDS}
    known |= {"categories": {"city": CITIES}, "classes": CLASSES, "test_share": 0.0}
    return People.from_table(columns, **(known | changes))


def test_terms_hold_the_schema(invitation):
    terms = FederationTerms.read(invitation / "terms.json")
    assert terms.schema == whole(rows_of(range(3))).schema
    assert terms.model == LogisticRegression(5, 3)
    plain = json.loads((invitation / "terms.json").read_text())
    assert plain["schema"]["columns"]["numbers"][0] == {"name": "age", "low": 0.0, "high": 100.0}
    with np.load(invitation.parent / "analyzer" / "test.npz") as test:
        everybody = whole(rows_of(range(90, 94)))
        assert (test["features"] == everybody.block(0, 4).features).all()
        assert (test["labels"] == everybody.block(0, 4).labels).all()


def test_who_is_asked_to_join_is_told_of_bounds_that_were_made_from_data(invitation, capsys):
    terms = FederationTerms.read(invitation / "terms.json")
    made = replace(terms, schema=replace(terms.schema, bounds_from_data=("age",)))
    assert made.digest != terms.digest
    budgets, words = np.full(6, 0.9), "bounds of age were made from the data, and what they tell about people"
    for agreed, is_said in ((terms, False), (made, True)):
        offer = offer_of(agreed, budgets, Lifetime(None), {})
        assert (offer.caveats != ()) is is_said
        apes_offers.show(offer)
        assert (words in " ".join(capsys.readouterr().err.split())) is is_said


def test_every_choice_of_the_schema_is_in_the_digest(invitation, tmp_path):
    digest = FederationTerms.read(invitation / "terms.json").digest
    plain = json.loads((invitation / "terms.json").read_text())
    file, found = tmp_path / "terms.json", []
    for change in (
        lambda schema: schema["columns"]["numbers"][0].update(high=101.0),
        lambda schema: schema["columns"]["numbers"][0].update(name="years"),
        lambda schema: schema["columns"]["numbers"].reverse(),
        lambda schema: schema["columns"]["categories"][0]["values"].reverse(),
        lambda schema: schema["columns"].update(row_norm=8.0),
        lambda schema: schema["classes"].reverse(),
        lambda schema: schema["budget_levels"].pop(),
        lambda schema: schema.update(label="other"),
    ):
        other = json.loads(json.dumps(plain))
        change(other["schema"])
        file.write_text(json.dumps(other))
        found.append(FederationTerms.read(file).digest)
    assert len({digest, *found}) == 9


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"schema": []}, "schema must hold an object or null"),
        ({"schema": {}}, "not the schema of a table"),
        ({"features": "oriented-gradients"}, "features must be pixels beside a schema"),
        ({"features": "magic"}, "features must be pixels or oriented-gradients"),
        ({"features": None}, "features"),
    ],
)
def test_terms_that_do_not_fit(invitation, tmp_path, change, said):
    plain = json.loads((invitation / "terms.json").read_text())
    (tmp_path / "terms.json").write_text(json.dumps(plain | change))
    with pytest.raises(DataError, match=rf"terms\.json.*{said}"):
        FederationTerms.read(tmp_path / "terms.json")


def test_five_devices_encode_as_one_table(invitation, tmp_path):
    """Each has other people, columns in another order, and more columns than were agreed."""
    rows = rows_of(range(12), seed=1)
    parts = [[row for row in rows if int(row[0][1:]) % 5 == device] for device in range(5)]
    orders = [HEADER, HEADER[::-1], ["notes", *HEADER], sorted(HEADER), [*HEADER[2:], "notes", *HEADER[:2]]]
    for device, (part, order) in enumerate(zip(parts, orders, strict=True)):
        table, folder = write_table(tmp_path / f"{device}.csv", part, order), tmp_path / f"d{device}"
        columns = "--user-column", "person", "--budget-column", "privacy"
        answer = told(*joining(folder, invitation, table, *columns))
        assert answer["table"]["rows"] == len(part)
        alone = whole(part)
        own = alone.block(0, alone.budgets.size)
        stored = read_arrays(folder / "vault" / "data.npz", ("features", "labels", "offsets", "budgets"))
        assert stored["features"].tobytes() == own.features.tobytes()
        assert (stored["labels"] == own.labels).all()
        assert (stored["offsets"] == own.offsets).all()
        assert (stored["budgets"] == own.budgets).all()
        assert answer["table"]["clipped"] == alone.facts.clipped
        _, terms, holdings = read_vault(folder / "vault" / "vault.json")
        assert terms.digest == FederationTerms.read(invitation / "terms.json").digest
        assert (holdings.population.block(0, own.budgets.size).features == own.features).all()
    everybody = whole(rows)
    assert everybody.facts.clipped.keys() == {"age", "height"}


def test_one_persons_table_needs_no_column_of_persons(invitation, tmp_path):
    rows = [row for row in rows_of(range(12), seed=1) if row[0] == "p03"]
    table = write_table(tmp_path / "mine.csv", rows, ["diagnosis", "city", "height", "age"])
    told(*joining(tmp_path / "d", invitation, table, "--budget", 0.5))
    stored = read_arrays(tmp_path / "d" / "vault" / "data.npz", ("features", "offsets", "budgets"))
    assert stored["features"].tobytes() == whole(rows).block(0, 1).features.tobytes()
    assert (stored["offsets"].tolist(), stored["budgets"].tolist()) == ([0, len(rows)], [0.5])


@pytest.mark.parametrize(
    ("change", "columns", "said"),
    [
        ({"age": "old"}, WITH_LEVELS[:2], "row 1, column 'age': must be a number, got 'old'"),
        ({"age": ""}, WITH_LEVELS[:2], "row 1, column 'age': is missing"),
        ({"city": "Oslo"}, WITH_LEVELS[:2], "row 1, column 'city': must be one of categories Bonn, Kyiv, Lima; got 'O"),
        ({"diagnosis": "dead"}, WITH_LEVELS[:2], "row 1, column 'diagnosis': must be one of classes ill, unsure, well"),
        ({"privacy": "none"}, WITH_LEVELS[:2], "row 1, column 'privacy': must be one of budget levels low, high"),
        ({}, ["--budget-column", "wealth"], "has no column 'wealth'"),
        ({}, [], "--budget-column or --budget must be given, one of them"),
        ({}, ["--budget-column", "privacy", "--budget", 1], "--budget-column or --budget must be given, one of them"),
        ({}, ["--budget", 0], "budget must be in (0, inf)"),
        ({}, ["--budget", 1], "budgets must be in [0.3, 0.9]"),
    ],
)
def test_a_table_that_does_not_fit_cannot_join(invitation, tmp_path, change, columns, said):
    first, *rest = rows_of(range(4))
    first = list((dict(zip(HEADER, first, strict=True)) | change).values())
    table = write_table(tmp_path / "mine.csv", [first, *rest])
    code, _, errors = apes(*joining(tmp_path / "d", invitation, table, "--user-column", "person", *columns))
    assert code == 2
    assert said in errors.splitlines()[-1]
    assert not {path.name for path in tmp_path.iterdir()} & {"d", ".d.part"}


def test_columns_that_are_missing(invitation, tmp_path):
    table = write_table(tmp_path / "mine.csv", rows_of(range(4)), ["person", "age", "city", "diagnosis"])
    code, _, errors = apes(*joining(tmp_path / "d", invitation, table, "--user-column", "person", "--budget", 0.5))
    assert code == 2
    assert "mine.csv has no column 'height'; its columns are person, age, city, diagnosis" in errors


def test_real_valued_labels(tmp_path):
    """Linear regression is built in as well."""
    options = ["--user-column", "person", "--label-column", "height", "--task", "regression"]
    options += ["--bounds", "age=0:100,height=100:200", "--ignore", "city,privacy,diagnosis"]
    public = write_table(tmp_path / "public.csv", rows_of(range(90, 94)))
    told("federation", "invite", tmp_path / "org", "--data", public, *options, *SERVERS, *LIMITS)
    terms = FederationTerms.read(tmp_path / "org" / "invitation" / "terms.json")
    assert terms.model == LinearRegression(1)
    table = write_table(tmp_path / "mine.csv", rows_of(range(3)))
    mine = table, "--user-column", "person", "--budget", 0.5
    told(*joining(tmp_path / "d", tmp_path / "org" / "invitation", *mine))
    stored = read_arrays(tmp_path / "d" / "vault" / "data.npz", ("labels",))["labels"]
    assert stored.dtype == np.float32
    assert np.abs(stored).max() <= 1


@pytest.mark.parametrize(
    ("command", "options", "said"),
    [
        ("invite", ["--test-share", 0.5, *SERVERS, *LIMITS], "--test-share must be left out: all of a public table"),
        ("invite", [*SERVERS, *LIMITS, "--features", "pixels"], "features must be left out"),
        (
            "invite",
            [*WITH_LEVELS, *SERVERS, *(word for word in LIMITS if word not in ("--delta", 0.01))],
            "delta must be given",
        ),
        ("init", ["--devices", 3, *WITH_LEVELS, "--rounds", 2], "devices must be"),
        ("init", ["--silos", 2, *WITH_LEVELS, "--test-share", 0], "--test-share must leave somebody to judge"),
        ("init", ["--silos", 2, "--users", 4, *WITH_LEVELS], "users must be left out"),
    ],
)
def test_what_does_nothing_is_refused(tmp_path, command, options, said):
    table = write_table(tmp_path / "people.csv", rows_of(range(20)))
    code, _, errors = apes("federation", command, tmp_path / "f", "--data", table, *OPTIONS, *options)
    assert code == 2
    assert said in errors.splitlines()[-1]
    assert not (tmp_path / "f").exists()


def test_whoever_has_no_table_names_no_columns(tmp_path, small, images_only):
    code, _, errors = apes(*joining(tmp_path / "d", images_only, tmp_path / "x.npz", "--budget", 1))
    assert code == 2
    assert "budget must be left out: the terms are not about tables" in errors


@pytest.fixture
def images_only(tmp_path, small):
    examples = Examples(np.zeros((1, 4), np.float32), np.zeros(1, np.uint8))
    invite(tmp_path / "org", task_for_few(small.terms, examples), Servers(("h", 1), ("h", 2), 1))
    return tmp_path / "org" / "invitation"


TWO_ROUNDS = ["--rounds", 2, *PAPERS]


@pytest.mark.service
def test_a_trial_on_a_table(tmp_path):
    """Whoever does not judge is in a silo; all silos together hold what the table does."""
    table, rows = tmp_path / "people.csv", rows_of(range(20))
    write_table(table, rows)
    told(
        "federation",
        "init",
        tmp_path / "f",
        "--data",
        table,
        *OPTIONS,
        *WITH_LEVELS,
        "--silos",
        5,
        "--rounds",
        2,
        *PAPERS,
    )
    everybody, layout = whole(rows, test_share=0.2), Layout(tmp_path / "f")
    users = everybody.budgets.size
    parts = [read_arrays(layout.vault(number) / "data.npz", ("features", "budgets")) for number in range(1, 6)]
    features, budgets = (np.concatenate([part[name] for part in parts]) for name in ("features", "budgets"))
    assert features.tobytes() == everybody.block(0, users).features.tobytes()
    assert (budgets == everybody.budgets).all()
    assert layout.federation().users == users
    test = read_arrays(layout.analyzer / "test.npz", ("features", "labels"))
    assert (test["features"] == everybody.test.features).all()
    terms = FederationTerms.read(layout.analyzer / "terms.json")
    assert (terms.schema, terms.terms.delta) == (everybody.schema, 1 / (10 * users))
