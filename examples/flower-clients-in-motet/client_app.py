"""An app as in Flower's quickstart. It knows nothing about Motet, and is not changed for it."""

import torch
from flwr.client import ClientApp, NumPyClient
from torch import nn


class Net(nn.Module):
    """A small classifier with a batch norm, so that its state has an integer counter as well."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))

    def forward(self, x):
        return self.layers(x)


def load_data(partition_id, num_examples=200):
    """Points around three centers. A client mostly has points of its own center."""
    generator = torch.Generator().manual_seed(partition_id)
    centers = 3 * torch.eye(3, 8)
    labels = torch.randint(0, 3, (num_examples,), generator=generator)
    labels[: num_examples // 2] = partition_id % 3
    points = centers[labels] + torch.randn(num_examples, 8, generator=generator)
    order = torch.randperm(num_examples, generator=generator)
    points, labels = points[order], labels[order]
    return (points[:160], labels[:160]), (points[160:], labels[160:])


class FlowerClient(NumPyClient):
    def __init__(self, partition_id):
        torch.manual_seed(0)  # the same first weights everywhere
        self.net = Net()
        self.train_data, self.test_data = load_data(partition_id)

    def get_parameters(self, config):
        return [value.numpy() for value in self.net.state_dict().values()]

    def set_parameters(self, parameters):
        names = self.net.state_dict().keys()
        self.net.load_state_dict({name: torch.tensor(value) for name, value in zip(names, parameters, strict=True)})

    def fit(self, parameters, config):
        self.set_parameters(parameters)
        self.net.train()
        points, labels = self.train_data
        optimizer = torch.optim.SGD(self.net.parameters(), lr=config["lr"])
        for batch in torch.randperm(len(points)).split(32):
            optimizer.zero_grad()
            nn.functional.cross_entropy(self.net(points[batch]), labels[batch]).backward()
            optimizer.step()
        return self.get_parameters({}), len(points), {}

    def evaluate(self, parameters, config):
        self.set_parameters(parameters)
        self.net.eval()
        points, labels = self.test_data
        with torch.no_grad():
            logits = self.net(points)
        accuracy = (logits.argmax(1) == labels).float().mean().item()
        return nn.functional.cross_entropy(logits, labels).item(), len(points), {"accuracy": accuracy}


def client_fn(context):
    return FlowerClient(int(context.node_config["partition-id"])).to_client()


app = ClientApp(client_fn)
