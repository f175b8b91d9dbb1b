import threading

import pytest

from dare.decoding.config import DecodingConfig
from dare.serving.scheduler import ClosedError, Decoded, Event, Job, QueueFullError, Scheduler, State
from dare.train.run import load_model

SHORT = DecodingConfig(max_new_tokens=8)


class Heard:
    """Collects the events of one job."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.done = threading.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)
        if not isinstance(event, State):
            self.done.set()


def job(decoding: DecodingConfig = SHORT, length: int = 5, noise: int = 0, watched: bool = False) -> Job:
    return Job(prompt=[1] * length, decoding=decoding, key=noise, tell=Heard(), watched=watched, recorded=watched)


def result(asked: Job) -> Event:
    assert isinstance(asked.tell, Heard) and asked.tell.done.wait(20)
    return asked.tell.events[-1]


@pytest.fixture
def scheduler():
    scheduler = Scheduler(load_model("tiny:block").model, "cpu", rows=2, queue=12, groups=1)
    yield scheduler
    scheduler.close()


def test_more_rows_and_settings_than_fit_all_get_done(scheduler: Scheduler) -> None:
    warm = [SHORT.model_copy(update={"temperature": heat}) for heat in (0.5, 1.0)]
    jobs = [job(warm[number % 2], length=5 + 40 * (number % 3), noise=number) for number in range(12)]
    scheduler.submit(jobs)
    rows = [result(asked) for asked in jobs]
    assert all(isinstance(row, Decoded) and len(row.ids) == 8 for row in rows)
    alone = job(warm[1], length=5 + 40 * (7 % 3), noise=7)
    scheduler.submit([alone])
    again = result(alone)
    assert isinstance(again, Decoded) and isinstance(rows[7], Decoded)
    assert (again.ids, again.steps, again.forwards) == (rows[7].ids, rows[7].steps, rows[7].forwards)
    assert scheduler.live == scheduler.waiting == 0


def test_final_tokens_never_change() -> None:
    for name in ("tiny:masked", "tiny:block"):
        scheduler = Scheduler(load_model(name).model, "cpu", rows=2, queue=9, groups=1)
        for extra in ({}, {"remask": "running_confidence", "steps": 12}, {"edit_threshold": 0.01, "threshold": 0.02}):
            decoding = DecodingConfig(max_new_tokens=24, block_size=8, temperature=1.0, **extra)
            asked = job(decoding, watched=True)
            scheduler.submit([asked])
            done = result(asked)
            assert isinstance(done, Decoded) and isinstance(asked.tell, Heard)
            states = [event for event in asked.tell.events if isinstance(event, State)]
            assert states and all(state.ids[: state.final] == done.ids[: state.final] for state in states)
            assert bool(extra) == bool(done.states)
        scheduler.close()


def test_the_queue_is_bounded_and_takes_all_or_none(scheduler: Scheduler) -> None:
    with pytest.raises(QueueFullError, match="12 may"):
        scheduler.submit([job() for _ in range(13)])
    assert scheduler.waiting == 0


def test_closing_refuses_what_is_left_and_what_comes() -> None:
    scheduler = Scheduler(load_model("tiny:block").model, "cpu", rows=1, queue=12, groups=1)
    jobs = [job(DecodingConfig(max_new_tokens=800)) for _ in range(3)]
    scheduler.submit(jobs)
    scheduler.close()
    assert all(isinstance(result(asked), ClosedError) for asked in jobs)
    with pytest.raises(ClosedError):
        scheduler.submit([job()])
