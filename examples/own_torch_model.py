"""A torch module of one's own, trained privately; beside it a private head on a frozen part that nobody's data is in.

pip install 'apes-fl[torch]'
python examples/own_torch_model.py
"""

import numpy as np
import torch
from torch import nn

import apes

torch.manual_seed(1)
data = apes.load("digits")
# Three thousand people with six images each: rows of numbers, a label and a user id per row.
ids = np.arange(18_000) // 6
people = apes.People.from_arrays(
    data.train_images[: ids.size],
    data.train_labels[: ids.size],
    users=ids,
    budgets="constant:0.5",
    test=(data.test_images, data.test_labels),
)
# Updates of L2 norm 1 at most, reports of one bit per coordinate; no round takes place that would pass the target.
plan = apes.Plan(framework="apes", rounds=20, norm=1.0, clip=0.13, learning_rate=4.0, target_epsilon=1.5, delta=1e-5)

# A network of one's own: GroupNorm, not BatchNorm, since nobody's rows may depend on another's.
network = nn.Sequential(
    nn.Conv2d(1, 8, 6, stride=3), nn.GroupNorm(2, 8), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 10)
)
model = apes.TorchModel(network, nn.functional.cross_entropy, input_shape=(1, 28, 28))
run = apes.train(model, people, plan)
print(f"network, {model.dimensions:,} parameters: {run.accuracy:.1%} right; {run.guarantee}")

network.load_state_dict(model.state_dict(run.weights))
images = torch.from_numpy(data.test_images[:5]).reshape(-1, 1, 28, 28)
print("its first guesses:", network(images).argmax(dim=1).tolist(), "of", data.test_labels[:5].tolist())

# What practitioners do: a frozen part (here random; in real life pretrained on public data) and a small private head.
backbone = nn.Sequential(nn.Conv2d(1, 16, 7, bias=False), nn.ReLU(), nn.AdaptiveAvgPool2d(5), nn.Flatten())
features = apes.Frozen(backbone, input_shape=(1, 28, 28))
head = apes.LogisticRegression(16 * 5 * 5, people.classes)
run = apes.train(head, people, plan, features=features)
print(f"head on frozen features, {head.dimensions:,} parameters: {run.accuracy:.1%} right; {run.guarantee}")
