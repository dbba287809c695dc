"""A round as a plain torch loop: a backward pass per user, its gradient clipped in L2, Gaussian noise, the mean."""

import math
import time
from collections.abc import Callable

import torch
from torch import nn

from benchmarks.peer_programs.stages import DELTA, EPSILON, NORM, measure, read_task

_FEW = 200
task = read_task()


def main() -> None:
    """Rounds of more and more of the users, on the better of one thread and torch's own choice."""
    net = nn.Linear(task.images.shape[1], 10)
    parameters = list(net.parameters())
    for value in parameters:
        nn.init.zeros_(value)
    deviation = 2 * NORM * math.sqrt(2 * math.log(1.25 / DELTA)) / EPSILON

    def run_round(users: int) -> None:
        total = [torch.zeros_like(value) for value in parameters]
        for user in range(users):
            images, labels = task.rows(user)
            loss = nn.functional.cross_entropy(net(torch.from_numpy(images)), torch.from_numpy(labels))
            gradients = torch.autograd.grad(loss, parameters)
            norm = torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(each) for each in gradients]))
            scale = torch.clamp(NORM / norm, max=1.0)
            for part, each in zip(total, gradients, strict=True):
                part.add_(each * scale).add_(torch.randn_like(each), alpha=deviation)
        with torch.no_grad():
            for value, part in zip(parameters, total, strict=True):
                value -= part / users

    torch.set_num_threads(_best_threads(run_round, min(_FEW, task.users)))
    measure(run_round, task)


def _best_threads(run_round: Callable[[int], None], users: int) -> int:
    taken = {}
    for threads in (torch.get_num_threads(), 1):
        torch.set_num_threads(threads)
        run_round(users)
        began = time.perf_counter()
        run_round(users)
        taken[threads] = time.perf_counter() - began
    return min(taken, key=lambda threads: taken[threads])


if __name__ == "__main__":
    main()
