"""A whole federation in this process, in the folders that `apes federation init` makes; it can be killed at any step.

Vaults are asked by what a courier makes of Flower's messages, the shuffler is asked over HTTP without a network, and
the analyzer relays over a grid that is made up here. Nothing else is: no party knows that the others are no processes.

A test of what a kill leaves behind names the step of the analyzer, and starts it again::

    federation.kill_at("before the checkpoint is saved", round=2)
    with pytest.raises(Killed):
        federation.train()
    federation.train()
"""

import json
import re
import shutil
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import httpx
import numpy as np
from flwr.app.message import remove_content_from_message
from flwr.common.serde import message_from_proto, message_to_proto
from flwr.proto.message_pb2 import PullObjectResponse
from flwr.proto.node_pb2 import Node
from flwr.proto.runtime_pb2 import PullAppMessagesResponse
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects, get_object_tree
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents
from flwr.supercore.task_identity import TaskIdentity
from local_shuffler import LocalShuffler
from local_vault import Crash, LocalVault
from parties import Party, VaultProcess
from trials import looked_at

from apes import Examples, LogisticRegression, Plan
from apes.federation import courier
from apes.federation.analyzer import AnalyzerRun
from apes.federation.relay import Relay
from apes.federation.subject import Subject
from apes.federation.trial import layout as ports
from apes.federation.trial import setup
from apes.federation.trial.layout import Layout
from apes.federation.vault import vault as vaults
from apes.people.people import People
from apes.storage import files
from apes.storage.settings import read_token
from apes.wire.frames import framed

# What the analyzer does in a round whose cohort is known already, and at its end, in order; there is a kill before and
# after each.
ROUND = (
    "the release is asked for",
    "the round is announced",
    "vault 1 answers",
    "vault 2 answers",
    "vault 3 answers",
    "the batch is written",
    "the batch is shuffled",
    "the receipt is kept",
    "the log is written",
    "the checkpoint is saved",
    "the metrics are written",
)
BEGINNING = ("the configuration is written", "the roster is asked for", "the roster is kept", "the budgets are kept")
END = ("the model is written", "the certificate is written", "the report is written", "the summary is written")
STEPS = (*ROUND, *END)
POINTS = tuple(f"{when} {step}" for step in STEPS for when in ("before", "after"))
_FILES = {
    ".sealed": "the batch is written",
    "config.json": "the configuration is written",
    "roster.bin": "the roster is kept",
    "receipts.jsonl": "the receipt is kept",
    "exposures.jsonl": "the log is written",
    "checkpoint.npz": "the checkpoint is saved",
    "metrics.jsonl": "the metrics are written",
    "model.npz": "the model is written",
    "certificate.json": "the certificate is written",
    "report.html": "the report is written",
    "summary.json": "the summary is written",
    ".npy": "the budgets are kept",
}
_REQUESTS = {
    "roster": "the roster is asked for",
    "GET": "the release is asked for",
    "PUT": "the round is announced",
    "POST": "the batch is shuffled",
}


class Killed(BaseException):
    """The analyzer is gone: nothing of it runs any more, no handler of errors either."""


def few_people(users=3, budgets=(0.5, 0.75, 1.0), features=4):
    """So many people with two rows of numbers each, in three classes, and nine rows to judge by."""
    rng = np.random.default_rng(21)
    rows, labels = rng.random((2 * users, features), dtype=np.float32), np.arange(2 * users) % 3
    test = Examples(rng.random((9, features), dtype=np.float32), np.arange(9) % 3)
    return People(rows, labels, np.arange(0, 2 * users + 1, 2), np.resize(budgets, users), test=test)


def small_federation(folder, *, rounds=2, vaults=3, keep_sealed=False, smallest_cohort=None, **choices):
    """Make the folders of a federation of a few people, one per vault; all of them are needed if not told otherwise."""
    people = few_people(vaults)
    subject, plan = Subject(LogisticRegression(4, 3), people.test, vaults), Plan(rounds=rounds, levels=16, **choices)
    limits = {"colluding": 0, "smallest_cohort": smallest_cohort or vaults, "keep_sealed": keep_sealed}
    limits["allow_no_protection"] = True
    with without_ports():
        setup.set_up(folder, plan, subject, people, vaults, **limits)
    return folder


@contextmanager
def without_ports():
    """Folders name ports; here nobody listens, so that none is looked for."""
    with ExitStack() as stack:
        for module in (setup, ports):
            stack.enter_context(mock.patch.object(module, "free_ports", lambda count: list(range(1, count + 1))))
        yield


def copied(folder, to):
    """Another federation with the same keys, which has not trained yet."""
    shutil.copytree(folder, to)
    return to


class OwnVault(LocalVault):
    """The vault in a folder that somebody joined with."""

    def __init__(self, folder):
        file = folder / "vault.json"
        # What a new vault would write is there already.
        with mock.patch.object(VaultProcess, "__init__", lambda vault, *_: Party.__init__(vault, "vault", file)):
            super().__init__(folder, None, None, None)
        # Of time, other tests tell.
        file.write_text(json.dumps(json.loads(file.read_text()) | {"answer_seconds": 1e-4}))


class OwnShuffler(LocalShuffler):
    """The shuffler in a folder that somebody invited from."""

    def __init__(self, folder):
        self.folder, self.log, self.ledger = folder, folder / "log", folder / "ledger.sqlite"
        self.is_running, self.passed, self.port = False, [], None
        self._crash, self._failures, self._uploads = None, {}, []
        self.http = self.client()

    def client(self):
        client = super().client()
        client.headers["authorization"] = f"Bearer {read_token(self.folder / 'token')}"
        return client


class Seeded:
    """Draws that are the same whenever a vault answers a round, so that models can be compared bit for bit."""

    def __init__(self, *key):
        self._rng = np.random.default_rng(key)

    def words(self, *shape):
        return self._rng.integers(0, 2**64, shape, dtype=np.uint64)

    def bytes(self, *shape):
        return self._rng.integers(0, 256, shape, dtype=np.uint8)


class LocalGrid:
    """What the analyzer uses of Flower's grid. Nodes answer at once, each by a function of message and content."""

    def __init__(self, nodes):
        self.nodes, self.node, self.run = nodes, Node(node_id=1), SimpleNamespace(run_id=5)
        self._runtime_client = self
        self._replies, self._objects, self.confirmed = {}, {}, []
        # As whoever runs the analyzer tells Flower.
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 5, 1

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        return [self._ask(message) for message in messages]

    def _ask(self, message):
        """Have a node answer, by what comes of a message on its way; return the message's number."""
        contents, tree = _in_parts(message)
        head = message_from_proto(message_to_proto(remove_content_from_message(message)))
        reply = self.nodes[message.metadata.dst_node_id](head, inflate_object_from_contents(tree.object_id, contents))
        if reply is not None:
            self.announce(tree.object_id, reply, *_in_parts(reply))
        return tree.object_id

    def announce(self, number, reply, contents, tree):
        """Have a reply ready of which these are the parts that ever come."""
        self._objects |= contents
        self._replies[number] = message_to_proto(remove_content_from_message(reply)), tree

    def PullMessages(self, asked):  # noqa: N802 - Flower's name
        found = [self._replies.pop(number) for number in asked.message_ids if number in self._replies]
        heads, trees = zip(*found, strict=True) if found else ((), ())
        return PullAppMessagesResponse(messages_list=heads, message_object_trees=trees)

    def PullObject(self, asked):  # noqa: N802
        content = self._objects.get(asked.object_id)
        there = content is not None
        return PullObjectResponse(object_found=True, object_available=there, object_content=content or b"")

    def ConfirmMessageReceived(self, received):  # noqa: N802
        self.confirmed.append(received.message_object_id)


def _in_parts(message):
    """A message as it is sent: its parts by their names, and the tree of these."""
    message.metadata.__dict__["_message_id"] = message.object_id
    parts = {name: part.deflate() for name, part in get_all_nested_objects(message).items()}
    return parts, get_object_tree(message)


class LocalFederation:
    """The parties in a folder; vaults and shuffler are started again when they have crashed."""

    def __init__(self, folder):
        self.layout = Layout(folder)
        federation = self.layout.federation()
        self.run = federation.run
        self.vaults = [OwnVault(self.layout.vault(number)) for number in range(1, federation.vaults + 1)]
        self.shuffler = OwnShuffler(self.layout.shuffler)
        self.grid = LocalGrid({100 + number: self._node(number) for number in range(1, federation.vaults + 1)})
        self.steps, self.round, self._killed_at = [], 0, None

    def __enter__(self):
        for party in (*self.vaults, self.shuffler):
            party.start()
        return self

    def __exit__(self, *error):
        self.shuffler.http.close()
        for party in (*self.vaults, self.shuffler):
            party.kill()

    def kill_at(self, point, round=2):
        """Kill the analyzer before or after a step of a round."""
        self._killed_at = point, round

    def analyzer(self):
        """The analyzer as it is started."""
        self.round = 0
        with self._watched():
            run = AnalyzerRun(self.layout.analyzer / "analyzer.json")
        run._shuffler._http.close()
        headers = {"authorization": f"Bearer {read_token(self.layout.analyzer / 'token')}"}
        run._shuffler._http = httpx.Client(transport=_Watched(self), base_url="https://shuffler", headers=headers)
        return run

    def train(self):
        """Start the analyzer, as Flower does; return its run when it is over."""
        run = self.analyzer()
        with self._watched():
            Relay(run, self.grid).train()
            run.finish()
        run._shuffler._http.close()
        return run

    def finished(self):
        """What is to be seen of it afterwards, for `trials`."""
        summary = json.loads((self.layout.analyzer / "run" / "private/summary.json").read_text())
        return looked_at(self.layout.folder, summary)

    def model(self):
        with np.load(self.layout.analyzer / "run" / "model.npz") as stored:
            return stored["weights"].tobytes()

    @contextmanager
    def step(self, name):
        """The analyzer takes a step, before or after which it may be killed."""
        self._pass(f"before {name}")
        yield
        self.steps.append((self.round, name))
        self._pass(f"after {name}")

    def _pass(self, point):
        if self._killed_at == (point, self.round):
            self._killed_at = None
            raise Killed(point)

    def _node(self, number):
        """What the node of a vault does: its courier carries the question there and the answer back."""

        def answer(head, whole):
            vault = self.vaults[number - 1]
            carrying = SimpleNamespace(_vault=None, _settings=SimpleNamespace(patience=1.0))
            draws = Seeded(number, int(head.metadata.group_id))
            seeded = mock.patch.object(vaults, "SystemSource", return_value=draws)
            asked = mock.patch.object(courier, "ask_vault", lambda path, *question: self._asked(vault, *question))
            with self.step(f"vault {number} answers"), seeded, asked:
                return courier.Courier._reply(carrying, head, whole)

        return answer

    def _asked(self, vault, header, weights, seconds):
        """The vault's answer; nothing if it dies, and then it is started again."""
        try:
            return vault.ask(b"".join(framed([header, weights])))
        except Crash:
            vault.restart()
            return b""

    @contextmanager
    def _watched(self):
        replace, here = files.os.replace, str(self.layout.analyzer)

        def watched(old, new):
            name = _file_of(Path(new)) if str(new).startswith(here) else None
            if name is None:
                return replace(old, new)
            with self.step(name):
                replace(old, new)

        with mock.patch.object(files.os, "replace", watched):
            yield


def _file_of(path):
    return _FILES.get(path.name, _FILES.get(path.suffix))


class _Watched(httpx.BaseTransport):
    """The analyzer's way to the shuffler, which is started again if it has crashed."""

    def __init__(self, federation):
        self._federation, self._inner = federation, federation.shuffler.http._transport

    def handle_request(self, request):
        if self._federation.shuffler.has_crashed:
            self._federation.shuffler.restart()
        found = re.search(r"/rounds/(\d+)", request.url.path)
        self._federation.round = 0 if found is None else int(found[1])
        with self._federation.step(_REQUESTS["roster" if found is None else request.method]):
            return self._inner.handle_request(request)
