"""PSB's models in three dimensions, as the experiments build them, have the layers of the paper's Tables 6 to 12."""

from __future__ import annotations

import pytest
from test_object_discovery_sizes import built, config_of, count

from slotbench.data.multi_camera_like.multi_camera_like import MultiCameraLike
from slotbench.interfaces import VideoSpec

NAMES = [f"{level}3d_psb_{decoder}" for level in ("simple", "ego") for decoder in ("slotmixer", "nerf")]
TOTALS = dict(zip(NAMES, (13_667_739, 12_550_691, 18_278_043, 17_160_995), strict=True))
STATIC = {"simple": (9_634_944, 8_298_432, 6), "ego": (14_245_056, 12_908_544, 7)}
"""Parameters of the encoder and of its convolutions behind the first, and slots."""


def data_of(name, **changed):
    given = config_of(name)["data"]["init_args"]
    return MultiCameraLike(**{key: value for key, value in given.items() if key != "loader"} | changed)


def parts_of(name):
    parts, spec = config_of(name)["model"]["init_args"], data_of(name).spec
    encoder = built("encoders", parts["encoder"], spec.input)
    core = built("cores", parts["core"], encoder.token_spec)
    image = VideoSpec(spec.input.channels, spec.input.height, spec.input.width)
    return encoder, core, built("decoders", parts["decoder"], core.slot_spec, image)


@pytest.mark.parametrize("name", NAMES)
def test_every_part_has_as_many_parameters_as_the_header_says(name):
    encoder, core, decoder = parts_of(name)
    whole, convs, slots = STATIC[name.partition("3d")[0]]
    assert count(encoder) == whole
    assert count(encoder.convs) == convs
    assert encoder.token_spec.num_tokens == 1024 * config_of(name)["data"]["init_args"]["num_shown"]
    assert [count(layer) for layer in core.layers] == 3 * [743_368]
    assert count(core) == 2_230_488 + slots * 192
    if name.endswith("nerf"):
        assert count(decoder) == 684_107
        assert [count(block) for block in (decoder.field.block1, decoder.field.block2)] == [149_376, 74_880]
    else:
        assert count(decoder) == 1_801_155
        assert count(decoder.mlp) == 298_368
    assert sum(map(count, (encoder, core, decoder))) == TOTALS[name]


@pytest.mark.parametrize("level", STATIC)
def test_two_experiments_of_a_level_differ_by_decoder_and_rays_alone(level):
    mixer, nerf = (config_of(f"{level}3d_psb_{decoder}") for decoder in ("slotmixer", "nerf"))
    for name in ("decoder", "rays_per_step", "rays_at_once"):
        assert mixer["model"]["init_args"].pop(name) != nerf["model"]["init_args"].pop(name)
    assert mixer == nerf


def test_training_is_that_of_psb_on_movi():
    movi = config_of("movi_a_psb")
    for name in NAMES:
        config = config_of(name)
        for part in ("optimizer", "schedule", "decay"):
            assert config["model"]["init_args"][part] == movi["model"]["init_args"][part]
        assert config["trainer"] == movi["trainer"]
        for setting in ("num_frames", "eval_frames"):
            assert config["data"]["init_args"][setting] == movi["data"]["init_args"][setting]
        assert config["data"]["init_args"]["loader"]["batch_size"] == movi["data"]["init_args"]["loader"]["batch_size"]


@pytest.mark.parametrize("level", STATIC)
def test_what_the_cameras_see_lies_between_the_nearest_and_the_farthest_point_of_a_ray(level):
    pytest.importorskip("mujoco")
    name = f"{level}3d_psb_nerf"
    decoder = config_of(name)["model"]["init_args"]["decoder"]["init_args"]
    videos = data_of(name, resolution=16).simulated("train")
    for video in range(4):
        made = videos.video(video)
        depth, masks, cameras = (made[key] for key in ("depth", "masks", "cameras"))
        assert depth.min() > decoder["near"]
        # behind it the ground goes on to the horizon ("simple"), or there is nothing
        seen = depth[masks > 0] if level == "simple" else depth[depth < 1000]
        assert (seen < decoder["far"]).mean() > 0.999
        # codes repeat at twice the bound: no point of a ray has that of a place among the cameras
        assert decoder["far"] + 2 * abs(cameras[..., :3, 3]).max() < 2 * decoder["max_value"]
