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
from apes.wire.envelope import envelope_size, parse
from apes.wire.frames import FrameReader

# One worker builds the module's fixture, once.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hostile_server")]
DEVICES, ROUNDS = 2, 2

COURIER = """
import json, socket, struct
from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def ask(path, header, weights):
    text = json.dumps(header).encode()
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(path)
        connection.sendall(struct.pack("<I", len(text)) + text + struct.pack("<I", len(weights)) + weights)
        answer = b""
        while piece := connection.recv(1 << 20):
            answer += piece
    return answer


@app.train()
def steal(message: Message, context: Context) -> Message:
    path, honest = str(context.node_config["vault"]), dict(message.content.config_records["round"])
    zeros, ones = bytes(honest.pop("size")), struct.pack("<f", 1.0) * (len(bytes(honest.pop("size4"))) // 4)
    loot = {
        "first": ask(path, honest, zeros),
        "second draw": ask(path, honest, zeros),
        "other weights": ask(path, honest, ones),
        "raw data": ask(path, {**honest, "op": "data"}, zeros),
        "no header": ask(path, {}, zeros),
        "other terms": ask(path, {**honest, "terms": "00" * 32}, zeros),
        "other run": ask(path, {**honest, "run": "00" * 16}, zeros),
        "further round": ask(path, {**honest, "round": 99}, zeros),
        "budget": ask(path, {**honest, "budget": 50.0}, zeros),
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
    header = {"version": 2, "run": config["run"], "round": 1, "terms": config["terms"]}
    size = bytes(4 * int(config["dimensions"]))
    asked = [
        Message(RecordDict({"round": ConfigRecord({**header, "size": size, "size4": size})}), node, MessageType.TRAIN)
        for node in grid.get_node_ids()
    ]
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
out = ""
"""


@pytest.fixture(scope="module")
def trial(small_digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("s") / "two"
    plan, people = Plan(rounds=ROUNDS, levels=16), Simulation(users=DEVICES, budgets="grid:0.5:1", features="pixels")
    set_up(folder, plan, Subject.of_images(people, small_digits), people.people(small_digits), DEVICES)
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
    settings = " ".join(f"{name}={json.dumps(value)}" for name, value in config.items())
    assert trial.flwr("run", str(app), "here", "-c", settings)["success"]
    wait_for(out.exists)
    return pickle.loads(out.read_bytes())


def test_a_hostile_courier_gets_words_only(loot):
    assert len(loot) == DEVICES
    expected = {
        "raw data": b"\x01request",
        "no header": b"\x01request",
        "other terms": b"\x01terms",
        "other run": b"\x01run",
        "further round": b"\x01round",
        "budget": b"\x01request",
    }
    for answers in loot:
        assert {name: answers[name] for name in expected} == expected


def test_a_second_draw_is_the_first_one(loot, trial):
    terms = FederationTerms.read(trial.layout.analyzer / "terms.json")
    for answers in loot:
        assert answers["first"] == answers["second draw"] == answers["other weights"]
        reader = FrameReader(envelope_size(terms.dimensions, terms.levels))
        (sealed,) = list(reader.feed(answers["first"][1:]))
        assert parse(sealed, terms.dimensions, terms.levels).binding.round == 1


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
        with sqlite3.connect(trial.layout.vault(number) / "ledger.sqlite") as ledger:
            assert ledger.execute("select sum(rounds) from spent").fetchone() == (ROUNDS,)
        ledger.close()
