"""People of many Parquet files: the same rows as those of one table, read by whoever needs them."""

import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
from parquet_parts import CHOICES, crowd, rows_of, write_parquet, write_parts

from apes import DataError, LinearRegression, LogisticRegression, ParameterError, Partitions, People, Plan, Workers
from apes import train as apes_train
from apes.data.partitions import census, opened
from apes.data.partitions.cache import PIECES

pytest.importorskip("pyarrow", reason="pyarrow is not installed")
CHOSEN = CHOICES | {"categories": {"city": ["Bonn", "Ulm"]}}
PLAN = Plan(norm=0.5, clip=0.1, rounds=3, delta=1e-3, seed=1)


def same_blocks(one, other):
    users = other.budgets.size
    assert np.array_equal(one.budgets, other.budgets)
    for start, stop in ((0, users), (0, 1), (users // 3, users // 3 + min(64, users // 2)), (users - 5, users)):
        mine, theirs = one.block(start, stop), other.block(start, stop)
        assert mine.first_user == start
        for name in ("budgets", "features", "labels", "offsets"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
            assert getattr(mine, name).dtype == getattr(theirs, name).dtype


def trained(people, **more):
    return apes_train(LogisticRegression.of(people), people, PLAN, **more)


@pytest.mark.service
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(
    "change",
    [
        {},
        {"test_share": 0.0},
        {"max_rows": 2, "seed": 9},
        {"budget": None, "budgets": "uniform2", "ignore": ["e"]},
        {"classes": ["2", "1", "0"]},
        {"ignore": ["city"], "categories": None},
    ],
)
def test_the_same_people_as_of_one_table(change, shuffled, tmp_path):
    table = crowd()
    folder = write_parts(tmp_path / "parts", table, shuffled=shuffled, row_group_size=20)
    whole = People.from_table(table, **CHOSEN | change) if not shuffled else None
    if whole is None:
        pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        tables = [parquet.read_table(path) for path in sorted(folder.iterdir())]
        parquet.write_table(pa.concat_tables(tables), tmp_path / "whole.parquet")
        whole = People.from_table(tmp_path / "whole.parquet", **CHOSEN | change)
    people = Partitions.open(folder, **CHOSEN | change)
    assert people.schema == whole.schema
    same_blocks(people, whole)
    assert (people.features, people.classes) == (whole.features, whole.classes)
    assert getattr(people.test, "digest", None) == getattr(whole.test, "digest", None)
    if whole.test is not None:
        assert people.facts == whole.facts
        assert set(whole.facts.clipped) == {"x"}
    mine, theirs = trained(people), trained(whole)
    assert mine.model_sha256 == theirs.model_sha256
    assert mine.metrics[-1].accuracy == theirs.metrics[-1].accuracy
    assert mine.guarantee == theirs.guarantee


def test_pieces_of_row_groups(tmp_path, monkeypatch):
    """Sorted files are read a row group at a time, others whole; the rows are the same."""
    table = crowd(400)
    whole = People.from_table(table, **CHOSEN)
    for shuffled in (False, True):
        folder = write_parts(tmp_path / str(shuffled), table, 3, shuffled=shuffled, row_group_size=40)
        monkeypatch.setattr(census, "FEWEST_ROWS", 1)
        people = Partitions.open(folder, **CHOSEN)
        pieces = people._all.pieces
        assert (len(pieces) > 12) is not shuffled
        assert sum(piece.stop - piece.start for piece in pieces) == table["user"].size
        if shuffled:
            assert len(pieces) == 3
        else:
            same_blocks(people, whole)
            assert people.test.digest == whole.test.digest
            assert people.facts == whole.facts
            assert max(piece.stop - piece.start for piece in pieces) < 60


def test_regression(tmp_path):
    table = crowd()
    table["y"] = table["x"] * 2 - 0.5
    choices = CHOSEN | {"task": "regression", "bounds": {"*": (0, 1), "y": (-1, 2)}}
    people = Partitions.open(write_parts(tmp_path / "parts", table), **choices)
    whole = People.from_table(table, **choices)
    same_blocks(people, whole)
    assert people.test.digest == whole.test.digest
    assert people.facts == whole.facts
    runs = [apes_train(LinearRegression.of(each), each, PLAN).model_sha256 for each in (people, whole)]
    assert runs[0] == runs[1]
    with pytest.raises(ParameterError, match="labels must be classes, got real-valued targets"):
        LogisticRegression.of(people)


def test_files_are_in_order_of_their_people_and_not_of_their_names(tmp_path):
    table = crowd()
    people = Partitions.open(write_parts(tmp_path / "a", table, 4, by="turns"), **CHOSEN)
    before = trained(people).model_sha256
    for at, path in enumerate(sorted((tmp_path / "a").iterdir())):
        path.rename(tmp_path / "a" / f"{9 - at}.parquet")
    renamed = Partitions.open(str(tmp_path / "a" / "*.parquet"), **CHOSEN)
    assert renamed.digest == people.digest
    same_blocks(renamed, people)
    assert trained(renamed).model_sha256 == before
    # Everybody is there, with the own rows.
    whole = People.from_table(table, **CHOSEN)
    assert sorted(people.budgets) == sorted(whole.budgets)
    assert people.facts.rows == whole.facts.rows


def test_budgets_by_id(tmp_path):
    table = crowd(60)
    own = {name: budget for name, budget in zip(table["user"].tolist(), table["e"].tolist(), strict=True)}
    choices = CHOSEN | {"budget": None, "budgets": own, "ignore": ["e"]}
    folder = write_parts(tmp_path / "parts", table, by="turns")
    assert sorted(Partitions.open(folder, **choices).budgets) == sorted(People.from_table(table, **choices).budgets)
    # Whoever has another budget is of other people.
    everybody = choices | {"test_share": 0}
    given = (own, dict(own), own | {"p00009": 9.0})
    digests = [Partitions.open(folder, **everybody | {"budgets": each}).digest for each in given]
    assert digests[0] == digests[1] != digests[2]
    own.pop("p00007")
    with pytest.raises(ParameterError, match="budgets must name every user, got none for 'p00007'"):
        Partitions.open(folder, **choices | {"test_share": 0})
    with pytest.raises(ParameterError, match="budget must name a column, or budgets a law"):
        Partitions.open(folder, **choices | {"budgets": None})
    with pytest.raises(
        ParameterError, match=r"budgets of a table must be in a column of it, or by a law, got 'file:x'"
    ):
        Partitions.open(folder, **choices | {"budgets": "file:x"})


def test_a_part_is_small_and_answers_for_its_own(tmp_path):
    people = Partitions.open(write_parts(tmp_path / "parts", crowd(2000)), **CHOSEN)
    users = people.budgets.size
    sent = pickle.dumps(people.part(100, 200))
    assert len(sent) < 5000
    part = pickle.loads(sent)
    assert part.budgets.size == 100
    assert part.digest != people.digest
    for start, stop in ((100, 200), (150, 151), (199, 200)):
        mine, theirs = part.block(start, stop), people.block(start, stop)
        assert mine.first_user == start
        for name in ("budgets", "features", "labels", "offsets"):
            assert np.array_equal(getattr(mine, name), getattr(theirs, name))
    for start, stop in ((99, 101), (100, 201), (150, 150), (160, 150), (0, users)):
        with pytest.raises(ParameterError, match=r"start and stop must be in order within \[100, 200\]"):
            part.block(start, stop)
    again = part.part(120, 130)
    assert np.array_equal(again.block(120, 130).features, people.block(120, 130).features)
    assert again.digest == people.part(120, 130).digest
    # The whole goes without its test part.
    assert people.test is not None
    whole = pickle.loads(pickle.dumps(people))
    assert whole._test is None
    assert whole.test.digest == people.test.digest


@pytest.mark.process
def test_on_other_processes(tmp_path):
    people = Partitions.open(write_parts(tmp_path / "parts", crowd()), **CHOSEN)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        elsewhere = trained(people, workers=Workers(executor=pool))
    assert elsewhere.model_sha256 == trained(people).model_sha256


@pytest.mark.service
@pytest.mark.parametrize("cache_mb", [0, 1])
def test_what_does_not_fit_is_read_again(cache_mb, tmp_path, monkeypatch):
    """Five pieces of about 0.4 MB: two of them fit into a megabyte, and stay there round after round."""
    rng, rows = np.random.default_rng(3), 4000
    ids = np.array([f"p{at:05d}" for at in range(rows)])
    table = {"user": ids, "y": np.arange(rows) % 2} | {f"x{at}": rng.random(rows) for at in range(120)}
    folder = write_parts(tmp_path / "parts", table, 5)
    choices = {"user": "user", "label": "y", "budgets": "uniform2", "bounds": (0, 1), "test_share": 0}
    people = Partitions.open(folder, **choices, cache_mb=cache_mb)
    read, piece_of = [], "apes.partitions.part.read_piece"
    from apes.partitions.part import read_piece

    def counted(piece, encoding):
        read.append(piece.file.path)
        return read_piece(piece, encoding)

    monkeypatch.setattr(piece_of, counted)
    # Blocks well below a piece: 63 of them do not read it 63 times.
    after, workers = [], Workers(threads=3, users_at_once=64)
    result = trained(people, workers=workers, after_round=lambda progress: after.append(len(read)))
    by_round = np.diff([0, *after])
    # A thread that lags behind the others may find a piece gone again, each of them once.
    least = 5 - 2 * cache_mb
    assert all(least <= reads <= 3 * least for reads in by_round[1:].tolist())
    assert sum(piece.size for piece in PIECES._kept.values()) <= 1 << 20 or cache_mb == 0
    assert result.model_sha256 == trained(People.from_table(table, **choices)).model_sha256


def test_many_threads_read_a_piece_once(tmp_path, monkeypatch):
    people = Partitions.open(write_parts(tmp_path / "parts", crowd(500, seed=77)), **CHOSEN | {"test_share": 0})
    read = []
    from apes.partitions.part import read_piece

    monkeypatch.setattr("apes.partitions.part.read_piece", lambda *piece: (read.append(piece), read_piece(*piece))[1])
    with ThreadPoolExecutor(8) as pool:
        blocks = list(pool.map(lambda start: people.block(start, start + 5), [*range(0, 500, 5)] * 3))
    assert len(read) == 4
    assert sum(len(block.labels) for block in blocks[:100]) == people.facts.rows


def test_a_large_test_part_is_asked_in_part(tmp_path, monkeypatch):
    """Of those who judge the first by the same draw; those who train are the same."""
    folder = write_parts(tmp_path / "parts", crowd(600, most=1))
    everybody = Partitions.open(folder, **CHOSEN)
    rows = len(everybody.test.labels)
    # Three features and a label of four bytes each.
    monkeypatch.setattr(opened, "TEST_BYTES", 16 * (rows // 2))
    few = Partitions.open(folder, **CHOSEN)
    assert len(few.test.labels) == rows // 2
    assert np.array_equal(few.budgets, everybody.budgets)
    assert few.facts == everybody.facts
    asked = {row.tobytes() for row in few.test.features}
    assert asked < {row.tobytes() for row in everybody.test.features}
    assert trained(few).model_sha256 == trained(everybody).model_sha256
    # In the middle of the files, too, and not only in the first.
    assert len(asked & {row.tobytes() for row in everybody.test.features[rows // 2 :]}) > rows // 8


def test_a_file_of_judges_only(tmp_path):
    table = crowd(100)
    people = People.from_table(table, **CHOSEN)
    from apes.data.table.people_rows import read_people
    from apes.data.table.reading import Reading

    trains = set(read_people(table, Reading("user", "y", "e", bounds={"*": (0, 1)}, ignore=["city"])).names.tolist())
    of_train = np.array([user in trains for user in table["user"].tolist()])
    judges = np.flatnonzero(~of_train)
    (tmp_path / "parts").mkdir()
    write_parquet(tmp_path / "parts" / "a.parquet", rows_of(table, np.flatnonzero(of_train)))
    write_parquet(tmp_path / "parts" / "b.parquet", rows_of(table, judges[: judges.size // 2]))
    write_parquet(tmp_path / "parts" / "c.parquet", rows_of(table, judges[judges.size // 2 :]))
    found = Partitions.open(tmp_path / "parts", **CHOSEN)
    same_blocks(found, people)
    assert len(found.test.labels) == judges.size
    for name in "ac":
        (tmp_path / "parts" / f"{name}.parquet").unlink()
    with pytest.raises(ParameterError, match=r"test_share must leave somebody to train, got 0\.2"):
        Partitions.open(tmp_path / "parts", **CHOSEN)


def test_which_files_there_are(tmp_path):
    table = crowd(30)
    folder = write_parts(tmp_path / "parts", table, 2)
    for name in ("_SUCCESS", ".part.crc", "_metadata.parquet", "readme.txt"):
        (folder / name).write_text("x")
    people = Partitions.open(folder, **CHOSEN)
    listed = sorted(path for path in folder.iterdir() if path.name.startswith("part"))
    assert Partitions.open(listed, **CHOSEN).digest == people.digest
    assert Partitions.open(f"{folder}/part-?.parquet", **CHOSEN).digest == people.digest
    (tmp_path / "none").mkdir()
    for source, words in (
        (tmp_path / "none", "none has no .parquet files"),
        (tmp_path / "gone", "there is no folder .*gone"),
        (str(tmp_path / "*.parquet"), r"\*.parquet has no .parquet files"),
        ([tmp_path / "x.parquet"], "there is no file .*x.parquet"),
    ):
        with pytest.raises(DataError, match=words):
            Partitions.open(source, **CHOSEN)
    with pytest.raises(ParameterError, match="source must be a folder, a pattern or a list of files, got dict"):
        Partitions.open({}, **CHOSEN)
    with pytest.raises(DataError, match=r"is no file; tables of many files are opened by apes\.Partitions"):
        People.from_table(folder, **CHOSEN)
    with pytest.raises(ParameterError, match=r"cache_mb must be in \[0, "):
        Partitions.open(folder, **CHOSEN, cache_mb=-1)
