"""Rewards as users write them, good and bad. Loaded by its path and, from tests/grading, as a module."""

import os
import signal
import subprocess
import threading
import time
from pathlib import Path

import numpy as np


def vowels(completion, **_):
    return sum(letter in "aeiou" for letter in completion) / max(1, len(completion))


def together(completions, *, ground_truth, bonus=0.0, **_):
    return [float(text == truth) + bonus for text, truth in zip(completions, ground_truth, strict=True)]


def columns(completion, *, colour, **rest):
    return {"colour": len(colour), "rest": len(rest)}


def patience(completion, *, trajectory, **_):
    return None if trajectory is None else trajectory.passes + 0.01 * len(trajectory.texts()[-1])


def process(completion, **_):
    return os.getpid()


def array(completions, **_):
    return np.ones(len(completions))


def short(completions, **_):
    return [1.0] * (len(completions) - 1)


def nothing(completions, **_):
    pass


def misbehave(completion, *, file=None, **_):
    """Do what the completion says."""
    what = completion
    if what == "sleep":
        time.sleep(60)
    elif what == "spin":
        while True:
            pass
    elif what == "regex":
        import re

        re.match(r"(a+)+b", "a" * 40)
    elif what == "exit":
        os._exit(0)
    elif what == "leave":
        raise SystemExit
    elif what == "interrupt":
        raise KeyboardInterrupt
    elif what == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif what == "crash":
        import ctypes

        ctypes.string_at(0)
    elif what == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif what == "memory":
        return float(len(bytearray(1 << 40)))
    elif what == "raise":
        raise ValueError("no\nsuch\nthing")
    elif what == "deep":
        return misbehave(completion)
    elif what == "nan":
        return float("nan")
    elif what == "text":
        return "1.0"
    elif what == "huge":
        return {str(number): 1.0 for number in range(1_000_000)}
    elif what == "print":
        print("x" * 10_000_000)
    elif what == "close":
        os.closerange(3, 100)
    elif what == "child":
        child = subprocess.Popen(["sleep", "60"])
        Path(file).write_text(str(child.pid))
        time.sleep(60)
    elif what == "thread":
        threading.Thread(target=time.sleep, args=(60,)).start()
    return 1.0
