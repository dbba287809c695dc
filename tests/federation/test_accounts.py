"""Vault and courier under accounts of their own, made by root: what takes over the courier reads nothing of the vault.

With the code of before, both ran under one account, and whatever ran beside the courier read data, keys and ledger.
"""

import contextlib
import functools
import json
import os
import pwd
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
from local_vault import LocalVault
from parties import PAPERS_INVITED, VaultProcess, apes, is_root, until

import apes as package
from apes.errors import DataError, ParameterError
from apes.federation.device_accounts import DeviceAccounts
from apes.federation.trial.layout import free_ports
from apes.federation.trial.processes import environment
from apes.federation.vault import accounts
from apes.federation.vault.accounts import Account, check_apart
from apes.federation.vault.folder import VaultSettings, open_vault
from apes.storage.settings import write_settings

pytestmark = pytest.mark.process
needs_root = pytest.mark.skipif(not is_root(), reason="only root makes accounts")
# Numbers that no account has.
VAULT, COURIER, STRANGER = "61234", "61235", "61236"
_SITE = Path(np.__file__).parents[1]

# Run by a hostile program under some account: all that it can read below a folder, and what the vault's socket says.
THIEF = """
import json, os, socket, sys
root, place, request = sys.argv[1], sys.argv[2], bytes.fromhex(sys.argv[3])
loot = {}
for folder, folders, files in os.walk(root):
    for name in files:
        path = os.path.join(folder, name)
        try:
            loot[os.path.relpath(path, root)] = len(open(path, "rb").read())
        except OSError:
            pass
for name in ("vault/data.npz", "vault/keys.bin", "vault/ledger.sqlite", "vault/vault.json", "courier/node.key"):
    try:
        loot[name] = len(open(os.path.join(root, name), "rb").read())
    except OSError:
        pass
for name in ("vault", "socket", "."):
    try:
        open(os.path.join(root, name, "planted"), "x")
        loot["planted in " + name] = 1
    except OSError:
        pass
try:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(300)
        connection.connect(place)
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        answer = b""
        while piece := connection.recv(1 << 20):
            answer += piece
    loot["answer"] = answer.decode("latin1")
except OSError as error:
    loot["answer"] = type(error).__name__
print(json.dumps(loot))
"""


@functools.cache
def interpreter():
    """A Python that accounts without a name can run, this one or the system's of the same version; None if none is."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    for path in (sys.executable, f"/usr/bin/python{version}"):
        with contextlib.suppress(OSError):
            done = run_as(VAULT, [path, "-c", "import apes.cli.main, flwr"], check=False)
            if done.returncode == 0:
                return path
    return None


def run_as(account, command, **choices):
    """Run a command under an account, as a shell of that account would."""
    line = [*as_whom(account), "sh", "-c", 'exec "$@"', "sh", *map(str, command)]
    choices = {"capture_output": True, "text": True, "timeout": 300, "cwd": "/"} | choices
    # Compiled loops are kept at home, so everybody needs one.
    with tempfile.TemporaryDirectory(dir="/tmp") as home:
        os.chown(home, int(account), int(account))
        return subprocess.run(line, env=surroundings(HOME=home), **choices)


def as_whom(account):
    return ["setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups", "--no-new-privs"]


def surroundings(**more):
    paths = os.pathsep.join([str(Path(package.__file__).parents[1]), str(_SITE)])
    return {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"} | more


def wait_for(condition, seconds=600):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def open_folder():
    """A folder that everybody may enter, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp(prefix="apes-a-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def python():
    found = interpreter() if is_root() else None
    if found is None:
        pytest.skip("no Python here that another account can run")
    return found


@pytest.fixture(scope="module")
def device(open_folder, python):
    """A device whose owner joined as root; vault, courier and SuperLink run."""
    tools = open_folder / "bin"
    tools.mkdir()
    for name in ("apes", "flwr", "flower-superexec", "flwr-serverapp"):
        (tools / name).write_text(f'#!/bin/sh\nexec {python} {Path(sys.executable).parent / name} "$@"\n')
        (tools / name).chmod(0o755)
    org, home, ports = open_folder / "org", open_folder / "device", free_ports(3)
    options = ["--users", 2, "--rounds", 1, "--nodes", 1, "--smallest-cohort", 2, "--levels", 16]
    options += ["--largest-card", 2, "--colluding", 0]
    options += ["--smallest-budget", 0.5, "--largest-budget", 2, "--budgets", "constant:1", *PAPERS_INVITED]
    servers = ["--shuffler", f"127.0.0.1:{ports[0]}", "--superlink", f"127.0.0.1:{ports[1]}"]
    code, _, errors = apes("federation", "invite", org, *options, *servers)
    assert code == 0, errors
    data = open_folder / "data.npz"
    rows = {"features": np.zeros((2, 784), np.float32), "labels": np.zeros(2, np.uint8), "offsets": np.arange(3)}
    np.savez(data, **rows, budgets=np.ones(2))
    data.chmod(0o600)
    accounts = ["--vault-account", VAULT, "--courier-account", COURIER]
    given = "--yes", "--invitation", org / "invitation", "--data", data, *accounts
    code, _, errors = apes("federation", "join", home, *given)
    assert code == 0, errors
    assert apes("federation", "admit", org, home / "card.json")[0] == 0
    with contextlib.ExitStack() as stack:
        # The SuperLink has an account too; what it runs, it runs under that.
        for path in (org / "superlink", *(org / "superlink").rglob("*")):
            os.chown(path, int(STRANGER), int(STRANGER))
        scripts = [org / "superlink" / "start.sh", home / "start-vault.sh", home / "start-courier.sh"]
        for script in scripts:
            log = stack.enter_context((open_folder / f"{script.parent.name}-{script.stem}.log").open("wb"))
            path = os.pathsep.join([str(tools), os.environ["PATH"]])
            if script == scripts[2]:
                wait_for(lambda: '"registered"' in (open_folder / "superlink-start.log").read_text())
                wait_for((home / "socket" / "vault.sock").exists)
            become = as_whom(STRANGER) if script == scripts[0] else []
            home_of = str(script.parent)
            around = surroundings(PATH=path, HOME=home_of)
            process = subprocess.Popen([*become, script], stdout=log, stderr=log, env=around)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        wait_for(lambda: '"courier"' in (open_folder / "device-start-courier.log").read_text())
        yield home


@needs_root
def test_they_run_and_each_says_as_whom(device):
    first = json.loads((device.parent / "device-start-vault.log").read_text().splitlines()[0])
    assert (first["event"], first["accounts"], first["courier"]) == ("vault", "apart", COURIER)
    owners = {name: (device / name).stat() for name in ("vault", "courier", "socket")}
    assert {
        name: (str(found.st_uid), str(found.st_gid), stat.S_IMODE(found.st_mode)) for name, found in owners.items()
    } == {"vault": (VAULT, VAULT, 0o700), "courier": (COURIER, COURIER, 0o700), "socket": (VAULT, COURIER, 0o2750)}


def stolen(device, account):
    """What a hostile program under an account gets."""
    request = "02000000" + b"{}".hex() + "00000000"
    done = run_as(
        account, [interpreter(), "-I", "-c", THIEF, device, device / "socket" / "vault.sock", request], check=True
    )
    return json.loads(done.stdout)


PUBLIC = {"card.json", "start-vault.sh", "start-courier.sh"}


@needs_root
def test_a_hostile_program_in_the_couriers_place_gets_nothing_of_the_vault(device):
    """It reads what the courier can read, and gets from the vault's socket what a courier gets."""
    loot = stolen(device, COURIER)
    assert loot.pop("answer") == "\x01request"
    own = {name for name in loot if name.startswith("courier/")}
    assert {"courier/node.key", "courier/courier.json", "courier/authority.pem"} <= own
    assert set(loot) - own <= PUBLIC | {"socket/vault.sock.lock"}
    assert "socket/vault.sock.lock" not in loot


@needs_root
def test_a_stranger_on_the_machine_gets_nothing_at_all(device):
    loot = stolen(device, STRANGER)
    assert loot.pop("answer") == "PermissionError"
    assert set(loot) <= PUBLIC


@needs_root
def test_the_search_finds_what_is_there(device, python):
    """Power check: run as root, who may read everything, the same program finds every secret."""
    place = device / "socket" / "vault.sock"
    done = subprocess.run(
        [python, "-I", "-c", THIEF, device, place, "00"], capture_output=True, text=True, check=True, cwd="/"
    )
    loot = json.loads(done.stdout)
    for name in ("vault", "socket", "."):
        (device / name / "planted").unlink()
    assert {"vault/data.npz", "vault/keys.bin", "vault/ledger.sqlite", "courier/node.key"} <= loot.keys()


@needs_root
def test_the_vaults_own_account_is_not_listened_to(device):
    loot = stolen(device, VAULT)
    assert loot["answer"] in ("", "ConnectionResetError", "BrokenPipeError")
    (device / "vault" / "planted").unlink()
    (device / "socket" / "planted").unlink()
    assert "stranger" in (device.parent / "device-start-vault.log").read_text()


SERVER = """
import json, os
from pathlib import Path
from flwr.serverapp import ServerApp
app = ServerApp()


@app.main()
def main(grid, context):
    config, loot = dict(context.run_config), []
    for folder, _, files in os.walk(config["root"]):
        for name in files:
            try:
                open(os.path.join(folder, name), "rb").read()
                loot.append(os.path.relpath(os.path.join(folder, name), config["root"]))
            except OSError:
                pass
    part = Path(config["out"] + ".part")
    part.write_text(json.dumps(loot))
    part.rename(config["out"])
"""
CLIENT = """
import pathlib
from flwr.clientapp import ClientApp
pathlib.Path("{mark}").write_text("ran")
app = ClientApp()
"""
PROJECT = """
[project]
name = "hostile"
version = "1.0.0"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "hostile"
[tool.flwr.app.components]
serverapp = "hostile.server:app"
clientapp = "hostile.client:app"
[tool.flwr.app.config]
root = ""
out = ""
"""


@needs_root
def test_a_hostile_app_of_the_organisers_finds_nothing_of_a_user(device, open_folder):
    """It looks for data, keys, ledgers and tokens everywhere, and finds only what the SuperLink has itself."""
    app, out = open_folder / "app", open_folder / "drop" / "loot.json"
    (app / "hostile").mkdir(parents=True)
    out.parent.mkdir()
    out.parent.chmod(0o777)
    client = CLIENT.format(mark=out.parent / "mark")
    for name, text in {"__init__.py": "", "server.py": SERVER, "client.py": client}.items():
        (app / "hostile" / name).write_text(text)
    (app / "pyproject.toml").write_text(PROJECT)
    config = f"root={json.dumps(str(open_folder))} out={json.dumps(str(out))}"
    flwr = open_folder / "org" / "analyzer" / "flwr.sh"
    command = [flwr, "run", app, "here", "-c", config]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    wait_for(out.exists)
    loot = set(json.loads(out.read_text()))
    assert {"org/superlink/tls.pem", "org/superlink/superlink.json"} <= loot
    names = ("data.npz", "keys.bin", "ledger.sqlite", "vault.json", "node.key", "token", "shuffler.key")
    assert not [name for name in loot if name.endswith(names)]
    assert [name for name in loot if name.endswith("tls.pem")] == ["org/superlink/tls.pem"]
    assert {name for name in loot if name.startswith("device/")} <= {f"device/{name}" for name in PUBLIC}
    assert not (out.parent / "mark").exists()


@needs_root
def test_a_vault_does_not_start_where_the_courier_could_read(python, open_folder, small):
    """Under the courier's account; with files that it can read; in a folder that it can change.

    The rules one by one are looked at in one process, below.
    """
    folder = open_folder / "other"
    folder.mkdir()
    VaultProcess(folder, small.terms, small.keys, small.shuffler, one_account=False, courier=COURIER)

    def start(account=VAULT):
        for path in (folder, *folder.iterdir()):
            os.chown(path, int(VAULT), int(VAULT))
        done = run_as(account, [python, "-m", "apes", "vault", folder / "vault.json"], check=False)
        assert done.returncode == 2, done.stderr
        return done.stderr

    folder.chmod(0o755)
    (folder / "keys.bin").chmod(0o644)
    assert f"vault.json can be read by the courier's account, {COURIER}" in start()
    assert "must run under accounts of their own" in start(COURIER)
    folder.chmod(0o777)
    (folder / "vault.json").chmod(0o600)
    (folder / "keys.bin").chmod(0o600)
    assert "can be replaced by the courier's account" in start()


@needs_root
def test_root_makes_accounts_that_can_do_nothing_else():
    names = [f"apes-test-{os.getpid()}-{kind}" for kind in "vc"]
    try:
        made = DeviceAccounts.made(*names)
        again = DeviceAccounts.made(*names)
        assert made == again
        for name in names:
            entry = pwd.getpwnam(name)
            assert entry.pw_uid not in (0, os.getuid())
            assert entry.pw_shell == "/usr/sbin/nologin"
            assert not Path(entry.pw_dir).exists()
    finally:
        for name in names:
            subprocess.run(["userdel", name], check=False, capture_output=True)


@pytest.mark.unit
@needs_root
def test_nobody_can_go_in_while_a_device_is_given_away(tmp_path_factory, monkeypatch):
    """Otherwise an account that was taken over could put links in the way, and would be given files of root's."""
    folder = tmp_path_factory.mktemp("given") / "device"
    folder.mkdir(mode=0o700)
    for name in ("vault", "courier"):
        (folder / name).mkdir()
        (folder / name / "file").write_text("")
    for step in list(folder.parents)[:-1]:
        if step != Path("/tmp"):
            step.chmod(0o755)
    both, modes, give = DeviceAccounts(Account.find(VAULT), Account.find(COURIER)), [], os.chown

    def chown(path, *whom, **how):
        modes.append(folder.stat().st_mode & 0o777)
        give(path, *whom, **how)

    monkeypatch.setattr(os, "chown", chown)
    both.take_over(folder)
    assert set(modes) == {0o700}
    assert len(modes) == 5
    assert folder.stat().st_mode & 0o777 == 0o755
    parts = {name: (folder / name).stat() for name in ("vault", "courier", "socket")}
    assert {
        name: (str(found.st_uid), str(found.st_gid), stat.S_IMODE(found.st_mode)) for name, found in parts.items()
    } == {"vault": (VAULT, VAULT, 0o700), "courier": (COURIER, COURIER, 0o700), "socket": (VAULT, COURIER, 0o2750)}
    # Who went in while it was open may still be there.
    with pytest.raises(DataError, match="must be root's alone while its parts are given away"):
        both.take_over(folder)


# Run by whoever took over the courier: goes into a device that root is about to make, as soon as there is one.
LURKER = """
import os, sys
print("here", flush=True)
while os.getppid() == int(sys.argv[2]):
    try:
        os.chdir(sys.argv[1])
        sys.exit("inside")
    except OSError:
        pass
"""


@pytest.fixture(scope="module")
def invited(open_folder):
    """An invitation, and rows of one user to join with, with accounts apart."""
    options = ["--users", 2, "--rounds", 1, "--nodes", 1, "--smallest-cohort", 1, "--levels", 16]
    options += ["--smallest-budget", 0.5, "--largest-budget", 2, "--budgets", "constant:1", *PAPERS_INVITED]
    servers = ["--shuffler", "127.0.0.1:7001", "--superlink", "127.0.0.1:7002"]
    code, _, errors = apes("federation", "invite", open_folder / "inviting", *options, *servers)
    assert code == 0, errors
    rows = {"features": np.zeros((1, 784), np.float32), "labels": np.zeros(1, np.uint8), "offsets": np.arange(2)}
    np.savez(open_folder / "one.npz", **rows, budgets=np.ones(1))
    given = ["--yes", "--invitation", open_folder / "inviting" / "invitation", "--data", open_folder / "one.npz"]
    return [*given, "--vault-account", VAULT, "--courier-account", COURIER]


@needs_root
@pytest.mark.parametrize("name", ["vault", "courier"])
def test_nobody_has_gone_in_before_a_device_is_given_away(python, open_folder, invited, name):
    """A process that went into the folder while it was open could change its content after it was closed."""
    home = open_folder / f"lurked-{name}"
    place = home.with_name(f".{home.name}.part") / name
    command = [*as_whom(COURIER), python, "-c", LURKER, place, str(os.getpid())]
    lurker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")
    try:
        assert lurker.stdout.readline() == "here\n"
        code, _, errors = apes("federation", "join", home, *invited)
        assert code == 0, errors
        assert lurker.poll() is None, lurker.stderr.read()
    finally:
        lurker.kill()
        lurker.communicate()
    assert home.stat().st_mode & 0o777 == 0o755


@needs_root
def test_a_device_is_not_made_in_a_folder_that_somebody_else_put_there(open_folder, invited, monkeypatch):
    """In a folder like /tmp, root would fill a stranger's folder, and give away what that stranger's links lead to."""
    crowd = open_folder / "crowd"
    crowd.mkdir()
    crowd.chmod(0o1777)
    part, remove = crowd / ".device.part", shutil.rmtree

    def remove_and_come_again(path, **how):
        """Put a folder of one's own in the place of the one that was removed, at once."""
        remove(path, **how)
        part.mkdir()
        os.chown(part, int(COURIER), int(COURIER))

    monkeypatch.setattr(shutil, "rmtree", remove_and_come_again)
    code, _, errors = apes("federation", "join", crowd / "device", *invited)
    assert code == 2
    assert "is there already: somebody else is at work here; choose a folder elsewhere" in errors
    assert not list(part.iterdir())
    assert not (crowd / "device").exists()


@pytest.mark.unit
@needs_root
def test_a_folder_that_an_account_can_change_is_no_place_for_a_device(tmp_path_factory):
    folder = tmp_path_factory.mktemp("open") / "device"
    folder.mkdir()
    for step in list(folder.parents)[:-1]:
        if step != Path("/tmp"):
            step.chmod(0o755)
    os.chown(folder.parent, int(COURIER), int(COURIER))
    with pytest.raises(DataError, match=f"can be changed by {COURIER}; choose a folder elsewhere"):
        DeviceAccounts(Account.find(VAULT), Account.find(COURIER)).take_over(folder)


@needs_root
def test_a_vault_started_as_root_by_mistake_makes_nothing(device):
    done = subprocess.run(
        [sys.executable, "-m", "apes", "vault", device / "vault" / "vault.json"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert f"belongs to account number {VAULT}: start the vault under it, with start-vault.sh" in done.stderr


@needs_root
def test_who_joins_without_root_is_told_what_to_do(python, open_folder):
    # Which are not there: the device's own are not readable to a stranger.
    mine = ["--invitation", open_folder / "nothing", "--data", open_folder / "nothing.npz"]
    done = run_as(STRANGER, [python, "-m", "apes", "federation", "join", "/tmp/apes-never", *mine], check=False)
    assert done.returncode == 2
    assert "join as root (sudo)" in done.stderr
    assert "--one-account" in done.stderr
    assert not Path("/tmp/apes-never").exists()


@pytest.mark.unit
def test_accounts_must_be_two():
    one, root = Account("v", 5, 5, frozenset([5])), Account("root", 0, 0, frozenset([0]))
    for pair in ((one, one), (one, root), (root, one)):
        with pytest.raises(ParameterError, match="must be two, neither of them root"):
            DeviceAccounts(*pair)


@pytest.mark.unit
def test_what_is_closed_by_a_folder_on_the_way_is_out_of_reach(tmp_path):
    """So is a file that does not exist yet. What is open, or belongs to the courier, is not."""
    other = Account("c", os.getuid() + 1, os.getgid() + 1, frozenset([os.getgid() + 1]))
    closed, free = tmp_path / "closed", Path(tempfile.mkdtemp(dir="/tmp"))
    closed.mkdir(mode=0o700)
    (closed / "file").write_text("x")
    (closed / "file").chmod(0o644)
    check_apart(other, [closed / "file", closed / "not-yet"])
    free.chmod(0o755)
    (free / "file").write_text("x")
    try:
        for path, mode in ((free / "file", 0o640), (free / "file", 0o604), (free / "not-yet", None)):
            if mode is not None:
                path.chmod(mode)
            with pytest.raises(DataError, match="can be read by the courier's account"):
                check_apart(other, [path])
        (free / "file").chmod(0o600)
        check_apart(other, [free / "file"])
    finally:
        shutil.rmtree(free)
    if os.getuid() != 0:
        mine = Account("me", os.getuid(), os.getgid(), frozenset([os.getgid()]))
        with pytest.raises(DataError, match="accounts of their own"):
            check_apart(mine, [closed / "file"])


@pytest.mark.unit
@pytest.mark.parametrize("name", ["terms", "data", "keys", "ledger", "witness"])
def test_every_file_that_a_vault_relies_on_is_out_of_the_couriers_reach(tmp_path, name):
    """A witness that the courier could put back, beside an old ledger, would let budgets be spent again."""
    vault, outside = tmp_path / "vault", tmp_path / "courier"
    for folder, mode in ((vault, 0o700), (outside, 0o777)):
        folder.mkdir()
        folder.chmod(mode)
    files = {name: f"../courier/{name}"}
    keys = {"runs": ("0" * 32,), "shuffler_key": "0" * 64, "analyzer_key": "0" * 64, "ledger_id": "0" * 32}
    write_settings(vault / "vault.json", VaultSettings(**keys, **files, courier=str(os.getuid() + 1)))
    with pytest.raises(DataError, match=f"{name} can be (read|replaced) by the courier's account"):
        open_vault(vault / "vault.json")


def another(*groups):
    """The courier's account: not this process's, in these groups."""
    return Account("c", os.getuid() + 1, os.getgid() + 1, frozenset([os.getgid() + 1, *groups]))


@pytest.mark.unit
def test_what_the_courier_can_put_in_its_place_is_refused(tmp_path):
    """Nobody reads what a closed folder holds; but whoever writes a folder on the way can put another one there."""
    way, group = tmp_path / "way", os.getgid()
    closed = way / "closed"
    closed.mkdir(parents=True, mode=0o700)
    (closed / "file").write_text("x")
    for mode, courier, is_open in (
        (0o755, another(), False),
        (0o757, another(), True),
        (0o775, another(), False),
        (0o775, another(group), True),
        # As in /tmp, only their owners move files.
        (0o1777, another(group), False),
    ):
        way.chmod(mode)
        for path in (closed / "file", closed / "not-yet"):
            if is_open:
                with pytest.raises(DataError, match="can be replaced by the courier's account, c: it writes"):
                    check_apart(courier, [path])
            else:
                check_apart(courier, [path])


@pytest.mark.unit
def test_neither_the_vaults_own_account_nor_root_is_a_courier(tmp_path, monkeypatch):
    """Root reads everything, whatever a folder's permissions are."""
    monkeypatch.setattr(os, "geteuid", lambda: 7)
    for number in (7, 0):
        with pytest.raises(DataError, match="vault and courier must run under accounts of their own"):
            check_apart(Account("c", number, number, frozenset([number])), [tmp_path / "file"])
    check_apart(Account("c", 8, 8, frozenset([8])), [])


@pytest.mark.unit
def test_a_vault_opens_only_where_the_courier_reads_nothing(small, tmp_path, monkeypatch):
    """Each file that the vault relies on is checked, and so is its owner."""
    vault = LocalVault(tmp_path / "v", small.terms, small.keys, small.shuffler, one_account=False, courier=COURIER)
    vault.folder.chmod(0o755)
    place = vault.folder / "vault.json"

    def is_closed(path, courier):
        """Whether the file itself is closed: the folder of a test always is, which would hide the answer."""
        return path.is_file() and not path.stat().st_mode & 0o077

    monkeypatch.setattr(accounts, "_is_closed", is_closed)
    place.chmod(0o600)
    for name in ("data.npz", "keys.bin", "vault.json"):
        (vault.folder / name).chmod(0o640)
        with pytest.raises(DataError, match=f"{name} can be read by the courier's account, {COURIER}"):
            open_vault(place)
        (vault.folder / name).chmod(0o600)
    # It is not there yet, and will be in a folder that is not closed.
    with pytest.raises(DataError, match=f"ledger.sqlite can be read by the courier's account, {COURIER}"):
        open_vault(place)
    monkeypatch.undo()
    vault.folder.chmod(0o700)
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: int(VAULT))
        with pytest.raises(DataError, match=r"belongs to account number \d+: start the vault under it"):
            open_vault(place)
    vault.start()
    assert vault.served._courier == int(COURIER)
    assert vault.events()[0].items() >= {"event": "vault", "accounts": "apart", "courier": COURIER}.items()
    vault.kill()


@pytest.mark.unit
def test_a_vault_needs_a_courier_that_there_is(small, tmp_path):
    for number, (courier, said) in enumerate(
        [(None, "names no account for the courier"), ("nobody-of-this-name", "there is no account")]
    ):
        folder = tmp_path / str(number)
        LocalVault(folder, small.terms, small.keys, small.shuffler, one_account=False, courier=courier)
        with pytest.raises(DataError if courier is None else ParameterError, match=said):
            open_vault(folder / "vault.json")


def test_a_trial_says_in_its_first_line_that_it_is_one(small, tmp_path):
    vault = VaultProcess(tmp_path, small.terms, small.keys, small.shuffler)
    vault.start()
    try:
        # It listens before it has said so.
        first = until(lambda: vault.log.read_text().endswith("\n") and vault.events())[0]
        assert (first["event"], first["accounts"]) == ("vault", "one")
        assert "trial" in first["message"]
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(vault.socket))
        assert stat.S_IMODE(vault.socket.stat().st_mode) == 0o600
    finally:
        vault.kill()
