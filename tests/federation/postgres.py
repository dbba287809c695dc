"""A real PostgreSQL server for the tests: Debian's package, in a temporary folder, on a Unix socket alone."""

import contextlib
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
_ACCOUNTS = ("postgres", "nobody")


def why_not():
    """Why there is no server here; None if there can be one."""
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not here: pip install 'apes-fl[postgres]'"
    if not PROGRAMS:
        return "PostgreSQL is not here: apt-get install postgresql"
    if os.getuid() == 0 and account() is None:
        return "PostgreSQL does not run as root, and there is no other account"
    return None


def account():
    """An account that the server runs as, where we are root; it refuses to be root."""
    names = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in _ACCOUNTS if name in names), None)


class Server:
    """A server with a database ``ledger``, which may be stopped, killed and started again."""

    def __init__(self, folder):
        self.folder, self._bin = folder, PROGRAMS[-1].parent
        self.address = f"postgresql://tests@/ledger?host={folder}"
        self._run("initdb", "-D", folder / "data", "-U", "tests", "-A", "trust", "-E", "UTF8", "--no-locale")
        options = f"\nlisten_addresses = ''\nunix_socket_directories = '{folder}'\nmax_connections = 20\n"
        with (folder / "data" / "postgresql.conf").open("a") as file:
            file.write(options)
        self.start()
        self._run("createdb", "-h", folder, "-U", "tests", "ledger")

    def start(self):
        self._run("pg_ctl", "-D", self.folder / "data", "-l", self.folder / "log", "-w", "start")

    def stop(self, how="fast"):
        """``immediate`` is a crash: what was not on the disk is lost."""
        self._run("pg_ctl", "-D", self.folder / "data", "-m", how, "-w", "stop")

    def rows(self, query, *values):
        import psycopg

        with psycopg.connect(self.address) as database:
            return database.execute(query, values).fetchall()

    def set(self, name, value):
        import psycopg

        with psycopg.connect(self.address, autocommit=True) as database:
            database.execute(f"alter system set {name} = {value}")
            database.execute("select pg_reload_conf()")

    def _run(self, program, *arguments):
        who = {"user": account(), "group": pwd.getpwnam(account()).pw_gid} if os.getuid() == 0 else {}
        command = [self._bin / program, *map(str, arguments)]
        # The server goes on after the program that starts it: its output must not be waited for.
        with (self.folder / "output").open("ab") as output:
            done = subprocess.run(command, stdout=output, stderr=output, cwd=self.folder, **who)
        assert done.returncode == 0, (self.folder / "output").read_text()


@contextlib.contextmanager
def server():
    """A server; skips the test, with the reason, where there can be none."""
    if (reason := why_not()) is not None:
        pytest.skip(reason)
    # Not pytest's own folder, which other accounts cannot enter.
    folder = Path(tempfile.mkdtemp(prefix="apes-pg-"))
    try:
        if os.getuid() == 0:
            shutil.chown(folder, account())
        started = Server(folder)
        try:
            yield started
        finally:
            started.stop("immediate")
    finally:
        shutil.rmtree(folder, ignore_errors=True)
