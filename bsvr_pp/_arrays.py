"""Types of arrays that annotations name in many modules."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Rows = NDArray[np.int64]
Values = NDArray[np.generic]  # of any type
