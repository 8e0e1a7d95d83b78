"""ConvSSM: ConvS5 with random eigenvalues, the ablation of its initialisation."""

from __future__ import annotations

from typing import ClassVar

from slotbench.nn.diagonal_ssm import Initialisation
from slotbench_plugins.cores.conv_s5 import ConvS5


class ConvSSM(ConvS5):
    """`ConvS5` whose eigenvalues start from a normal distribution instead of those of the HiPPO matrix.

    All else, B, C, the time scales and the arguments, is that of ConvS5. Half of the eigenvalues are drawn with a
    positive real part: `clip_eigs` starts them at -1e-4; without it they grow, and a clip of some hundred steps can
    overflow float32.

    Source: ConvS5 (Smith et al., NeurIPS 2023), Tables 5 and 6 and appendix D.4, "ConvSSM (ablation)". The paper says
    "random Gaussian" and no more; that real and imaginary part are standard normal is our reading.
    """

    default_initialisation: ClassVar[Initialisation] = "random"
