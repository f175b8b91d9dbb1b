"""A short name for the rows that a run uses, by their content."""

from dare.data.config import Split, TaskConfig
from dare.data.examples import fingerprint_names
from dare.data.pairs import PAIR_TASKS
from dare.data.tables import digest
from dare.data.tasks import TASKS


def fingerprint(task: TaskConfig, split: Split) -> str:
    """Return 16 hexadecimal digits of a hash of a split's rows: which they are, how they are read and mixed.

    Files count by their bytes, so a copy elsewhere has the same fingerprint and an edited row another; embedded tasks
    by what they generate; ``datasets`` by the library's own fingerprint.
    """
    known = {**TASKS, **PAIR_TASKS}
    groups = [(fingerprint_names(names, task, split, known), weight) for names, weight in task.mixture(split)]
    reading = (task.question_column, task.answer_column, task.turns, task.rendered, task.pack, task.seed)
    return digest(groups, reading, task.limit(split))[:16]
