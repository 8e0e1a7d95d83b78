"""Operations that are counted are those that the papers' formulas give, at sizes where nothing is done in another way.

Multiply-adds of B clips of T steps with L tokens of width D and N slots; an operation is half of one.
"""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from slotbench import registry
from slotbench.bench.flops import count_flops
from slotbench.interfaces import TemporalCore, TokenSpec

B, L, D, N = 2, 16, 32, 4
SPEC = TokenSpec(D, L, (4, 4))


def core_of(name: str, **arguments) -> TemporalCore:
    return registry.load("cores", name)(SPEC, dim=D, **arguments)


def inference(core: TemporalCore, time: int) -> int | None:
    tokens = torch.randn(B, time, L, D)

    @torch.no_grad()
    def call() -> None:
        core(tokens)

    return count_flops(call, core)


def psb(time: int, layers: int) -> int:
    """PSB (Singh et al., 2024), Algorithm 1 and Table 2; the MLP of the time bias sees each offset once per layer."""
    bottom_up = 2 * L * D**2 + 2 * N * D**2 + 2 * time * N * L * D
    along_time = 4 * N * D**2 + 2 * N * time * D
    among_slots = 4 * N * D**2 + 2 * N**2 * D
    mlp = 8 * N * D**2
    time_bias = 16 * 128 + 128 * (1 + 4)
    return layers * 2 * time * (B * (bottom_up + along_time + among_slots + mlp) + time_bias)


def savi(time: int, iterations: int) -> int:
    """SAVi as PSB's paper has it, Appendix B.7: keys and values once, then iterations; a predictor between frames."""
    keys_and_values = 2 * L * D**2
    iteration = D**2 * N + 2 * N * L * D + 6 * N * D**2 + 8 * N * D**2  # query, attention, GRU, MLP
    predictor = 4 * N * D**2 + 2 * N**2 * D + 8 * N * D**2
    return 2 * B * (time * (keys_and_values + iterations * iteration) + (time - 1) * predictor)


def video_transformer(time: int, layers: int) -> tuple[int, int]:
    """(maps, attention) of a transformer over all tokens, nothing masked."""
    return layers * 2 * B * time * L * 12 * D**2, layers * 2 * B * 2 * (time * L) ** 2 * D


@pytest.mark.parametrize("time", [1, 2, 6])
def test_inference_is_what_the_formulas_say(time):
    assert inference(core_of("PSB", num_slots=N, num_layers=2), time) == psb(time, 2)
    assert inference(core_of("SAVi", num_slots=N, num_iterations=3), time) == savi(time, 3)
    assert inference(core_of("VideoTransformer", causal=False), time) == sum(video_transformer(time, 2))


def test_one_grows_with_the_length_and_the_others_with_its_square():
    for name, square in (("SAVi", False), ("PSB", True), ("VideoTransformer", True)):
        counts = [inference(core_of(name), time) for time in (2, 3, 4, 5)]
        second = {
            last - 2 * middle + first for first, middle, last in zip(counts, counts[1:], counts[2:], strict=False)
        }
        assert (second != {0}) == square
        assert len(second) == 1  # a + b T + c T^2


def test_a_training_step_has_the_gradients_too():
    core, tokens = core_of("VideoTransformer", causal=False), torch.randn(B, 3, L, D)
    maps, attention = video_transformer(3, 2)
    found = count_flops(lambda: core(tokens).slots.sum().backward())
    # of a map by its weight and by its input; of fused attention five products, the weights once more among them
    assert found == 3 * maps + attention + attention // 2 * 5


def test_products_in_place_and_fused_attention_are_counted():
    a, b, c = torch.randn(3, 4, 5), torch.randn(3, 5, 6), torch.zeros(3, 4, 6)
    assert count_flops(lambda: c.baddbmm_(a, b)) == count_flops(lambda: torch.bmm(a, b)) == 2 * 3 * 4 * 5 * 6
    assert count_flops(lambda: c[0].addmm_(a[0], b[0])) == 2 * 4 * 5 * 6
    assert count_flops(lambda: torch.addmv(c[0, :, 0], a[0], b[0, :, 0])) == 2 * 4 * 5
    query, key, value = (torch.randn(1, 2, length, 8, requires_grad=True) for length in (3, 7, 7))
    forward = 2 * 2 * 3 * 7 * (8 + 8)
    assert count_flops(lambda: scaled_dot_product_attention(query, key, value)) == forward
    whole = count_flops(lambda: scaled_dot_product_attention(query, key, value).sum().backward())
    assert whole == forward + 2 * 2 * 3 * 7 * (3 * 8 + 2 * 8)
