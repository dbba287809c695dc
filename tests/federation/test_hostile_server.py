"""A server that ships a hostile courier, and a SuperNode that nobody registered: real Flower, real vaults."""

import json
import pickle
import sqlite3
import subprocess
import time

import pytest

from apes import Plan, Simulation
from apes.federation.keys import node_key, write_secret
from apes.federation.subject import Subject
from apes.federation.terms import FederationTerms
from apes.federation.trial.layout import free_ports
from apes.federation.trial.processes import environment
from apes.federation.trial.scripts import write_device_scripts
from apes.federation.trial.setup import set_up
from apes.federation.trial.trial import Trial

# One worker builds the module's fixture, once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hostile_server")]
DEVICES, ROUNDS = 2, 2

COURIER = """
import hashlib, os, socket, struct
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def ask(path, header, weights):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall(struct.pack("<I", len(header)) + header + struct.pack("<I", len(weights)) + weights)
        answer = b""
        while piece := connection.recv(1 << 20):
            answer += piece
    return answer


@app.train()
def steal(message: Message, context: Context) -> Message:
    asked = dict(message.content.config_records["ask"])
    path, run, terms = str(context.node_config["vault"]), bytes.fromhex(asked["run"]), bytes.fromhex(asked["terms"])
    zeros, nines = (struct.pack("<f", value) * asked["dimensions"] for value in (0.0, 9.0))

    def announced(number, weights, run=run, terms=terms):
        # All but the analyzer's signature.
        digest = hashlib.sha256(weights).digest()
        return struct.pack("<4sH16sI32s32s32s", b"APEA", 1, run, number, terms, digest, bytes(32)) + os.urandom(64)

    loot = {
        "first, with weights of 9": ask(path, announced(1, nines), nines),
        "first": ask(path, announced(1, zeros), zeros),
        "last round": ask(path, announced(asked["rounds"], zeros), zeros),
        "other terms": ask(path, announced(1, zeros, terms=bytes(32)), zeros),
        "other run": ask(path, announced(1, zeros, run=bytes(16)), zeros),
        "the words of before": ask(path, b'{"version": 2, "round": 1}', zeros),
        "raw data": ask(path, b"data.npz", zeros),
        "no header": ask(path, b"", zeros),
    }
    return Message(RecordDict({"loot": ConfigRecord(loot)}), reply_to=message)
"""

SERVER = """
import pickle, time
from pathlib import Path
from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = dict(context.run_config)
    ask = ConfigRecord({name: config[name] for name in ("run", "terms", "dimensions", "rounds")})
    asked = [Message(RecordDict({"ask": ask}), node, MessageType.TRAIN) for node in grid.get_node_ids()]
    waiting, loot = set(grid.push_messages(asked)), []
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            waiting.discard(reply.metadata.reply_to_message_id)
            loot.append(dict(reply.content.config_records["loot"]))
        time.sleep(0.1)
    part = Path(config["out"] + ".part")
    part.write_bytes(pickle.dumps(loot))
    part.rename(config["out"])
"""

PROJECT = """
[project]
name = "hostile"
version = "1.0.0"
description = "asks for what it must not get"
license = "Apache-2.0"
[tool.flwr.app]
publisher = "hostile"
[tool.flwr.app.components]
serverapp = "hostile.server:app"
clientapp = "hostile.courier:app"
[tool.flwr.app.config]
run = ""
terms = ""
dimensions = 0
rounds = 0
out = ""
"""


@pytest.fixture(scope="module")
def trial(small_digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("s") / "two"
    plan, people = Plan(rounds=ROUNDS, levels=16), Simulation(users=DEVICES, budgets="grid:0.5:1", features="pixels")
    set_up(folder, plan, Subject.of_images(people, small_digits), people.people(small_digits), DEVICES, colluding=0)
    trial = Trial(folder)
    try:
        trial.start(["shuffler", "superlink", *trial.vaults])
        trial.register_nodes()
        trial.start(trial.nodes)
        yield trial
    finally:
        trial.down()


def wait_for(condition, seconds=180):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


@pytest.fixture(scope="module")
def loot(trial, tmp_path_factory):
    """What the hostile courier brought back from each vault."""
    app = tmp_path_factory.mktemp("hostile")
    (app / "hostile").mkdir()
    for name, text in {"__init__.py": "", "courier.py": COURIER, "server.py": SERVER}.items():
        (app / "hostile" / name).write_text(text)
    (app / "pyproject.toml").write_text(PROJECT)
    terms, out = FederationTerms.read(trial.layout.analyzer / "terms.json"), app / "loot.pickle"
    config = {"run": trial.federation.run, "terms": terms.digest, "dimensions": terms.dimensions, "out": str(out)}
    config["rounds"] = ROUNDS
    settings = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    assert trial.flwr("run", str(app), "here", "-c", settings)["success"]
    wait_for(out.exists)
    return pickle.loads(out.read_bytes())


def test_a_strangers_courier_gets_words_only(loot):
    """Before, whoever asked first had a report on weights of 9 drawn, and asking for the last round ended the run."""
    assert len(loot) == DEVICES
    unsigned = ("first, with weights of 9", "first", "last round", "other terms", "other run")
    rubbish = ("the words of before", "raw data", "no header")
    expected = dict.fromkeys(unsigned, b"\x01announcement") | dict.fromkeys(rubbish, b"\x01request")
    for answers in loot:
        assert answers == expected


def test_an_unregistered_supernode_is_not_let_in(trial, tmp_path):
    private, _ = node_key()
    write_secret(tmp_path / "node.key", private)
    (tmp_path / "authority.pem").write_bytes((trial.layout.analyzer / "authority.pem").read_bytes())
    superlink = f"127.0.0.1:{trial.federation.superlink_port}"
    write_device_scripts(tmp_path, superlink, free_ports(1)[0])
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run(
            [tmp_path / "start-supernode.sh"], env=environment(), stdout=log, stderr=log, timeout=120, check=False
        )
    said = (tmp_path / "log").read_text()
    assert done.returncode != 0
    assert "Failed to activate SuperNode" in said
    assert "SuperNode ID:" not in said


def test_the_honest_run_is_unharmed_and_nothing_was_spent_twice(loot, trial):
    run = trial.submit()
    trial.watch(run, lambda entry: None)
    summary = json.loads(trial.summary.read_text())
    assert summary["participants_by_round"] == [DEVICES] * ROUNDS
    trial.processes.stop(trial.vaults)
    for number in range(1, DEVICES + 1):
        with sqlite3.connect(trial.layout.device(number) / "ledger.sqlite") as ledger:
            assert ledger.execute("select sum(rounds) from spent").fetchone() == (ROUNDS,)
        ledger.close()
