"""Every algorithm by name: adding one is one import and one entry."""

from typing import Annotated

from pydantic import Field

from dare.algorithms.coupled_grpo import CoupledGRPO
from dare.algorithms.d1 import D1

AnyAlgorithm = Annotated[D1 | CoupledGRPO, Field(discriminator="name")]
