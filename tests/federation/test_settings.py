"""Settings files: what is wrong with one is said with the names of file and field."""

import itertools
import json
from dataclasses import asdict, fields, replace

import numpy as np
import pytest
from parties import RUN, VaultProcess, apes, population

from apes import LogisticRegression
from apes.errors import DataError
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import Federation
from apes.federation.vault.folder import VaultSettings, open_vault
from apes.shuffler.service.policy import Limits, Policy
from apes.shuffler.service.server import ShufflerSettings
from apes.storage.arrays import read_arrays, write_arrays
from apes.storage.settings import read_settings, read_token, write_settings

KEY = "09" + 31 * "00"


@pytest.fixture(params=[Policy, ShufflerSettings, VaultSettings, Federation], ids=lambda kind: kind.__name__)
def good(request, small):
    return {
        Policy: small.policy,
        ShufflerSettings: ShufflerSettings("127.0.0.1", 8443),
        VaultSettings: VaultSettings((RUN,), KEY, KEY, ledger_id=RUN),
        Federation: Federation(RUN, 2, 8, 3, 1, 2),
    }[request.param]


@pytest.fixture
def file(tmp_path):
    return tmp_path / "settings.json"


def needed(good):
    """A field without a default."""
    return fields(good)[0].name


def test_settings_come_back(good, file):
    write_settings(file, good)
    assert read_settings(file, type(good)) == good


def test_missing(good, file):
    with pytest.raises(DataError, match=r"there is no .*settings\.json"):
        read_settings(file, type(good))


def test_a_folder(good, file):
    file.mkdir()
    with pytest.raises(DataError, match=r"settings\.json cannot be read"):
        read_settings(file, type(good))


@pytest.mark.parametrize("text", [b"", b"{", b"{'a': 1}", b"\xff\xfe\xff", b"nothing", 100_000 * b"["])
def test_not_json(good, file, text):
    file.write_bytes(text)
    with pytest.raises(DataError, match=r"settings\.json cannot be read"):
        read_settings(file, type(good))


@pytest.mark.parametrize("value", [[], [1], 3, "text", None, True])
def test_not_an_object(good, file, value):
    file.write_text(json.dumps(value))
    with pytest.raises(DataError, match=rf"settings\.json must hold an object.*{type(good).__name__}"):
        read_settings(file, type(good))


def test_unknown_field(good, file):
    file.write_text(json.dumps(asdict(good) | {"colour": "blue"}))
    with pytest.raises(DataError, match=r"settings\.json: unknown field 'colour'; known are "):
        read_settings(file, type(good))


def test_missing_field(good, file):
    file.write_text(json.dumps({name: value for name, value in asdict(good).items() if name != needed(good)}))
    with pytest.raises(DataError, match=rf"settings\.json: field '{needed(good)}' is missing"):
        read_settings(file, type(good))


def test_texts_are_texts(good, file):
    """Every field that holds a text takes nothing else."""
    texts = [entry.name for entry in fields(good) if entry.type is str]
    assert texts
    for name in texts:
        for value in (5, None, ["a"], {}):
            file.write_text(json.dumps(asdict(good) | {name: value}))
            with pytest.raises(DataError, match=rf"settings\.json: .*{name}"):
                read_settings(file, type(good))


@pytest.mark.parametrize(
    ("kind", "field", "values"),
    [
        (ShufflerSettings, "port", [0, -1, 65536, 1.5, "8443", True, None]),
        (ShufflerSettings, "workers", [0, -1, 1.5, "2", True, None]),
        (ShufflerSettings, "connections", [0, -1, 1.5, "2", True, None]),
        (ShufflerSettings, "connections_per_address", [0, -1, 1.5, "2", True, None]),
        (ShufflerSettings, "header_seconds", [0, -1, float("nan"), float("inf"), "2", True]),
        (VaultSettings, "runs", [[], "00", RUN, [RUN, RUN], ["00"], [5], [RUN.upper()], None]),
        (VaultSettings, "shuffler_key", ["", "00", "g" * 64, KEY + "00", KEY.replace("9", "A")]),
        (VaultSettings, "analyzer_key", ["", "00", "g" * 64, KEY + "00", KEY.replace("9", "A")]),
        (VaultSettings, "one_account", ["yes", None, 2]),
        (VaultSettings, "courier", [5, [], True]),
        (VaultSettings, "ledger_id", ["", "00", "g" * 32, RUN + "00"]),
        (VaultSettings, "answer_seconds", [0, -1, 3601, float("nan"), "1", True]),
        (VaultSettings, "lifetime_epsilon", [0, -1, float("nan"), float("inf"), "1", True]),
        (VaultSettings, "lifetime_delta", [0, -1, 0.6, 1e-101, float("nan"), "1", None]),
        (Policy, "levels", [1, 300, "many", None]),
        (Policy, "senders", [[], ["00"], "00", None]),
        (Policy, "largest_budget", [float("nan"), float("inf"), 0, -1, "1"]),
    ],
)
def test_bad_values(small, file, kind, field, values):
    start = {
        Policy: small.policy,
        ShufflerSettings: ShufflerSettings("127.0.0.1", 8443),
        VaultSettings: VaultSettings((RUN,), KEY, KEY, ledger_id=RUN),
    }[kind]
    for value in values:
        file.write_text(json.dumps(asdict(start) | {field: value}))
        with pytest.raises(DataError, match=rf"settings\.json: .*{field}"):
            read_settings(file, kind)


def test_terms_name_the_field_that_is_wrong(small, file):
    small.terms.write(file)
    assert FederationTerms.read(file) == small.terms
    plain = json.loads(file.read_text())
    for part, change, message in [
        ("model", {"classes": 1}, "classes"),
        ("model", {"features": 0}, "features"),
        ("model", {"local": {"epochs": 0}}, "local_epochs"),
        ("model", {"local": []}, "local must hold an object"),
        ("terms", {"clip": -1}, "clip"),
        ("terms", {"levels": "continuous"}, "levels"),
        ("terms", {"delta": None}, "delta must be given"),
        ("terms", {"framework": "non-private", "levels": None, "delta": None}, "framework"),
        ("terms", {"colour": 1}, "terms: unknown field 'colour'"),
        ("terms", {"mechanism": None}, "terms: unknown field 'mechanism'"),
        ("limits", {"smallest_cohort": 0}, "limits: smallest_cohort"),
        ("limits", {"largest_budget": 0.01}, "limits: largest_budget"),
        ("limits", {"colour": 1}, "limits: unknown field 'colour'"),
    ]:
        file.write_text(json.dumps(plain | {part: plain[part] | change}))
        with pytest.raises(DataError, match=rf"settings\.json.*{message}"):
            FederationTerms.read(file)
    for part, other in itertools.product(("terms", "model", "limits"), ([], 5, None)):
        file.write_text(json.dumps(plain | {part: other}))
        with pytest.raises(DataError, match=rf"settings\.json.*{part} must hold an object"):
            FederationTerms.read(file)


def test_a_changed_choice_changes_the_digest(small, file):
    small.terms.write(file)
    plain = json.loads(file.read_text())
    for part, change in (
        *(("terms", {name: value}) for name, value in [("clip", 0.2), ("rounds", 4), ("levels", 17), ("delta", 1e-4)]),
        ("terms", {"target_epsilon": 1.0}),
        ("terms", {"framework": "s-apes-first"}),
        *(("model", change) for change in ({"features": 5}, {"classes": 4}, {"local": {"epochs": 3}})),
        *(("limits", {name: value}) for name, value in asdict(Limits(0.06, 0.9, 4, 7, 1)).items()),
    ):
        file.write_text(json.dumps(plain | {part: plain[part] | change}))
        assert FederationTerms.read(file).digest != small.terms.digest


@pytest.mark.parametrize("command", ["vault", "shuffler"])
def test_the_command_says_it_in_a_line(command, file):
    file.write_text("{}")
    code, _, errors = apes(command, file)
    assert code == 2
    assert errors.startswith(f"apes: {file}: field ")
    assert errors.count("\n") == 1


def test_a_token(file):
    with pytest.raises(DataError, match=r"settings\.json cannot be read"):
        read_token(file)
    for empty in ("", " \n"):
        file.write_text(empty)
        with pytest.raises(DataError, match=r"settings\.json is empty"):
            read_token(file)
    file.write_text("secret\n")
    assert read_token(file) == "secret"


def test_arrays_come_back_with_their_permissions(tmp_path):
    written = {"a": np.arange(3), "b": np.ones((2, 2), np.float32)}
    write_arrays(tmp_path / "x.npz", written, 0o600)
    assert (tmp_path / "x.npz").stat().st_mode & 0o777 == 0o600
    for needed, optional in [(("a",), ()), (("a",), ("b", "c")), (("b", "a"), ("c",))]:
        back = read_arrays(tmp_path / "x.npz", needed, optional)
        assert list(back) == [*needed, *(name for name in optional if name in written)]
        assert all((back[name] == written[name]).all() for name in back)
    with pytest.raises(DataError, match=r"x\.npz cannot be read.*c"):
        read_arrays(tmp_path / "x.npz", ("a", "c"))


def test_what_is_no_archive(tmp_path):
    file = tmp_path / "x.npz"
    np.save(tmp_path / "x.npy", np.arange(3))
    np.savez(tmp_path / "pickled.npz", a=np.array([None]))
    whole = (tmp_path / "pickled.npz").read_bytes()
    for data in (b"", b"PK", whole, whole[: len(whole) // 2], (tmp_path / "x.npy").read_bytes(), bytes(range(256))):
        file.write_bytes(data)
        with pytest.raises(DataError, match=r"x\.npz cannot be read"):
            read_arrays(file, ("a",))


@pytest.fixture
def vault(small, tmp_path):
    return VaultProcess(tmp_path, small.terms, small.keys, small.shuffler)


def change_data(vault, **changes):
    with np.load(vault.folder / "data.npz") as stored:
        arrays = {**stored} | changes
    np.savez(vault.folder / "data.npz", **{name: value for name, value in arrays.items() if value is not None})


@pytest.mark.parametrize(
    "changes",
    [
        {"budgets": None},
        {"budgets": np.zeros(8)},
        {"budgets": np.full(8, np.nan)},
        {"budgets": np.ones(7)},
        {"features": np.zeros((3, 4))},
        {"features": np.zeros((population()["labels"].size, 4, 2))},
        {"labels": None},
        {"labels": population()["labels"] + np.float32(0.5)},
        {"labels": population()["labels"] + np.uint8(1)},
        {"offsets": np.arange(9)},
        {"allowances": np.ones(7)},
        {"allowances": np.zeros(8)},
        {"allowances": np.full(8, np.nan)},
        {"features": np.array([None])},
    ],
    ids=str,
)
def test_vault_data_that_does_not_fit(vault, changes):
    change_data(vault, **changes)
    with pytest.raises(DataError, match=r"data\.npz|vault of 8 users"):
        open_vault(vault.folder / "vault.json")


def test_vault_budgets_that_the_shuffler_does_not_take(vault):
    for budget in (0.049, 1.001):
        change_data(vault, budgets=np.array([*7 * [0.5], budget]))
        with pytest.raises(DataError, match=r"data\.npz: budgets must be in \[0\.05, 1\]"):
            open_vault(vault.folder / "vault.json")


@pytest.mark.parametrize("name", ["data.npz", "keys.bin", "terms.json"])
@pytest.mark.parametrize("damage", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-5])])
def test_vault_files_that_are_missing_or_cut_short(vault, name, damage):
    damage(vault.folder / name)
    with pytest.raises(DataError, match=name):
        open_vault(vault.folder / "vault.json")


def test_vault_data_of_other_terms(vault, small):
    replace(small.terms, model=LogisticRegression(5, 3)).write(vault.folder / "terms.json")
    with pytest.raises(DataError, match=r"data\.npz does not fit .* user 1 on: .*rows of 5 numbers"):
        open_vault(vault.folder / "vault.json")
