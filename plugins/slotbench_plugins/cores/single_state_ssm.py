"""Single-state SSM: one vector per step and one state space model for the whole scene."""

from __future__ import annotations

from slotbench.interfaces import TokenSpec
from slotbench.nn.slot_ssm_layer import SSMName
from slotbench_plugins.cores.split_ssm import SplitSSM


class SingleStateSSM(SplitSSM):
    """`SlotSSM` with its state in one piece: one learned query reads the tokens, one sequence runs through the layers.

    It is `SplitSSM` with one slot and without its linear maps. `CoreOutput.attention` is where the query looked.

    The mixers stay, so that a layer has the weights of a SlotSSM layer of the same width; their attention over one slot
    is a linear map. At equal `dim` the model has as many weights as `SlotSSM` but `num_slots` - 1 queries, and
    1 / `num_slots` of its state; a fair comparison says which of the two it holds equal, and `dim` is there to match
    either.

    Source: SlotSSM (Jiang et al., NeurIPS 2024), section 7.1, "Single State SSM". Its width is not given there.

    Args:
        dim: width of the one slot; the other arguments are those of `SplitSSM`.
    """

    def __init__(
        self,
        token_spec: TokenSpec,
        dim: int = 64,
        num_layers: int = 2,
        num_heads: int = 4,
        encoder_layers: int = 3,
        mlp_ratio: int = 4,
        ssm: SSMName = "mamba",
        state_dim: int = 16,
        expand: float = 1.25,
        conv_width: int = 4,
        head_dim: int = 20,
        exact_zoh: bool = False,
        kernel: str = "auto",
    ):
        super().__init__(
            token_spec,
            num_slots=1,
            dim=dim,
            stack_dim=None,
            num_layers=num_layers,
            num_heads=num_heads,
            encoder_layers=encoder_layers,
            mlp_ratio=mlp_ratio,
            ssm=ssm,
            state_dim=state_dim,
            expand=expand,
            conv_width=conv_width,
            head_dim=head_dim,
            exact_zoh=exact_zoh,
            kernel=kernel,
        )
