"""A round of Flower's simulation on Ray: local gradient steps in NumPy, `LocalDpMod` at every user, `FedAvg`."""

import logging
import os
from collections.abc import Iterable
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.clientapp.mod import LocalDpMod
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg
from flwr.simulation import run_simulation
from numpy.typing import NDArray

from benchmarks.peer_programs.stages import DELTA, EPSILON, NORM, PER_USER, measure, read_task

task = read_task()
# Two updates of norm 1 lie up to 2 apart.
client = ClientApp(mods=[LocalDpMod(clipping_norm=NORM, sensitivity=2 * NORM, epsilon=EPSILON, delta=DELTA)])
server = ServerApp()


def stepped(weights: NDArray[np.float32], user: int) -> NDArray[np.float32]:
    """The weights after one step down a user's gradient."""
    images, labels = task.rows(user)
    rows = np.append(images, np.ones((PER_USER, 1), dtype=np.float32), axis=1)
    logits = rows @ weights.T
    chances = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    chances[np.arange(PER_USER), labels] -= 1
    return np.asarray(weights - chances.T @ rows / PER_USER, dtype=np.float32)


@client.train()
def train(message: Message, context: Context) -> Message:
    """One user's part."""
    logging.getLogger("flwr").setLevel(logging.WARNING)  # the mod logs twice per user
    (weights,) = message.content.array_records["arrays"].to_numpy_ndarrays()
    new = stepped(weights, int(context.node_config["partition-id"]))
    metrics = MetricRecord({"num-examples": PER_USER})
    return Message(RecordDict({"arrays": ArrayRecord([new]), "metrics": metrics}), reply_to=message)


class Complete(FedAvg):
    """Averages only if everybody who was asked has answered."""

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        """The mean of all replies."""
        received = list(replies)
        if (good := sum(not reply.has_error() for reply in received)) != self.min_train_nodes:
            raise RuntimeError(f"error: {good} of {self.min_train_nodes} users answered")
        return super().aggregate_train(server_round, received)


@server.main()
def main(grid: Grid, context: Context) -> None:
    """Rounds of more and more of the users."""
    logging.getLogger("flwr").setLevel(logging.WARNING)
    start = ArrayRecord([np.zeros((10, task.images.shape[1] + 1), dtype=np.float32)])

    def run_round(users: int) -> None:
        # min_train_nodes is the number that takes part: a fraction would be rounded down.
        numbers: Any = {"min_train_nodes": users, "min_available_nodes": task.users}
        strategy = Complete(fraction_train=1e-9, fraction_evaluate=0.0, **numbers)
        strategy.start(grid, start, num_rounds=1)

    measure(run_round, task)


if __name__ == "__main__":
    # Workers of its own: Ray would join a cluster that happens to run here.
    ray: Any = {"init_args": {"num_cpus": os.cpu_count(), "address": "local", "include_dashboard": False}}
    ray["client_resources"] = {"num_cpus": 1, "num_gpus": 0.0}
    run_simulation(server, client, task.users, backend_config=ray)
