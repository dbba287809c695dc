"""A folder that cannot be misread: what does not belong to a run is refused at once, before memory or time is spent."""

import json
import os
import shutil
import subprocess
import sys
import tracemalloc
import zipfile

import numpy as np
import pytest
from few import MODEL, folder_of, trained
from typer.testing import CliRunner

import apes
from apes.cli.main import app
from apes.storage.files import open_regular, read_regular, write_bytes
from apes.training.model_file import about_model, digest_of_weights
from apes.training.run_folder import RunFolder


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A run that is over."""
    run, reached = trained()
    folder = folder_of(tmp_path_factory.mktemp("done") / "run", reached)
    about = about_model(MODEL, run.guarantee, reached[0].identity.terms, rounds=3)
    folder.keep_model(run.weights, about)
    folder.finish({"rounds": 3})
    return folder.path


@pytest.fixture
def path(done, tmp_path):
    return shutil.copytree(done, tmp_path / "run")


def command(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def refused(path, said):
    """Neither shown nor read, in one line."""
    with pytest.raises(apes.DataError, match=said) as caught:
        RunFolder.open(path).model()
    assert "\n" not in str(caught.value)
    answer = command("show", path)
    assert (answer.exit_code, answer.stdout, len(answer.stderr.strip().splitlines())) == (2, "", 1), answer.output


def model_of(path, **changes):
    with np.load(path / "model.npz") as stored:
        return dict(stored) | changes


class TestModel:
    def test_with_all_weights_replaced_it_has_no_certificate(self, path):
        np.savez(path / "model.npz", **model_of(path, weights=np.full(8, 3.5)))
        refused(path, "is not the model that the run ended with, by its certificate.json")

    def test_what_it_says_of_itself_is_bound_too(self, path):
        about = json.loads(str(model_of(path)["about"]))
        np.savez(path / "model.npz", **model_of(path, about=np.array(json.dumps(about | {"epsilon": 0.01}))))
        refused(path, "certificate.json is not that of model.npz and exposures.jsonl")

    def test_a_certificate_of_another_run_is_none(self, path, tmp_path):
        run, reached = trained()
        other = folder_of(tmp_path / "other", reached)
        about = about_model(MODEL, run.guarantee, reached[0].identity.terms, rounds=3)
        other.keep_model(run.weights, about)
        other.finish({"rounds": 3})
        for name in ("model.npz", "certificate.json"):
            shutil.copy(other.path / name, path / name)
        refused(path, "certificate.json is not that of model.npz and exposures.jsonl")

    def test_killed_between_model_and_certificate_it_is_not_finished(self, path):
        (path / "certificate.json").unlink()
        folder = RunFolder.open(path)
        assert folder.finished_rounds is None
        with pytest.raises(apes.DataError, match="has no model yet: finish the run first"):
            folder.model()
        assert "unfinished" in command("show", path).stdout


class TestSizes:
    def test_an_archive_that_unpacks_to_a_thousand_times_its_size_costs_nothing(self, path):
        """Zeros are packed to a thousandth; what we write is stored as it is."""
        header = np.lib.format
        with zipfile.ZipFile(path / "model.npz", "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open("weights.npy", "w", force_zip64=True) as file:
                header.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (8 << 20,)})
                for _ in range(64):
                    file.write(bytes(1 << 20))
        assert (path / "model.npz").stat().st_size < 200_000
        tracemalloc.start()
        try:
            refused(path, "would be unpacked to 67108992, more than")
            assert tracemalloc.get_traced_memory()[1] < 32 << 20
        finally:
            tracemalloc.stop()

    @pytest.mark.parametrize("shape", [(1 << 40,), (9,), (7,), (-1,)], ids=str)
    def test_an_array_of_another_size_than_its_member_is_refused(self, path, shape):
        text = str({"descr": "<f8", "fortran_order": False, "shape": shape}).encode()
        padded = text + b" " * (117 - len(text)) + b"\n"
        with zipfile.ZipFile(path / "model.npz", "w") as archive:
            archive.writestr("weights.npy", b"\x93NUMPY\x01\x00v\x00" + padded + bytes(64))
        refused(path, r"model\.npz cannot be read")

    def test_budgets_of_another_size_than_their_file_are_refused(self, path):
        file = next((path / "budgets").iterdir())
        file.write_bytes(file.read_bytes()[:-8])
        with pytest.raises(apes.DataError, match="it is of 320 bytes and holds 312"):
            RunFolder.open(path).recertify()


FILES = (
    "config.json",
    "exposures.jsonl",
    "certificate.json",
    "model.npz",
    "private/choices.json",
    "private/checkpoint.npz",
)


class TestRegularFiles:
    @pytest.mark.parametrize("name", [*FILES, "private/metrics.jsonl", "private/summary.json"])
    def test_a_pipe_is_refused_at_once(self, path, name):
        (path / name).unlink()
        os.mkfifo(path / name)
        answer = command("show", path)
        assert (answer.exit_code, answer.stdout) == (2, ""), answer.output
        assert "it is no regular file" in answer.stderr
        assert len(answer.stderr.strip().splitlines()) == 1

    def test_keys_and_budgets_are_read_from_files_alone(self, path):
        for file in (path / "private/digest.key", next((path / "budgets").iterdir())):
            file.unlink()
            os.mkfifo(file)
        with pytest.raises(apes.DataError, match="no regular file"):
            RunFolder.open(path).recertify()
        with pytest.raises(apes.DataError, match="no regular file"):
            RunFolder.open(path).keys()

    @pytest.mark.parametrize("name", ["config.json", "exposures.jsonl", "model.npz"])
    def test_a_link_to_itself_is_refused_at_once(self, path, name):
        (path / name).unlink()
        (path / name).symlink_to(name)
        answer = command("show", path)
        assert (answer.exit_code, answer.stdout) == (2, ""), answer.output

    def test_devices_and_folders_are_no_files(self, tmp_path):
        for place in ("/dev/zero", tmp_path):
            with pytest.raises(OSError, match=r"regular file|directory"):
                read_regular(tmp_path / place)
        write_bytes(tmp_path / "file", b"said")
        with open_regular(tmp_path / "file") as file:
            assert file.read() == b"said"


class TestOneAtATime:
    def test_whoever_comes_second_is_told_that_another_process_works_on_it(self, path):
        with RunFolder.open(path).locked():
            answer = command("train", "--resume", path)
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert "another process works on this run; let it finish" in answer.stderr
        assert "new folder" not in answer.stderr

    def test_reading_waits_for_nobody(self, path):
        with RunFolder.open(path).locked():
            assert command("show", path).exit_code == 0
            assert command("account", "--run", path).exit_code == 0

    @pytest.mark.process
    def test_what_a_process_that_died_held_is_no_obstacle(self, path):
        program = (
            "import os, sys; from pathlib import Path; from apes.training.run_folder import RunFolder\n"
            "with RunFolder.open(Path(sys.argv[1])).locked():\n"
            "    print('held', flush=True); sys.stdin.read(); os._exit(0)\n"
        )
        with subprocess.Popen(
            [sys.executable, "-c", program, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as other:
            assert other.stdout.readline() == "held\n"
            with (
                pytest.raises(apes.DataError, match="another process works on this run"),
                RunFolder.open(path).locked(),
            ):
                pass
            other.kill()
            other.wait()
        with RunFolder.open(path).locked():
            pass

    def test_what_a_killed_process_left_half_is_removed_when_the_run_goes_on(self, path):
        half = "0123456789abcdef" * 2
        places = [path / f".model.npz.{half}", path / "private" / f".checkpoint.npz.{half}"]
        others = [path / ".mine", path / ".model.npz.short", path / f"model.{half}"]
        for file in (*places, *others):
            file.write_bytes(b"half")
        with RunFolder.open(path).locked():
            assert not any(file.exists() for file in places)
        assert all(file.exists() for file in others)


class TestConfiguration:
    @pytest.mark.parametrize(
        ("file", "change", "said"),
        [
            ("config.json", {"version": "9"}, "it was changed after the run had begun"),
            ("config.json", {"data": "another"}, "it was changed after the run had begun"),
            ("private/choices.json", {"data": "another"}, "are not of the same run, or were changed"),
            ("private/choices.json", {"choices": {"rounds": 9}}, "are not of the same run, or were changed"),
        ],
        ids=lambda value: str(value)[:30],
    )
    def test_what_is_shown_of_it_is_bound(self, path, file, change, said):
        (path / file).write_text(json.dumps(json.loads((path / file).read_text()) | change))
        answer = command("show", path)
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert said in answer.stderr

    def test_a_layout_of_a_later_version_is_not_guessed_at(self, path):
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"layout": 3}))
        with pytest.raises(apes.DataError, match="layout is 3, and this version knows 2: read it with a later one"):
            RunFolder.open(path)


class TestCopies:
    """What may be shown, handed to somebody else without the owner's files."""

    @pytest.fixture
    def copy(self, path, tmp_path):
        return shutil.copytree(path, tmp_path / "copy", ignore=shutil.ignore_patterns("private"))

    def test_it_is_certified_and_shown_from_what_may_be_shown(self, copy, path):
        whole, part = (RunFolder.open(each) for each in (path, copy))
        assert part.recertify() == whole.recertify()
        assert np.array_equal(part.weights(), whole.weights())
        facts = json.loads(command("show", copy, "--json").stdout)
        assert (facts["state"], facts["rounds"], facts["is_copy"]) == ("finished", 3, True)
        assert (facts["accuracy"], facts["command"]) == (None, None)
        assert facts["certified"] == json.loads(command("show", path, "--json").stdout)["certified"]

    def test_it_is_not_gone_on_with(self, copy):
        answer = command("train", "--resume", copy)
        assert (answer.exit_code, "is a copy of what may be shown of a run" in answer.stderr) == (2, True)
        assert "html must be left out" in command("show", copy, "--html").stderr
        assert not (copy / "private").exists()

    def test_a_log_that_was_cut_is_noticed_by_the_certificate(self, copy):
        log = copy / "exposures.jsonl"
        log.write_text("".join(log.read_text().splitlines(keepends=True)[:1]))
        with pytest.raises(apes.DataError, match="is not the whole log of this run: others say 3 rounds"):
            RunFolder.open(copy).recertify()


class TestEarlierLayout:
    """Everything in one place, with a digest of all rows in every line; noise that followed from a seed."""

    @pytest.fixture
    def old(self, path):
        for name in ("checkpoint.npz", "metrics.jsonl", "summary.json"):
            shutil.move(path / "private" / name, path / name)
        for name in ("private", "certificate.json", "README.txt"):
            shutil.rmtree(path / name) if (path / name).is_dir() else (path / name).unlink()
        config = json.loads((path / "config.json").read_text())
        config["basis"].pop("seeded")
        (path / "config.json").write_text(json.dumps({name: config[name] for name in config if name != "layout"}))
        lines = [json.loads(line) for line in (path / "exposures.jsonl").read_text().splitlines()]
        for line in lines:
            run = {name: line["run"][name] for name in ("terms", "schedule", "schema")}
            line["run"] = run | {"people": "0" * 64, "test": "", "basis": json.dumps(config["basis"], sort_keys=True)}
        (path / "exposures.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        with np.load(path / "checkpoint.npz") as stored:
            arrays = dict(stored)
        header = json.loads(bytes(arrays["header"])) | {"identity": lines[0]["run"]}
        arrays["header"] = np.frombuffer(
            json.dumps({n: header[n] for n in ("identity", "metrics", "exposures")}).encode(), np.uint8
        )
        np.savez(path / "checkpoint.npz", **arrays)
        weights = model_of(path)["weights"]
        (path / "summary.json").write_text(json.dumps({"rounds": 3, "model_sha256": digest_of_weights(weights)}))
        return path

    def test_it_is_shown_and_certified_and_says_that_its_noise_was_seeded(self, old):
        facts = json.loads(command("show", old, "--json").stdout)
        assert (facts["state"], facts["certified"]["seeded"]) == ("finished", True)
        assert "as long as the seed stays secret" in command("account", "--run", old).stdout
        assert RunFolder.open(old).weights().size == 8

    def test_it_is_not_gone_on_with_and_that_says_what_to_do(self, old):
        before = {file: file.read_bytes() for file in old.rglob("*") if file.is_file()}
        answer = command("train", "--resume", old)
        assert (answer.exit_code, answer.stdout) == (2, "")
        assert "was begun by an earlier version, whose folders are read" in answer.stderr
        assert "start a new run" in answer.stderr
        assert {file: file.read_bytes() for file in old.rglob("*") if file.is_file()} == before

    def test_its_model_is_compared_with_its_summary(self, old):
        np.savez(old / "model.npz", **model_of(old, weights=np.full(8, 3.5)))
        refused(old, "is not the model that the run ended with, by its summary.json")
