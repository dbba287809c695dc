"""Service units and the compose file: they parse, name commands that there are, and allow parties little."""

import re
import shutil
import stat
import subprocess
from pathlib import Path

import pytest
import typer

from apes.cli.main import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
COMMANDS = typer.main.get_command(app).commands.keys()
PARTIES = {"vault", "courier", "shuffler", "superlink", "analyzer"}
EVERYBODY = {
    "NoNewPrivileges": ["yes"],
    "ProtectSystem": ["strict"],
    "PrivateTmp": ["yes"],
    "ProtectHome": ["yes"],
    "CapabilityBoundingSet": [""],
    "UMask": ["0077"],
}


def read(path):
    """Settings of a unit, each with all its values."""
    lines = [line for line in path.read_text().splitlines() if line and not line.startswith(("#", "["))]
    found = {}
    for name, _, value in (line.partition("=") for line in lines):
        found.setdefault(name, []).append(value)
    return found


def test_every_party_has_a_unit():
    assert {path.stem.removeprefix("apes-") for path in UNITS} == PARTIES


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.stem)
def test_a_unit_runs_a_command_that_there_is_and_may_do_little(path):
    unit, name = read(path), path.stem.removeprefix("apes-")
    (command,) = unit["ExecStart"]
    program, *words = command.split()
    if name == "analyzer":
        assert program.endswith("/analyzer/start.sh")
    else:
        assert (program, words) == ("/opt/apes/bin/apes", [name, f"{name}.json"])
        assert name in COMMANDS
    assert {setting: unit[setting] for setting in EVERYBODY} == EVERYBODY
    assert unit["User"] != ["root"]
    # Code 2 says that an operator has to act, as where a ledger is lost: the same again would only fill the log.
    is_started_again = unit["Restart"] != ["no"]
    assert unit.get("RestartPreventExitStatus") == (["2"] if is_started_again else None)


def test_the_vault_has_no_network_and_an_account_of_its_own():
    vault, courier = (read(DEPLOY / "systemd" / f"apes-{name}.service") for name in ("vault", "courier"))
    assert vault["PrivateNetwork"] == ["yes"]
    assert vault["RestrictAddressFamilies"] == ["AF_UNIX"]
    assert (vault["User"], courier["User"]) == (["apes-vault"], ["apes-courier"])
    assert courier["InaccessiblePaths"] == ["-/var/lib/apes/device/vault"]
    assert vault["ReadWritePaths"] == ["/var/lib/apes/device/vault /var/lib/apes/device/socket"]


@pytest.mark.process
@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_finds_nothing_wrong(tmp_path):
    """With programs where the units look for them; and it would find a setting that there is not."""
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)

    def verify(extra):
        for path in UNITS:
            text = path.read_text().replace("/opt/apes/bin/apes", str(program))
            text = text.replace("/var/lib/apes/org/analyzer/start.sh", str(program))
            (tmp_path / path.name).write_text(text.replace("[Service]\n", f"[Service]\n{extra}"))
        files = [tmp_path / path.name for path in UNITS]
        done = subprocess.run(["systemd-analyze", "verify", *files], capture_output=True, text=True, check=False)
        return [line for line in done.stderr.splitlines() if "apes-" in line]

    assert verify("") == []
    assert len(verify("NoSuchSetting=yes\n")) >= len(UNITS)


def test_the_compose_file_keeps_parties_apart():
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    assert services.keys() == PARTIES
    for name, service in services.items():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        # Compose cannot tell exit codes apart: a program that cannot begin is started a few times, not for ever.
        assert service["restart"] in ("no", "on-failure:5")
        assert service["security_opt"] == ["no-new-privileges:true"]
        if name != "analyzer":
            assert service["command"][0] == name
            assert name in COMMANDS
    users = [services[name]["user"] for name in ("vault", "courier", "shuffler", "superlink")]
    assert len(set(users)) == 4
    assert services["vault"]["network_mode"] == "none"
    assert services["analyzer"]["network_mode"] == "service:superlink"
    shared = {volume.split(":")[0] for volume in services["vault"]["volumes"]}
    shared &= {volume.split(":")[0] for volume in services["courier"]["volumes"]}
    assert shared == {"./device/socket"}


def instructions():
    """What an image is made by, line by line."""
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def test_the_image_is_of_this_package_and_of_what_is_locked():
    steps = instructions()
    installs = [step for step in steps if "pip install" in step]
    # What is not ours has a hash; ours asks no index for anything.
    assert len(installs) == 2
    assert "pip install --no-cache-dir --require-hashes -r /src/deploy/requirements.txt" in installs[0]
    assert "--no-index --no-deps --no-build-isolation /src" in installs[1]
    assert 'ENTRYPOINT ["apes"]' in steps


def test_nobody_in_a_container_is_root():
    users = [step.split()[1] for step in instructions() if step.startswith("USER ")]
    assert users
    assert all(int(part) > 0 for part in users[-1].split(":"))
    # What comes after it is no longer done as root: nothing is installed there.
    steps = instructions()
    assert not any(step.startswith(("RUN", "COPY", "ADD")) for step in steps[steps.index(f"USER {users[-1]}") :])
    yaml = pytest.importorskip("yaml")
    for name, service in yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"].items():
        assert name == "analyzer" or not service["user"].startswith(("0", "root"))


def let_in(path):
    """Whether .dockerignore lets a file of the repository into an image: the last line that fits decides."""
    is_in = True
    for line in (ROOT / ".dockerignore").read_text().splitlines():
        if line and not line.startswith("#"):
            pattern = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(?:[^/]+/)*").replace(r"\*", "[^/]*")
            # A folder that fits has all its files with it.
            if re.fullmatch(f"{pattern}(?:/.*)?", path):
                is_in = line.startswith("!")
    return is_in


def test_an_image_holds_what_the_package_is_made_of():
    source = ROOT / "src" / "apes"
    files = [path for path in source.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    names = [path.relative_to(ROOT).as_posix() for path in files]
    assert len(names) > 300
    assert [name for name in names if not let_in(name)] == []
    for name in ("pyproject.toml", "README.md", "LICENSE", "deploy/requirements.txt"):
        assert let_in(name)
        assert (ROOT / name).is_file()


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".venv/bin/python",
        ".env",
        "data.npz",
        "people.csv",
        "trial/org/shuffler/shuffler.key",
        "trial/org/analyzer/token",
        "trial/org/superlink/tls.pem",
        "trial/device-0001/vault/data.npz",
        "runs/one/checkpoint.npz",
        "deploy/device/vault/ledger.sqlite",
        "src/trial/org/shuffler/shuffler.key",
        "src/apes/trial/token",
        "src/apes/shuffler.key",
        "src/apes/people.csv",
    ],
)
def test_an_image_holds_nothing_else_that_lies_in_a_checkout(path):
    assert not let_in(path)


def test_an_image_is_copied_from_nothing_but_what_is_let_in():
    """Where a builder knows no .dockerignore, no more than these folders and files are taken."""
    taken = [step.split()[1:-1] for step in instructions() if step.startswith(("COPY ", "ADD "))]
    assert {name for names in taken for name in names} == {
        "deploy/requirements.txt",
        "pyproject.toml",
        "README.md",
        "LICENSE",
        "src",
    }
