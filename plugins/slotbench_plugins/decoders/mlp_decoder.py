"""MLP decoder: all slots as one vector to one image."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor, nn

from slotbench.interfaces import Decoded, Decoder, SlotSpec, VideoBatch, VideoSpec
from slotbench.nn.linear import lecun_linear


class MLPDecoder(Decoder):
    """The slots one after the other as one vector, from which an MLP with one hidden layer makes all pixels at once.

    It has no masks, and slots in another order make another image. Its output is linear. For small frames it costs a
    fraction of what convolutions do.

    Args:
        slot_spec: the output of the core.
        video_spec: the image to produce.
        hidden_dim: width of the hidden layer.
    """

    def __init__(self, slot_spec: SlotSpec, video_spec: VideoSpec, hidden_dim: int = 256):
        super().__init__()
        self.slot_spec = slot_spec
        self.shape = (video_spec.channels, video_spec.height, video_spec.width)
        pixels = video_spec.channels * video_spec.height * video_spec.width
        self.mlp = nn.Sequential(
            lecun_linear(slot_spec.num_slots * slot_spec.dim, hidden_dim), nn.GELU(), lecun_linear(hidden_dim, pixels)
        )

    def forward(self, slots: Float[Tensor, "batch time slots dim"], batch: VideoBatch | None = None) -> Decoded:
        """The image of every step; `batch` is not read."""
        if slots.shape[2] != self.slot_spec.num_slots:
            raise ValueError(
                f"MLPDecoder was built for {self.slot_spec.num_slots} slots and got {slots.shape[2]}: for another "
                "number than in training use a decoder that paints slot by slot, such as SpatialBroadcastDecoder"
            )
        return Decoded(self.mlp(slots.flatten(2)).unflatten(-1, self.shape))
