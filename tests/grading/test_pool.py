"""Workers: what they are asked comes back in order, whatever a reward does."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dare.grading.call import Request
from dare.grading.pool import Pool

FILE = str(Path(__file__).with_name("custom_rewards.py"))
MISBEHAVE = f"{FILE}:misbehave"


@pytest.fixture(scope="module")
def pool():
    with Pool(2, 4096) as pool:
        yield pool


def ask(what: str, seconds: float = 1.0, **arguments) -> Request:
    return Request(MISBEHAVE, seconds, what, arguments)


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_replies_come_in_order(pool):
    texts = ["a" * (number % 5) + "x" * (number % 3) for number in range(200)]
    replies = pool.run([Request(f"{FILE}:vowels", 10.0, text, {}) for text in texts])
    assert [one.found for one in replies] == [text.count("a") / max(1, len(text)) for text in texts]
    assert pool.run([]) == []


def test_several_workers_work_at_once_and_are_kept(pool):
    pids = {one.found for one in pool.run([Request(f"{FILE}:process", 10.0, "", {})] * 40)}
    assert len(pids) == 2 and os.getpid() not in pids
    again = {one.found for one in pool.run([Request(f"{FILE}:process", 10.0, "", {})] * 40)}
    assert again == pids


@pytest.mark.parametrize(
    ("what", "failure", "stopped"),
    [
        ("sleep", "took longer than 1 s", True),
        ("spin", "took longer than 1 s", True),
        ("regex", "took longer than 1 s", True),
        ("stop", "took longer than 1 s", True),
        ("exit", "ended with status 0", True),
        ("leave", "raised SystemExit", False),
        ("interrupt", "ended by signal 2", True),
        ("kill", "ended killed", True),
        ("crash", "ended by a crash", True),
        ("close", "", True),
        ("memory", "raised MemoryError", False),
        ("deep", "raised RecursionError", False),
        ("raise", "raised ValueError: no such thing (custom_rewards.py line ", False),
    ],
)
def test_what_goes_wrong_is_told_and_touches_no_other(pool, what, failure, stopped):
    before, wrong, after = pool.run([ask("fine"), ask(what), ask("fine")])
    assert (before.found, after.found) == (1.0, 1.0)
    assert wrong.found is None and failure in wrong.failure and wrong.stopped is stopped
    assert [one.found for one in pool.run([ask("fine")] * 4)] == [1.0] * 4


def test_a_million_parts_and_a_flood_of_print_do_no_harm(pool, capfd):
    huge, printed = pool.run([ask("huge", 10.0), ask("print", 10.0)])
    assert len(huge.found) == 65 and printed.found == 1.0
    assert capfd.readouterr().out == ""


def test_a_hung_reward_costs_its_limit_and_no_more(pool):
    began = time.monotonic()
    replies = pool.run([ask("sleep", 0.5)] * 4 + [ask("fine")] * 4)
    assert time.monotonic() - began < 4 * 0.5 + 2.0
    assert [one.failure is None for one in replies] == [False] * 4 + [True] * 4


def test_what_a_reward_started_dies_with_it(pool, tmp_path):
    file = tmp_path / "pid"
    (reply,) = pool.run([ask("child", 1.0, file=str(file))])
    assert reply.stopped
    child = int(file.read_text())
    deadline = time.monotonic() + 5
    while not gone(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert gone(child)


def test_a_worker_killed_while_idle_comes_back(pool):
    request = Request(f"{FILE}:process", 10.0, "", {})
    for pid in {one.found for one in pool.run([request] * 8)}:
        os.kill(int(pid), signal.SIGKILL)
    time.sleep(0.2)
    assert all(one.failure is None for one in pool.run([request] * 8))


def test_a_worker_is_replaced_before_it_has_remembered_too_much(monkeypatch):
    monkeypatch.setattr("dare.grading.pool.MOST_CALLS", 3)
    with Pool(1, 4096) as pool:
        pids = [one.found for one in pool.run([Request(f"{FILE}:process", 10.0, "", {})] * 7)]
    assert len(set(pids)) == 3


def test_threads_take_turns(pool):
    found: dict[int, list[float]] = {}

    def work(number: int) -> None:
        requests = [Request(f"{FILE}:vowels", 10.0, "a" * number + "x", {}) for _ in range(20)]
        found[number] = [one.found for one in pool.run(requests)]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {number: [number / (number + 1)] * 20 for number in range(6)}


def test_a_worker_outlives_the_thread_that_started_it():
    with Pool(1, 4096) as pool:
        found = []
        request = Request(f"{FILE}:process", 10.0, "", {})
        thread = threading.Thread(target=lambda: found.extend(pool.run([request])))
        thread.start()
        thread.join()
        assert pool.run([request])[0].found == found[0].found


def test_an_interrupted_run_leaves_no_stale_reply(pool, monkeypatch):
    def interrupt(self):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Pool, "_stirred", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pool.run([Request(f"{FILE}:vowels", 10.0, "aaa", {})] * 2)
    assert pool.run([Request(f"{FILE}:vowels", 10.0, "xxx", {})])[0].found == 0.0


def test_no_worker_outlives_a_killed_run(tmp_path):
    program = f"""
import json, sys, threading
from dare.grading.pool import Pool
from dare.grading.call import Request
pool = Pool(2, 4096)
print(json.dumps([one.found for one in pool.run([Request({FILE + ":process"!r}, 10.0, "", {{}})] * 20)]), flush=True)
pool.run([Request({MISBEHAVE!r}, 1.0, "spin", {{}}), Request({MISBEHAVE!r}, 1.0, "sleep", {{}})])
"""
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as process:
        pids = {int(pid) for pid in json.loads(process.stdout.readline())}
        time.sleep(0.3)  # both are at work
        process.kill()
    deadline = time.monotonic() + 10
    while not all(map(gone, pids)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(pids) == 2 and all(map(gone, pids))
