"""LPIPS is the sum that its definition says, on frames in [0, 1]."""

import pytest
import torch
from torch import nn

from slotbench.metrics.lpips import LPIPS


class Tiny(nn.Module):
    """Two layers of features by hand: the colours, and the colours of the left half doubled, with one more channel."""

    def forward(self, images):
        half = 2 * images[..., : images.shape[-1] // 2]
        return [images, torch.cat([half, half[:, :1].square()], dim=1)]


HEADS = [torch.tensor([0.5, 0.25, 1.0]), torch.tensor([0.1, 0.2, 0.3, 0.4])]


def by_loops(x, y):
    """One frame "channels height width" each."""
    shift, scale, total = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450), 0.0
    scaled = []
    for frame in (x, y):
        rgb = [frame[0 if len(frame) == 1 else c] for c in range(3)]
        scaled.append(torch.stack([(2 * rgb[c] - 1 - shift[c]) / scale[c] for c in range(3)]))
    for a, b, head in zip(*(Tiny()(image[None]) for image in scaled), HEADS, strict=True):
        _, channels, rows, cols = a.shape
        layer = 0.0
        for i in range(rows):
            for j in range(cols):
                p, q = a[0, :, i, j], b[0, :, i, j]
                p, q = p / (p.norm() + 1e-10), q / (q.norm() + 1e-10)
                layer += sum(float(head[c] * (p[c] - q[c]) ** 2) for c in range(channels))
        total += layer / (rows * cols)
    return total


@pytest.mark.parametrize("channels", [1, 3])
def test_each_frame_has_the_distance_of_the_definition(channels):
    torch.manual_seed(0)
    predicted, true = torch.rand(2, 3, channels, 4, 6), torch.rand(2, 3, channels, 4, 6)
    found = LPIPS(Tiny(), HEADS)(predicted, true)
    assert found.shape == (2, 3)
    for i in range(2):
        for t in range(3):
            assert found[i, t].item() == pytest.approx(by_loops(predicted[i, t], true[i, t]), rel=1e-5)


def test_many_frames_are_the_frames_one_by_one():
    torch.manual_seed(0)
    lpips, a, b = LPIPS(Tiny(), HEADS), torch.rand(130, 1, 2, 2), torch.rand(130, 1, 2, 2)
    torch.testing.assert_close(lpips(a, b), torch.cat([lpips(a[i : i + 1], b[i : i + 1]) for i in range(130)]))
