"""Which answers of a conversation an SFT row teaches."""

from collections.abc import Mapping, Sequence
from typing import Literal

from dare.diffusion.noise import key, uniform

TurnPolicy = Literal["last", "random_prefix", "all_turns"]


def answers_to_learn(turns: Sequence[Mapping[str, str]], policy: TurnPolicy, seed: int, row: int) -> list[int]:
    """Return the places of the assistant turns that ``policy`` picks; each is learned given the turns before it.

    "last": the last one; "all_turns": every one; "random_prefix": one, drawn by a hash of ``seed`` and ``row``.
    The conversation must end in an answer. One that it opens with answers nothing and is not learned.
    """
    places = [place for place, turn in enumerate(turns) if place > 0 and turn["role"] == "assistant"]
    if policy == "all_turns":
        return places
    if policy == "last":
        return places[-1:]
    drawn = float(uniform(key(seed, "turn", row)[None], 1))
    return [places[int(drawn * len(places))]]
