"""Models that owners install: named by them, compared with the terms, tried on their data; on nobody else's word."""

import hashlib
import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from own_models import PACKAGE, forget, installed, write_package
from parties import (
    ANALYZER,
    BUDGETS,
    RUN,
    VaultProcess,
    agreed,
    announced,
    apes,
    joining,
    opened,
    population,
    task_for_few,
)

from apes import Examples, LogisticRegression, Terms
from apes.errors import DataError, ParameterError
from apes.federation.agreed_model import own_model
from apes.federation.analyzer import AnalyzerRun
from apes.federation.installed import InstalledModel, installed_model
from apes.federation.parties import Servers, invite
from apes.federation.terms import FederationTerms
from apes.federation.vault.folder import check_vault, open_vault
from apes.federation.vault.holdings import Holdings
from apes.federation.vault.ledger import VaultLedger
from apes.federation.vault.lifetime import Lifetime
from apes.federation.vault.model import Discreet, check_fit
from apes.federation.vault.vault import Request, Vault
from apes.people.people import People
from apes.shuffler.service.policy import Limits

MAKE = "tiny_models:make"


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Folder of the installed package."""
    folder = write_package(tmp_path / "site", "tiny_models", PACKAGE)
    with installed(folder, "tiny_models", monkeypatch):
        yield folder / "tiny_models"


def terms_of(name=MAKE, **changes):
    model = InstalledModel.of(name, installed_model(name))
    return replace(agreed(), model=model, **changes)


@pytest.fixture
def invitation(package, tmp_path):
    """Folder of an invitation to train the installed model."""
    test = Examples(np.eye(4, dtype=np.float32), np.array([0, 1, 2, 0]))
    task = task_for_few(terms_of(), test, MAKE)
    invite(tmp_path / "org", task, Servers(("here", 1), ("there", 2), 1))
    return tmp_path / "org" / "invitation"


@pytest.fixture
def data(tmp_path):
    np.savez(tmp_path / "data.npz", **population(), budgets=BUDGETS)
    return tmp_path / "data.npz"


def join(folder, invitation, data, *more):
    return apes(*joining(folder, invitation, data, *more))


def test_a_model_is_named_by_the_hash_of_its_digest(package):
    model = installed_model(MAKE)
    named = InstalledModel.of(MAKE, model)
    assert named == InstalledModel(MAKE, hashlib.sha256(b"softmax 4 1.0").hexdigest(), 12)
    assert own_model(named, MAKE).digest == model.digest


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("tiny_models:needs", "TypeError"),
        ("tiny_models:number", "TypeError"),
        ("tiny_models:missing", "AttributeError"),
        ("tiny_models.inner:make", "ModuleNotFoundError"),
        ("no_such_models:make", "ModuleNotFoundError"),
        ("tiny_models:fails", "RuntimeError: two lines"),
        ("tiny_models:nothing", "must have start"),
    ],
)
def test_what_makes_no_model(package, name, said):
    with pytest.raises(DataError, match=said) as raised:
        installed_model(name)
    assert name in str(raised.value)


@pytest.mark.parametrize("name", ["", "a", "a:", ":a", "a:b:c", "a.b", "a b:c", "../a:b", "a:b.c", "a:b()", "é:b", 5])
def test_names_that_are_none(name):
    for make in (installed_model, lambda given: InstalledModel(given, "00" * 32, 1)):
        with pytest.raises(ParameterError, match="must be MODULE:ATTRIBUTE of an installed package"):
            make(name)


def test_what_lies_where_the_process_runs_is_not_installed(tmp_path, monkeypatch):
    """Also if the interpreter would look there: python -m does."""
    folder = write_package(tmp_path, "stray_models", PACKAGE)
    monkeypatch.chdir(folder)
    for entry in ("", ".", str(folder)):
        with monkeypatch.context() as patch:
            patch.setattr(sys, "path", [entry, *sys.path])
            with pytest.raises(DataError, match="stray_models:make must be installed"):
                installed_model("stray_models:make")
            assert sys.path[0] == entry
    assert not (folder / "stray_models" / "imported").exists()
    monkeypatch.chdir("/")
    monkeypatch.syspath_prepend(folder)
    assert installed_model("stray_models:make").dimensions == 12
    forget("stray_models")


@pytest.mark.process
def test_nor_in_a_process_of_its_own(invitation, data, tmp_path):
    """A folder with a module of the right name, in which the command is run."""
    here = write_package(tmp_path / "here", "tiny_models", PACKAGE)
    command = [sys.executable, "-m", "apes", *joining("d", invitation, data)]
    done = subprocess.run([*command, "--model", MAKE], cwd=here, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    assert "tiny_models:make must be installed" in done.stderr
    assert not (here / "tiny_models" / "imported").exists()
    assert not (here / "d").exists()


def test_terms_import_nothing(package, tmp_path):
    """Neither when they are read nor when their owner named another model: two texts are compared."""
    named = InstalledModel("tiny_models:make", "00" * 32, 12)
    replace(agreed(), model=named).write(tmp_path / "terms.json")
    back = FederationTerms.read(tmp_path / "terms.json")
    assert back.model == named
    assert back.dimensions == 12
    for own in (None, "tiny_models:other", "numpy:zeros"):
        with pytest.raises(ParameterError, match="model must be tiny_models:make, which the terms name, got"):
            own_model(named, own)
    assert not (package / "imported").exists()
    assert "tiny_models" not in sys.modules


def test_another_model_than_was_agreed(package):
    with pytest.raises(ParameterError, match=r"tiny_models:make is another one here than was agreed: .*12 coordinates"):
        own_model(InstalledModel(MAKE, "00" * 32, 12), MAKE)
    right = InstalledModel.of(MAKE, installed_model(MAKE))
    with pytest.raises(ParameterError, match=r"not .*13 coordinates"):
        own_model(replace(right, dimensions=13), MAKE)
    with pytest.raises(ParameterError, match="model must be left out: the terms name logistic-regression, built in"):
        own_model(LogisticRegression(4, 3), MAKE)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"package": "../a:b"}, "package must be MODULE:ATTRIBUTE"),
        ({"digest": "00"}, "digest"),
        ({"dimensions": 0}, "dimensions"),
        ({"code": "print(1)"}, "unknown field 'code'"),
        ({"name": "logistic-regression"}, "unknown field 'name'"),
    ],
)
def test_terms_that_name_no_model(package, tmp_path, change, said):
    terms_of().write(tmp_path / "terms.json")
    plain = json.loads((tmp_path / "terms.json").read_text())
    (tmp_path / "terms.json").write_text(json.dumps(plain | {"model": plain["model"] | change}))
    with pytest.raises(DataError, match=rf"terms\.json, model: .*{said}"):
        FederationTerms.read(tmp_path / "terms.json")


def test_every_part_of_the_name_is_in_the_digest(package):
    terms = terms_of()
    others = [
        InstalledModel("tiny_models:alias", terms.model.digest, 12),
        InstalledModel(MAKE, "00" * 32, 12),
        InstalledModel(MAKE, terms.model.digest, 13),
        LogisticRegression(3, 3),
    ]
    digests = {replace(terms, model=model).digest for model in others}
    assert len(digests) == 4
    assert terms.digest not in digests


class TestJoin:
    """Whoever joins names the model, or it does not run."""

    def test_with_the_model_that_was_agreed(self, invitation, data, tmp_path):
        code, output, errors = join(tmp_path / "d", invitation, data, "--model", MAKE, "--json")
        assert code == 0, errors
        assert json.loads(output)["model"] == MAKE
        assert json.loads((tmp_path / "d" / "vault" / "vault.json").read_text())["model"] == MAKE
        assert FederationTerms.read(tmp_path / "d" / "vault" / "terms.json") == terms_of()
        code, output, _ = join(tmp_path / "e", invitation, data, "--model", MAKE)
        assert (code, "8 users train tiny_models:make" in output) == (0, True)

    @pytest.mark.parametrize(
        ("named", "said"),
        [
            ((), "model must be tiny_models:make, which the terms name, got none: install it"),
            (("--model", "tiny_models:other"), "model must be tiny_models:make, which the terms name, got tiny_models"),
            (("--model", "../x"), "model must be tiny_models:make"),
        ],
    )
    def test_with_another_or_none(self, invitation, data, tmp_path, named, said):
        code, _, errors = join(tmp_path / "d", invitation, data, *named)
        assert (code, errors.count("\n")) == (2, 1)
        assert said in errors
        assert not {path.name for path in tmp_path.iterdir()} & {"d", ".d.part"}

    def test_with_another_version(self, invitation, data, package, tmp_path):
        change_package(package, "SCALE = 1.0", "SCALE = 1.5")
        code, _, errors = join(tmp_path / "d", invitation, data, "--model", MAKE)
        assert code == 2
        assert "is another one here than was agreed" in errors
        assert not (tmp_path / "d").exists()

    def test_with_data_that_the_model_does_not_take(self, invitation, tmp_path):
        arrays = population() | {"features": np.ones((population()["labels"].size, 7), np.float32)}
        np.savez(tmp_path / "wide.npz", **arrays, budgets=BUDGETS)
        code, _, errors = join(tmp_path / "d", invitation, tmp_path / "wide.npz", "--model", MAKE)
        assert code == 2
        assert "does not fit the model, from user 1 on" in errors
        assert not (tmp_path / "d").exists()

    def test_terms_that_are_built_in_take_no_model(self, data, package, tmp_path):
        test = Examples(np.eye(4, dtype=np.float32), np.array([0, 1, 2, 0]))
        invite(tmp_path / "org", task_for_few(agreed(), test), Servers(("here", 1), ("there", 2), 1))
        code, _, errors = join(tmp_path / "d", tmp_path / "org" / "invitation", data, "--model", MAKE)
        assert code == 2
        assert "model must be left out: the terms name logistic-regression" in errors
        assert not (package / "imported").exists()


def change_package(package, old, new):
    """Another version of the package, as a new process would see it."""
    file = package / "__init__.py"
    file.write_text(file.read_text().replace(old, new))
    os.utime(file, ns=(1, 1))
    forget("tiny_models")


@pytest.fixture
def vault(small, package, tmp_path):
    (tmp_path / "v").mkdir()
    return VaultProcess(tmp_path / "v", terms_of(), small.keys, small.shuffler, model=MAKE)


def test_the_vault_checks_again_when_it_starts(vault, package):
    file = vault.folder / "vault.json"
    check_vault(file)
    plain = json.loads(file.read_text())
    for other in (None, "tiny_models:other"):
        file.write_text(json.dumps(plain | {"model": other}))
        with pytest.raises(DataError, match=r"vault\.json: model must be tiny_models:make, which the terms name"):
            open_vault(file)
    for wrong in (5, "", "x", ["tiny_models:make"]):
        file.write_text(json.dumps(plain | {"model": wrong}))
        with pytest.raises(DataError, match=r"vault\.json: .*model must be MODULE:ATTRIBUTE"):
            open_vault(file)
    file.write_text(json.dumps(plain))
    change_package(package, "SCALE = 1.0", "SCALE = 1.5")
    code, _, errors = apes("vault", file)
    assert (code, errors.count("\n")) == (2, 1)
    assert "vault.json: model tiny_models:make is another one here than was agreed" in errors


def test_the_analyzer_names_its_own(invitation, package):
    file = invitation.parent / "analyzer" / "analyzer.json"
    assert AnalyzerRun(file).progress.rounds == 0
    plain = json.loads(file.read_text())
    assert plain["model"] == MAKE
    file.write_text(json.dumps(plain | {"model": None}))
    with pytest.raises(DataError, match="the analyzer's settings do not fit its terms: model must be tiny_models:make"):
        AnalyzerRun(file)


def test_admission_needs_no_model(invitation, data, tmp_path, package):
    """The shuffler's operator counts coordinates; what they mean is not its business."""
    for name in ("d", "e"):
        assert join(tmp_path / name, invitation, data, "--model", MAKE)[0] == 0
    forget("tiny_models")
    (package / "imported").unlink()
    cards = [tmp_path / name / "card.json" for name in ("d", "e")]
    code, _, errors = apes("federation", "admit", tmp_path / "org", *cards)
    assert code == 0, errors
    assert not (package / "imported").exists()
    policy = json.loads((tmp_path / "org" / "shuffler" / "policy.json").read_text())
    assert policy["dimensions"] == 12


def people(**changes):
    return People(**(population() | changes), budgets=BUDGETS)


def vault_on(small, tmp_path, model, terms, held):
    ledger = VaultLedger(tmp_path / "ledger.sqlite", 8, Lifetime())
    return Vault(terms, (RUN,), held, small.shuffler.public_key(), ANALYZER.public_key(), ledger, model)


def asked(terms, weights, number=1):
    raw = np.asarray(weights, dtype="<f4").tobytes()
    return Request(announced(terms.digest, number, weights=raw).signed(ANALYZER), raw)


class TestInTheVault:
    """The owner's model runs on the owner's data, and nothing of what it does shows."""

    def test_reports_are_of_its_updates(self, small, package, tmp_path):
        """With budgets so large that the noise is gone, levels are the clipped updates on a grid of 16."""
        terms = replace(terms_of(), terms=Terms(rounds=3, levels=16, delta=1e-3, clip=0.5), limits=Limits(0.05, 1e4, 3))
        crowd = People(**population(), budgets=np.full(8, 5e3))
        held = Holdings(crowd, small.keys, np.full(8, np.inf))
        weights = np.linspace(-1, 1, 12)
        model = Discreet(installed_model(MAKE))
        answer = vault_on(small, tmp_path, model, terms, held).answer(asked(terms, weights))
        levels, _, _ = opened(answer, small.shuffler, 12)
        expected = installed_model(MAKE).updates(weights.astype(np.float32), crowd.block(0, 8)).clip(-0.5, 0.5)
        assert np.abs(expected).max() > 0.3
        assert np.abs(levels / 15 - 0.5 - expected).max() <= 1 / 15

    def test_who_makes_it_fail_sends_nothing_else_than_others(self, small, package, tmp_path):
        """Weights may be chosen so that it fails on some data: reports are made of zeros then, for those alone."""
        model, crowd = installed_model("tiny_models:fragile"), people()
        budgets = crowd.budgets.copy()
        weights = np.zeros(12, np.float32)
        weights[0] = 0.5
        first = np.maximum.reduceat(crowd.block(0, 8).features[:, 0], population()["offsets"][:-1])
        fails = first > 0.5
        assert 0 < fails.sum() < 8
        found = Discreet(model).updates(weights, crowd.block(0, 8))
        expected = installed_model(MAKE).updates(weights, crowd.block(0, 8))
        assert (found[fails] == 0).all()
        assert (found[~fails] == expected[~fails]).all()
        assert (np.abs(expected) > 0).any(axis=1).all()
        assert (crowd.budgets == budgets).all()
        assert weights[0] == 0.5
        terms = terms_of("tiny_models:fragile")
        held = Holdings(crowd, small.keys, np.full(8, np.inf))
        answer = vault_on(small, tmp_path, Discreet(model), terms, held).answer(asked(terms, weights))
        levels, sealed, _ = opened(answer, small.shuffler, 12)
        assert levels.shape == (8, 12)
        assert (sealed == budgets).all()

    def test_what_has_another_shape_is_refused_before(self, small, package):
        held = Holdings(people(), small.keys, np.full(8, np.inf))
        for name in ("misshapen", "wide"):
            with pytest.raises(DataError, match="here does not fit the model, from user 1 on"):
                check_fit(installed_model(f"tiny_models:{name}"), held, "here")
        check_fit(installed_model(MAKE), held, "here")
        labels = population()["labels"].astype(np.int64)
        labels[-1] = 3
        held = Holdings(people(labels=labels), small.keys, np.full(8, np.inf))
        with pytest.raises(DataError, match="here does not fit the model"):
            check_fit(installed_model(MAKE), held, "here")


@pytest.mark.service
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--model", "tiny_models:make"), "the public test part does not fit the model"),
        (("--model", "tiny_models:for_images", "--update", "fedprox"), "update must be left out"),
        (("--model", "tiny_models:for_images", "--mu", "0.1"), "mu must be left out"),
        (("--model", "no_such_models:make"), "model no_such_models:make must be installed"),
    ],
)
def test_init_refuses(package, tmp_path, options, said):
    code, _, errors = apes("federation", "init", tmp_path / "f", "--devices", 3, "--rounds", 1, *options)
    *_, last = errors.splitlines()
    assert code == 2
    assert last.startswith("apes: ")
    assert said in last
    assert not (tmp_path / "f").exists()
