"""Arguments of data sets that cannot be are refused by name when the set is made, with what was expected."""

from __future__ import annotations

from typing import Any

import pytest

from slotbench.registry import load

REFUSED: dict[str, list[tuple[dict[str, Any], str]]] = {
    "BouncingBalls": [
        ({"num_frames": 0}, "num_frames is 0; expected 1 or more"),
        ({"eval_frames": 0}, "eval_frames is 0; expected 1 or more"),
        ({"resolution": 0}, "resolution is 0; expected 1 or more"),
    ],
    "BlinkingBalls": [
        ({"resolution": 62}, "resolution is 62 at patches_per_side=4; expected a multiple of 16.*use resolution=64"),
        ({"resolution": 32, "patches_per_side": 16}, "a multiple of 64, because each patch is cut into tokens"),
        ({"patches_per_side": 0}, "patches_per_side is 0; expected 1 or more"),
        ({"num_frames": 1}, "num_frames is 1; expected 2 or more"),
        ({"num_balls": 40}, "no room for num_balls=40"),
    ],
    "MovingMNIST": [
        ({"num_frames": 0}, "num_frames is 0; expected 1 or more"),
        ({"eval_frames": 0}, "eval_frames is 0; expected 1 or more"),
        ({"digit_size": 0}, "digit_size is 0; expected 1 or more"),
        ({"num_digits": 0}, "num_digits is 0; expected 1 to 255"),
        ({"num_digits": 256}, "num_digits is 256; expected 1 to 255"),
        ({"resolution": 27}, "resolution is 27 and digit_size 28"),
        ({"step": 0.0}, "step is 0.0; expected more than 0"),
        ({"step": 1.5}, "step is 1.5; expected more than 0 and at most 1"),
        ({"mask_threshold": 255}, "mask_threshold is 255; expected 0 to 254"),
    ],
    "MovingSprites": [
        ({"num_sprites": 0}, "num_sprites is 0; expected 1 to 255"),
        ({"resolution": 0}, "resolution is 0; expected 1 or more"),
        ({"base_size": 65.0}, "base_size is 65.0; expected pixels of a frame of 64"),
        ({"speed": -1.0}, "speed is -1.0"),
        ({"colours": ("white",)}, r"colours is \['white'\]; expected one or more of red, green, blue"),
        ({"colours": ()}, r"colours is \[\]"),
        ({"birth_probability": 0.0}, "birth_probability is 0.0; expected more than 0 and at most 1"),
        ({"birth_frames": 0}, "birth_frames is 0; expected 1 or more"),
        ({"eval_frames": 0}, "eval_frames is 0; expected 1 or more"),
    ],
    "CATERLike": [
        ({"num_frames": 241}, "num_frames is 241; expected at most video_frames, which is 240"),
        ({"grid": 1}, "grid is 1; expected 2 to 12"),
        ({"num_cones": 0}, "num_cones is 0; expected 1 or more"),
        ({"num_objects": (2, 6)}, "expected the fewest and the most, at least 3"),
        ({"other_shapes": ["gear"]}, "expected some of cube, cylinder, sphere, cone"),
        ({"observation": "sounds"}, "observation is 'sounds'; expected one of images, objects"),
        ({"observation": "objects", "depth": True}, "depth is that of images"),
        ({"zoom": 0.5}, "zoom is 0.5; expected 0.9 or more"),
        ({"actions": "one"}, "actions is 'one'; expected one of all, max2"),
    ],
    "MOViLike": [
        ({"num_objects": (4, 3)}, r"num_objects is \[4, 3\]; expected the fewest and the most, 1 to 255"),
        ({"object_sizes": (1.4, 0.7)}, r"object_sizes is \[1.4, 0.7\]; expected the small and the large"),
        ({"spread": 6.0}, "spread is 6.0; expected above 0 and at most 5"),
        ({"lowest_camera": 20}, "lowest_camera is 20.0; expected degrees above the floor, from 30 to below 90"),
        ({"orbit": 200}, "orbit is 200.0; expected degrees per frame, from -180 to 180"),
        ({"zoom": 0.5}, "zoom is 0.5; expected 0.8 or more"),
        ({"num_frames": 25}, "num_frames is 25; expected at most video_frames, which is 24"),
        ({"eval_frames": 0}, "eval_frames is 0; expected 1 or more"),
        ({"samples_per_side": 0}, "samples_per_side is 0; expected 1 or more"),
        ({"scene_seed": -1}, "scene_seed is -1; expected 0 or more"),
        ({"train_videos": 0}, "train_videos is 0; expected 1 or more"),
    ],
    "MultiCameraLike": [
        ({"level": "hard"}, "level is 'hard'; expected one of simple"),
        ({"frame": "last"}, "frame is 'last'; expected one of world, first"),
        ({"num_shown": 6}, "num_shown is 6; expected at most 5, the cameras of a step"),
        ({"eval_shown": 0}, "eval_shown is 0; expected 1 or more"),
        ({"num_shown": 1}, "num_shown is 1; expected 2 or more, several views per step"),
        ({"num_frames": 33}, "num_frames is 33; expected at most video_frames, which is 32"),
        ({"scene_seed": -1}, "scene_seed is -1; expected 0 or more"),
    ],
    "CLEVR3D": [
        ({"path": "nowhere", "num_shown": 4}, "num_shown is 4; expected at most 3, the cameras of a step"),
        ({"path": "nowhere", "height": 0}, "height is 0; expected 1 or more"),
    ],
    "UORFScenes": [
        ({"path": "nowhere", "focal": 0.0}, "focal is 0.0; expected more than 0, a share of the image's width"),
        ({"path": "nowhere", "val_scenes": 0}, "val_scenes is 0; expected 1 or more"),
    ],
    "PosedVideoFolder": [
        ({"path": "nowhere", "num_cameras": 0}, "num_cameras is 0; expected 1 or more"),
        ({"path": "nowhere", "num_cameras": 3, "num_shown": 1}, "num_shown is 1; expected 2 or more"),
    ],
    "CLEVRER": [
        ({"path": "nowhere", "fit": "squeeze"}, "fit is 'squeeze'; expected one of stretch, crop"),
        ({"path": "nowhere", "test_split": "val"}, "test_split is 'val'; expected one of test, validation"),
        ({"path": "nowhere", "stride": 0}, "stride is 0; expected 1 or more"),
    ],
    "ActionVideos": [
        ({"path": "nowhere", "action_offset": 2}, "action_offset is 2; expected 0 where entry t of the actions is"),
        ({"path": "nowhere", "num_actions": 0}, "num_actions is 0; expected 1 or more"),
        ({"path": "nowhere", "val_videos": 0}, "val_videos is 0; expected 1 or more"),
    ],
}


@pytest.mark.parametrize(
    ("name", "arguments", "sentence"), [(name, *case) for name, cases in REFUSED.items() for case in cases]
)
def test_arguments_that_cannot_be_are_refused(name: str, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        load("datasets", name)(**arguments)
