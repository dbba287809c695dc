"""A round of pfl-research's simulated backend, torch model, a process per core by torchrun.

Variants: ``local``, Gaussian noise at every user; ``central``, its approximation of that, noise on the sum alone.
"""

import time

import numpy as np
import torch
from pfl.aggregate.simulate import SimulatedBackend
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.data.dataset import Dataset
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.model.pytorch import PyTorchModel
from pfl.privacy import GaussianMechanism
from torch import nn

from benchmarks.peer_programs.stages import DELTA, EPSILON, NORM, Stage, measure, print_stage, read_task

task = read_task()
_NEVER = 10**9


def network() -> nn.Module:
    """Logistic regression from zero, with the two methods that pfl asks for."""
    net = nn.Linear(task.images.shape[1], 10)
    for value in net.parameters():
        nn.init.zeros_(value)
    net.loss = lambda images, labels: nn.functional.cross_entropy(net(images), labels)
    net.metrics = lambda images, labels: {}
    return net


def person(user: int) -> Dataset:
    """A user's rows."""
    images, labels = task.rows(user)
    return Dataset((torch.from_numpy(images), torch.from_numpy(labels)), user_id=str(user))


def shared_clock() -> float:
    """The first process's clock, so that all decide alike."""
    now = torch.tensor([time.perf_counter()], dtype=torch.float64)
    if torch.distributed.is_initialized():
        torch.distributed.broadcast(now, 0)
    return float(now)


def main() -> None:
    """Rounds of more and more of the users."""
    torch.set_num_threads(1)
    net, mechanism = network(), GaussianMechanism.construct_single_iteration(NORM, EPSILON, DELTA)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    noise = mechanism if task.variant == "local" else mechanism.approximate_as_central_mechanism()
    people = FederatedDataset(person, get_user_sampler("minimize_reuse", list(range(task.users))))
    backend, algorithm = SimulatedBackend(people, people, postprocessors=[noise]), FederatedAveraging()
    training = NNTrainHyperParams(local_batch_size=None, local_num_epochs=1, local_learning_rate=1.0)

    def run_round(users: int) -> None:
        sizes = NNAlgorithmParams(_NEVER, evaluation_frequency=_NEVER, train_cohort_size=users, val_cohort_size=None)
        # Round 0 would evaluate.
        (context,), _, _ = algorithm.get_next_central_contexts(model, 1, sizes, training)
        update, metrics = backend.gather_results(model, algorithm, central_context=context)
        algorithm.process_aggregated_statistics(context, metrics, model, update)
        if not np.isfinite(net.weight.detach().numpy()).all():
            raise RuntimeError("the model is not finite")

    def say(stage: Stage) -> None:
        if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
            print_stage(stage)

    measure(run_round, task, shared_clock, say)


if __name__ == "__main__":
    main()
