"""A server that ships a hostile app, strangers at its door, nodes that nobody registered: real Flower, real vaults.

With the code of before (SuperNodes, one port for all), the app below ran on every device and read its files, and
anybody who had the invitation could start it. One federation, whose owners installed a model, goes through all of it
and trains at last, though one of its nodes is hostile too. What needs no process is in test_doors.py and test_fleet.py.
"""

import contextlib
import json
import os
import pickle
import select
import socket
import ssl
import subprocess
import threading

import httpx
import psutil
import pytest
from cryptography.hazmat.primitives.asymmetric.ec import SECP384R1, generate_private_key
from cryptography.hazmat.primitives.serialization import load_ssh_private_key
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_to_proto
from flwr.proto.fleet_pb2 import PullMessagesRequest, PushMessagesRequest
from flwr.proto.message_pb2 import ObjectTree, PushObjectRequest
from flwr.supercore.inflatable.inflatable_object import get_object_tree
from flwr.supercore.protobuf.client import ProtobufRequestContext
from flwr.supernode.node_auth_http_interceptor import NodeAuthHttpInterceptor
from local_federation import few_people
from own_models import PACKAGE, forget, write_package
from parties import until

from apes import LogisticRegression, Plan
from apes.federation.courier import COURIER, CourierSettings
from apes.federation.fleet import Fleet, RunOver
from apes.federation.keys import node_key, write_secret
from apes.federation.subject import Subject
from apes.federation.superlink import SUPERLINK, SuperLinkSettings
from apes.federation.trial.processes import environment
from apes.federation.trial.setup import set_up
from apes.federation.trial.trial import Trial
from apes.storage.settings import read_settings, write_settings

pytestmark = pytest.mark.process
# So many honest devices; a third one's node is somebody else's.
DEVICES, ROUNDS = 2, 2

# Wherever it runs, it says so and takes what it finds.
CLIENT = """
import pathlib
from flwr.clientapp import ClientApp
app = ClientApp()
MARK = pathlib.Path("{mark}")
MARK.write_text("imported")


@app.train()
def steal(message, context):
    MARK.write_text(repr([str(path) for path in pathlib.Path("{folder}").rglob("*")]))
    raise RuntimeError


@app.evaluate()
def steal_too(message, context):
    return steal(message, context)
"""

# Messages of all kinds, then one that is as it should be, but for the header.
SERVER = """
import pickle, time
from pathlib import Path
from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid, ServerApp

app = ServerApp()
WEIGHTS = ArrayRecord({"weights": Array("float32", (3,), "raw", bytes(12))})
RUBBISH = [
    RecordDict({}),
    RecordDict({"ask": ConfigRecord({"header": "a text"}), "model": WEIGHTS}),
    RecordDict({"ask": ConfigRecord({"header": b"{}"})}),
    RecordDict({"ask": WEIGHTS, "model": ConfigRecord({"header": b"{}"})}),
    RecordDict({"round": ConfigRecord({"version": 2, "round": 1}), "model": WEIGHTS}),
    RecordDict({"ask": ConfigRecord({"header": 100_000 * b"x"}), "model": WEIGHTS}),
]
LAST = RecordDict({"ask": ConfigRecord({"header": b'{"op": "data"}'}), "model": WEIGHTS})


@app.main()
def main(grid: Grid, context: Context) -> None:
    config, loot = dict(context.run_config), {}
    nodes = list(grid.get_node_ids())
    for content in (*RUBBISH, LAST):
        for kind in (MessageType.EVALUATE, MessageType.TRAIN):
            grid.push_messages([Message(content, node, kind) for node in nodes])
    asked = grid.push_messages([Message(LAST, node, MessageType.TRAIN) for node in nodes])
    waiting = dict(zip(asked, nodes))
    while waiting:
        for reply in grid.pull_messages(list(waiting)):
            node = waiting.pop(reply.metadata.reply_to_message_id)
            loot[node] = {name: dict(record) for name, record in reply.content.items()}
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
clientapp = "hostile.client:app"
[tool.flwr.app.config]
out = ""
"""


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """Parties started by their scripts, with a model that everybody installed."""
    site, folder = tmp_path_factory.mktemp("site"), tmp_path_factory.mktemp("s") / "two"
    write_package(site, "owners_models", PACKAGE)
    people = few_people(DEVICES + 1)
    plan, subject = Plan(rounds=ROUNDS, levels=16), Subject(LogisticRegression(4, 3), people.test, DEVICES + 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(site)
        patch.setenv("PYTHONPATH", os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep))
        limits = {
            "colluding": 0,
            "smallest_cohort": DEVICES,
            "model": "owners_models:make",
            "allow_no_protection": True,
        }
        set_up(folder, plan, subject, people, DEVICES + 1, **limits)
        settings = folder / "analyzer" / "analyzer.json"
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"nodes": DEVICES}))
        trial = Trial(folder)
        trial.vaults, trial.nodes = trial.vaults[:DEVICES], trial.nodes[:DEVICES]
        try:
            trial.start(["shuffler", "superlink", *trial.vaults])
            subprocess.run([folder / "superlink" / "register.sh"], env=environment(), capture_output=True, check=True)
            trial.start(trial.nodes)
            yield trial
        finally:
            trial.down()
    forget("owners_models")


@pytest.fixture(scope="module")
def hostile(trial, tmp_path_factory):
    """The app, and where it would leave its mark."""
    app = tmp_path_factory.mktemp("hostile")
    (app / "hostile").mkdir()
    client = CLIENT.format(mark=app / "mark", folder=trial.layout.folder)
    for name, text in {"__init__.py": "", "client.py": client, "server.py": SERVER}.items():
        (app / "hostile" / name).write_text(text)
    (app / "pyproject.toml").write_text(PROJECT)
    return app


def test_the_mark_is_left_where_the_code_runs(hostile, tmp_path):
    """The search would find it: imported here, it marks."""
    code = (hostile / "hostile" / "client.py").read_text().replace(str(hostile / "mark"), str(tmp_path / "mark"))
    exec(compile(code, "client.py", "exec"), {})
    assert (tmp_path / "mark").read_text() == "imported"


def test_nothing_that_the_organiser_ships_runs_on_a_node(trial, hostile):
    """Even if it comes by the organiser's own door: couriers go on, run nothing, and carry words."""
    out, before = hostile / "loot.pickle", trial.processes.all()
    assert trial.flwr("run", str(hostile), "here", "-c", f"out={json.dumps(str(out))}")["success"]
    until(out.exists)
    loot = pickle.loads(out.read_bytes())
    assert list(loot.values()) == DEVICES * [{"refused": {"reason": "request"}}]
    assert not (hostile / "mark").exists()
    assert {name: trial.processes.all()[name] for name in trial.nodes} == {name: before[name] for name in trial.nodes}
    for number in range(1, DEVICES + 1):
        # Flower's apps would be fetched to here.
        assert not list(trial.layout.device(number).rglob("*.fab"))
        assert not list(trial.layout.device(number).rglob("flwr"))


def test_who_has_the_invitation_cannot_start_a_run(trial, hostile, tmp_path):
    """Neither with Flower's command nor with any other request than those that nodes need."""
    address = f"127.0.0.1:{trial.federation.superlink_port}"
    authority = trial.layout.invitation / "authority.pem"
    (tmp_path / "flwr").mkdir()
    config = f'[superlink.there]\naddress = "{address}"\nroot-certificates = "{authority}"\n'
    (tmp_path / "flwr" / "config.toml").write_text(config)
    out = tmp_path / "loot.pickle"
    done = subprocess.run(
        ["flwr", "run", hostile, "there", "-c", f"out={json.dumps(str(out))}"],
        env={**environment(), "FLWR_HOME": str(tmp_path / "flwr"), "FLWR_TELEMETRY_ENABLED": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode != 0, done.stdout
    assert "404" in done.stdout + done.stderr
    assert not out.exists()
    trusted = ssl.create_default_context(cafile=str(authority))
    for path in ("control/start-run", "control/register-node", "runtime/acquire-task", "runtime/pull-messages"):
        url = f"https://{address}/v1/{path}"
        assert httpx.post(url, verify=trusted, trust_env=False).text == "not here\n", path
        local = read_settings(trial.layout.superlink / SUPERLINK, SuperLinkSettings).control
        url = f"https://{local}/v1/{path}"
        assert httpx.post(url, verify=trusted, trust_env=False).text != "not here\n", path


def shown(key):
    """What a node's requests are signed with."""
    context = ProtobufRequestContext("", PullMessagesRequest(), httpx.Request("POST", "https://127.0.0.1"))
    NodeAuthHttpInterceptor(key, key.public_key()).intercept(context, lambda context: httpx.Response(200))
    return {name: value for name, value in context.request.headers.items() if name.startswith("flwr-")}


def sent(trial, headers, megabytes=300):
    """The answer's status to as much of a body of so many megabytes as is taken."""
    trusted = ssl.create_default_context(cafile=str(trial.layout.invitation / "authority.pem"))
    address = "127.0.0.1", trial.federation.superlink_port
    head = {"Host": "127.0.0.1", "Content-Type": "application/protobuf", **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    piece = b"100000\r\n" + bytes(1 << 20) + b"\r\n" if "Transfer-Encoding" in head else bytes(1 << 20)
    with trusted.wrap_socket(socket.create_connection(address), server_hostname="127.0.0.1") as connection:
        connection.settimeout(60)
        connection.sendall(f"POST /v1/fleet/pull-messages HTTP/1.1\r\n{lines}\r\n".encode())
        for _ in range(megabytes):
            # Who was refused is hung up on.
            with contextlib.suppress(OSError):
                connection.sendall(piece)
            if select.select([connection], [], [], 0)[0]:
                return int(connection.recv(1000).split()[1])
        return 0


def test_a_stranger_does_not_fill_the_superlinks_memory(trial):
    """Flower reads a request to its end before it asks who sent it: 300 MB of a stranger's were 300 MB there."""
    superlink, most = psutil.Process(trial.processes.all()["superlink"].pid), {"Content-Length": 300 << 20}
    before, stranger = superlink.memory_info().rss, generate_private_key(SECP384R1())
    member = load_ssh_private_key((trial.layout.device(1) / "courier" / "node.key").read_bytes(), None)
    forged = shown(member) | {"flwr-signature": shown(stranger)["flwr-signature"]}
    assert sent(trial, {"Transfer-Encoding": "chunked"}) == 411
    assert sent(trial, {"Transfer-Encoding": "chunked", **shown(member)}) == 411
    assert sent(trial, most) == 413
    assert sent(trial, most | shown(stranger)) == 413
    for headers in (
        {},
        shown(stranger),
        forged,
        forged | {"flwr-signature": "?"},
        forged | {"flwr-public-key": "YQ=="},
    ):
        assert sent(trial, {"Content-Length": 200 << 20} | headers) == 413, headers
    assert superlink.memory_info().rss < before + (50 << 20)
    # A node's own is read: it is no message of the kind that it says it is.
    assert sent(trial, {"Content-Length": 1 << 20} | shown(member), 1) in (0, 400)
    assert sent(trial, {"Content-Length": 300 << 20} | shown(member)) == 413


def test_strangers_do_not_fill_the_superlinks_log(trial):
    """Each of their requests was a line, with what they had asked for, and each that Flower refused was another."""
    log = trial.processes.log("superlink")
    before = len(log.read_text().splitlines())
    trusted = ssl.create_default_context(cafile=str(trial.layout.invitation / "authority.pem"))
    address = f"https://127.0.0.1:{trial.federation.superlink_port}"
    form, stranger = {"content-type": "application/protobuf"}, shown(generate_private_key(SECP384R1()))
    requests = {
        "nowhere": ("/what-they-asked-for", {}, b"", 404),
        "no form": ("/v1/fleet/pull-messages", {}, b"", 415),
        "no message": ("/v1/fleet/pull-messages", form, b"\xff", 400),
        "nobody": ("/v1/fleet/pull-messages", form, b"", 401),
        "another": ("/v1/fleet/pull-messages", form | stranger, b"", 401),
        "unknown": ("/v1/fleet/none", form, b"", 404),
    }
    with httpx.Client(verify=trusted, trust_env=False, base_url=address) as client:
        for path, headers, body, status in requests.values():
            for _ in range(50):
                assert client.post(path, content=body, headers=headers).status_code == status
    lines = log.read_text().splitlines()[before:]
    assert "what-they-asked-for" not in "".join(lines)
    # Couriers come and go meanwhile.
    assert len(lines) < 60


def test_a_courier_that_nobody_registered_is_told_in_one_line(trial, tmp_path):
    private, _ = node_key()
    write_secret(tmp_path / "node.key", private)
    (tmp_path / "authority.pem").write_bytes((trial.layout.analyzer / "authority.pem").read_bytes())
    write_settings(tmp_path / COURIER, CourierSettings(f"127.0.0.1:{trial.federation.superlink_port}"))
    done = courier(tmp_path)
    assert done.returncode == 2
    lines = done.stderr.splitlines()
    assert "its key is not registered there" in lines[-1]
    assert lines[-1].startswith("apes: ")
    assert "Traceback" not in done.stderr


def courier(folder):
    command = ["apes", "courier", folder / COURIER]
    return subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=600, check=False)


def test_a_second_courier_with_the_same_folder_is_refused(trial):
    done = courier(trial.layout.device(1) / "courier")
    assert done.returncode == 2
    assert "courier.json is in use by another process" in done.stderr


def test_a_courier_killed_and_started_at_once_is_let_in(trial):
    """Flower alone refuses it until its heartbeat lapses."""
    name = trial.nodes[0]
    trial.processes.all()[name].kill()
    until(lambda: name not in trial.processes.all())
    trial.start([name])
    assert json.loads(trial.processes.log(name).read_text().splitlines()[-1])["event"] == "courier"


def test_a_courier_asked_to_stop_signs_off(trial):
    name = trial.nodes[0]
    trial.processes.stop([name])
    assert json.loads(trial.processes.log(name).read_text().splitlines()[-1])["event"] == "courier"
    # Without a number to sign off with: there is nobody in the way.
    os.unlink(trial.layout.device(1) / "courier" / "node.json")
    trial.start([name])


class HostileNode(threading.Thread):
    """A node with a registered key that answers the first message with less than it announces, others with none."""

    def __init__(self, trial, number):
        super().__init__(daemon=True)
        folder = trial.layout.device(number) / "courier"
        key = load_ssh_private_key((folder / "node.key").read_bytes(), None)
        address = f"127.0.0.1:{trial.federation.superlink_port}"
        self.fleet = Fleet(address, folder / "authority.pem", key, 1 << 24)
        self.fleet.sign_on()
        self.answered, self.ended = 0, threading.Event()

    def run(self):
        while not self.ended.wait(0.1):
            with contextlib.suppress(RunOver):
                found = self.fleet.receive()
                if found is not None:
                    (send_no_message if self.answered else only_announce)(self.fleet, found[0])
                    self.answered += 1

    def end(self):
        self.ended.set()
        self.join()
        self.fleet.sign_off()


def announce(fleet, reply, tree):
    """Announce a reply that consists of the objects of this tree."""
    reply.metadata.__dict__["_message_id"] = tree.object_id
    head = message_to_proto(remove_content_from_message(reply))
    asked = PushMessagesRequest(node=fleet._node, messages_list=[head], message_object_trees=[tree])
    return fleet._client.PushMessages(asked)


def only_announce(fleet, head):
    sealed = ArrayRecord({"sealed": Array("uint8", (3,), "raw", b"abc")})
    reply = Message(RecordDict({"reports": sealed}), reply_to=head)
    announce(fleet, reply, get_object_tree(reply))


def send_no_message(fleet, head):
    record = ConfigRecord({"no": "message"})
    answer = announce(fleet, Message(RecordDict({}), reply_to=head), ObjectTree(object_id=record.object_id))
    piece = PushObjectRequest(
        node=fleet._node,
        run_id=head.metadata.run_id,
        object_id=record.object_id,
        object_content=record.deflate(),
        session_id=answer.session_id,
    )
    assert fleet._client.PushObject(piece).stored


def test_the_honest_run_is_unharmed_by_a_hostile_node(trial):
    """Before, the first such answer blocked everybody for three minutes, and the second ended the analyzer."""
    node, start = HostileNode(trial, DEVICES + 1), trial.layout.analyzer / "start.sh"
    node.start()
    try:
        done = subprocess.run([start], env=environment(), capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        until(trial.summary.exists)
    finally:
        node.end()
    summary = json.loads(trial.summary.read_text())
    assert summary["participants_by_round"] == [DEVICES] * ROUNDS
    # It was asked and had its say.
    assert node.answered
