"""Types of arrays and of graphs that annotations name in many modules."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from pytensor.tensor.variable import TensorVariable

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Values = NDArray[np.generic]  # of any type
type Tensor = TensorVariable
type Number = TensorVariable | Array | float  # of arithmetic, which has numbers or makes graphs
