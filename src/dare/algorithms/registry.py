"""Every algorithm by name: adding one is one import and one entry."""

from typing import Annotated

from pydantic import Field

from dare.algorithms.bgpo import BGPO
from dare.algorithms.cj_grpo import CJGRPO
from dare.algorithms.coupled_grpo import CoupledGRPO
from dare.algorithms.d1 import D1
from dare.algorithms.espo import ESPO
from dare.algorithms.wd1 import WD1

AnyAlgorithm = Annotated[BGPO | CJGRPO | CoupledGRPO | D1 | ESPO | WD1, Field(discriminator="name")]
