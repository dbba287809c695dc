"""A hundred users with a torch CNN in Flower's simulation: what `benchmarks.torch_round` compares with."""

import time
from importlib.util import find_spec
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

import apes
from benchmarks.torch_models import cnn

PER_USER, _ROUNDS = 6, 4


def people_of(users: int) -> apes.People:
    """Users with six images each, of the embedded digits; images come again where there are too few."""
    dataset = apes.load("digits")
    rows = np.arange(users * PER_USER) % len(dataset.train_labels)
    budgets, offsets = apes.make_budgets("uniform2", users, 1), np.arange(0, rows.size + 1, PER_USER)
    return apes.People(dataset.train_images[rows], dataset.train_labels[rows], offsets, budgets)


def gradient(net: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> list[NDArray[np.float32]]:
    """One user's gradient by a plain backward pass."""
    net.zero_grad()
    nn.functional.cross_entropy(net(images), labels).backward()
    return [value.grad.numpy() for value in net.parameters()]


def data_of(people: apes.People, user: int) -> tuple[torch.Tensor, torch.Tensor]:
    """A user's images and labels."""
    block = people.block(user, user + 1)
    return torch.from_numpy(block.features).reshape(-1, 1, 28, 28), torch.from_numpy(block.labels.astype(np.int64))


def seconds_in_flower(users: int) -> float | None:
    """Seconds per round, without the start of Flower's workers; None where its simulation is not installed."""
    if find_spec("flwr") is None or find_spec("ray") is None:
        return None
    from flwr.client import ClientApp, NumPyClient
    from flwr.common import Context, ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    people, ends = people_of(users), list[float]()

    class User(NumPyClient):
        """Returns a gradient, as many bytes as an update has."""

        def __init__(self, number: int) -> None:
            self.data = data_of(people, number)

        def fit(self, parameters: list[NDArray[Any]], config: dict[str, Any]) -> Any:
            net = cnn()
            with torch.no_grad():
                for value, new in zip(net.parameters(), parameters, strict=True):
                    value.copy_(torch.from_numpy(new))
            return gradient(net, *self.data), PER_USER, {}

    class Timed(FedAvg):
        """Notes when a round is over."""

        def aggregate_fit(self, *given: Any) -> Any:
            ends.append(time.perf_counter())
            return super().aggregate_fit(*given)

    def client(context: Context) -> Any:
        return User(int(context.node_config["partition-id"])).to_client()

    def server(context: Context) -> ServerAppComponents:
        start = ndarrays_to_parameters([value.detach().numpy() for value in cnn().parameters()])
        everybody: dict[str, Any] = {"fraction_fit": 1.0, "min_fit_clients": users, "min_available_clients": users}
        strategy = Timed(fraction_evaluate=0.0, initial_parameters=start, **everybody)
        return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=_ROUNDS))

    resources: Any = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(ServerApp(server_fn=server), ClientApp(client_fn=client), users, backend_config=resources)
    return (ends[-1] - ends[0]) / (len(ends) - 1)
