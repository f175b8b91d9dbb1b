"""Where else a run's metrics are shown. A tracker is told of by the run folder, and may fail: the run goes on.

Nothing goes over the network unless the library's own variable of the environment says so.
"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, Protocol

import yaml

from dare.errors import DareError
from dare.train.environment import run_id
from dare.train.folder import CONFIG

TrackerName = Literal["tensorboard", "wandb", "trackio", "mlflow", "swanlab"]
PROJECT = "dare"


@dataclass(frozen=True)
class Place:
    """A run folder with its identifier and resolved settings; metrics follow from the step after ``start``."""

    folder: Path
    identifier: str
    config: dict[str, Any]
    start: int

    @property
    def name(self) -> str:
        """What the run is called in a list of runs."""
        return f"{self.folder.name}-{self.identifier}"


class Tracker(Protocol):
    """Shows metrics elsewhere; made from a ``Place``, and each call may raise whatever its library raises."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Show the metrics of a step."""
        ...

    def close(self) -> None:
        """Write what is still in memory."""
        ...


class TensorBoard:
    """Event files in the run folder."""

    def __init__(self, place: Place):
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(str(place.folder / "tensorboard"), purge_step=place.start + 1)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker.log``."""
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        """See ``Tracker.close``."""
        self.writer.close()


class _LikeWandB:
    """Libraries that took over the calls of W&B's runs."""

    run: Any

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker.log``."""
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        """See ``Tracker.close``."""
        self.run.finish()


class WandB(_LikeWandB):
    """Weights & Biases; ``wandb/`` in the run folder, to be sent by ``wandb sync``, unless ``WANDB_MODE=online``."""

    def __init__(self, place: Place):
        import wandb

        mode: Any = os.environ.get("WANDB_MODE", "offline")
        quiet = wandb.Settings(console="off", silent=True)
        shown = {"project": os.environ.get("WANDB_PROJECT", PROJECT), "name": place.name, "config": place.config}
        self.run = wandb.init(**shown, id=place.identifier, resume="allow", dir=place.folder, mode=mode, settings=quiet)


class Trackio(_LikeWandB):
    """Trackio's own folder (``TRACKIO_DIR``), shown by ``trackio show``."""

    def __init__(self, place: Place):
        import trackio

        self.run = trackio.init(PROJECT, name=place.name, config=place.config, resume="allow", embed=False)


class MLflow:
    """``mlflow.db`` in the run folder, unless ``MLFLOW_TRACKING_URI`` names another store."""

    def __init__(self, place: Place):
        import mlflow

        self.library = mlflow
        mlflow.set_tracking_uri(os.environ.get("MLFLOW_TRACKING_URI", f"sqlite:///{place.folder / 'mlflow.db'}"))
        mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        known: Any = mlflow.search_runs(filter_string=f"tags.dare = '{place.identifier}'", output_format="list")
        if known:
            mlflow.start_run(run_id=known[0].info.run_id)
        else:
            mlflow.start_run(run_name=place.name, tags={"dare": place.identifier})
            mlflow.log_dict(place.config, "config.yaml")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """See ``Tracker.log``."""
        self.library.log_metrics(dict(values), step=step)

    def close(self) -> None:
        """See ``Tracker.close``."""
        self.library.end_run()


class SwanLab(_LikeWandB):
    """``swanlab/`` in the run folder, unless ``SWANLAB_MODE`` says otherwise."""

    def __init__(self, place: Place):
        import swanlab

        mode: Any = os.environ.get("SWANLAB_MODE", "offline")
        shown = {"project": PROJECT, "name": place.name, "config": place.config}
        folder = str(place.folder / "swanlab")
        self.run = swanlab.init(**shown, id=place.identifier, resume="allow", log_dir=folder, mode=mode)


TRACKERS: dict[str, Callable[[Place], Tracker]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
    "mlflow": MLflow,
    "swanlab": SwanLab,
}


def check_installed(names: Sequence[str]) -> None:
    """Raise ``ValueError`` with the command that installs a library which is not there."""
    for name in names:
        if find_spec(name) is None:
            raise ValueError(f'{name} is not installed; pip install "dare[{name}]", or leave it out')


class Trackers:
    """Those that the settings in the run folder name; one that fails is named once and dropped."""

    def __init__(self, folder: Path, start: int, say: Callable[[str], None]):
        self.say = say
        self.open: dict[str, Tracker] = {}
        config = yaml.safe_load((folder / CONFIG).read_text())
        place = Place(folder.absolute(), run_id(folder), config, start)
        for name in config["train"]["trackers"]:
            with self._dropping(name):
                self.open[name] = _open(name, place)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Show the metrics of a step in all that still work."""
        for name, tracker in list(self.open.items()):
            with self._dropping(name):
                tracker.log(step, values)

    def close(self) -> None:
        """Close all that still work."""
        for name, tracker in list(self.open.items()):
            with self._dropping(name):
                tracker.close()

    @contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        try:
            yield
        except DareError:
            raise
        except Exception as error:  # a tracker may raise anything, and nothing it raises matters to the run
            self.open.pop(name, None)
            self.say(f"tracker {name} failed and is dropped: {type(error).__name__}: {' '.join(str(error).split())}")


def _open(name: str, place: Place) -> Tracker:
    try:
        return TRACKERS[name](place)
    except ImportError as error:
        raise DareError(f'tracker {name} cannot be imported ({error}); pip install "dare[{name}]"') from error
