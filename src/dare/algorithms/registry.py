"""Every algorithm by name: adding one is one import and one entry."""

from typing import Annotated

from pydantic import Field

from dare.algorithms.bgpo import BGPO
from dare.algorithms.cj_grpo import CJGRPO
from dare.algorithms.coupled_grpo import CoupledGRPO
from dare.algorithms.d1 import D1
from dare.algorithms.dtreerpo import DTreeRPO
from dare.algorithms.ebpo import EBPO
from dare.algorithms.espo import ESPO
from dare.algorithms.justgrpo import JustGRPO
from dare.algorithms.mdpo import MDPO
from dare.algorithms.ppo import PPO
from dare.algorithms.spg import SPG
from dare.algorithms.tracerl import TraceRL
from dare.algorithms.unigrpo import UniGRPO
from dare.algorithms.wd1 import WD1

AnyAlgorithm = Annotated[
    BGPO | CJGRPO | CoupledGRPO | D1 | DTreeRPO | EBPO | ESPO | JustGRPO | MDPO | PPO | SPG | TraceRL | UniGRPO | WD1,
    Field(discriminator="name"),
]
