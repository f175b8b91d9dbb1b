from collections.abc import Iterator

import pytest
from served import running

from dare.models.checkpoint import Checkpoint
from dare.serving.client import Client
from dare.train.run import load_model


@pytest.fixture(scope="session", params=["tiny:masked", "tiny:block"])
def checkpoint(request: pytest.FixtureRequest) -> Checkpoint:
    return load_model(request.param)


@pytest.fixture(scope="session")
def client(checkpoint: Checkpoint) -> Iterator[Client]:
    with running(checkpoint) as client:
        yield client


@pytest.fixture(scope="session")
def masked() -> Iterator[Client]:
    with running(load_model("tiny:masked")) as client:
        yield client
