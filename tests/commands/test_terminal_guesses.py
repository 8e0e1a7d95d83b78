"""What a newcomer types first is done, or is answered by one sentence that says what to type; never by a traceback."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import yaml

from slotbench import __version__
from slotbench.cli import run
from slotbench.runs.folder import RunFolder

ROOT = Path(__file__).parents[2]
FIT = ["fit", "--config", "experiments/blinking_balls.yaml"]

# what is typed after `slotbench`, and what the answer says; the first words in brackets stand for FIT
REFUSED = {
    # of `fit`, in the words of other tools
    "FIT --lr 1e-3": "no argument --lr; did you mean --model.optimizer.lr?",
    "FIT --learning-rate 1e-3": "did you mean --model.optimizer.lr?",
    "FIT --weight_decay 0.1": "did you mean --model.optimizer.weight_decay?",
    "FIT --opt adamw": "did you mean --model.optimizer?",
    "FIT --sched cosine": "did you mean --model.schedule?",
    "FIT --device cuda": "did you mean --trainer.accelerator?",
    "FIT --device gpu": "did you mean --trainer.accelerator?",
    "FIT --device cpu": "did you mean --trainer.accelerator?",
    "FIT --cpu": "did you mean --trainer.accelerator cpu?",
    "FIT --gpus 2": "did you mean --trainer.devices?",
    "FIT --trainer.gpus 2": "the trainer has no argument gpus; did you mean --trainer.devices?",
    "FIT --fp16": "did you mean --trainer.precision 16-mixed?",
    "FIT --amp": "did you mean --trainer.precision 16-mixed?",
    "FIT --epochs 3": "did you mean --trainer.max_epochs?",
    "FIT --num_train_epochs 3": "did you mean --trainer.max_epochs?",
    "FIT --max-steps 3": "did you mean --trainer.max_steps?",
    "FIT --batch_size 8": "did you mean --data.loader.batch_size?",
    "FIT --batch-size 8": "no argument --batch-size; did you mean --data.loader.batch_size?",
    "FIT -b 8": "did you mean --data.loader.batch_size?",
    "FIT --workers 2": "did you mean --data.loader.num_workers?",
    "FIT --clip-grad 1": "did you mean --trainer.gradient_clip_val?",
    "FIT --dry-run": "did you mean --trainer.fast_dev_run true?",
    "FIT --pretrained": "did you mean --model.init_from?",
    "FIT --num_slots 3": "did you mean --model.core.num_slots?",
    "FIT --core RIM": "did you mean --model.core?",
    "FIT --model.lr 0.1": "LongContextReasoning has no argument lr; did you mean --model.optimizer.lr?",
    "FIT --model RIM": "no task named RIM (RIM is another kind: core); did you mean --model.core RIM?",
    "FIT --model.core SlotSMM": "no core named SlotSMM; did you mean SlotSSM?",
    "FIT --data_dir videos": "did you mean --data.path?",
    "FIT --output_dir out": "did you mean --runs_dir?",
    "FIT --run_name mine": "did you mean --name?",
    "FIT --resume_from_checkpoint last": "did you mean --resume?",
    "FIT --checkpoint last": "to resume: slotbench fit --resume RUN",
    "FIT --verbose": "did you mean --debug?",
    "FIT --seed": "--seed_everything needs a value",
    "FIT --seed abc": "seed_everything cannot be abc",
    # of Weights & Biases
    "FIT --wandb": "--wandb needs a value expected: --wandb off|offline|online",
    "FIT --wandb --name mine": "--wandb needs a value expected: --wandb off|offline|online",
    "FIT --wandb true": "--wandb cannot be true expected: --wandb off|offline|online",
    "FIT --report_to wandb": "did you mean --wandb online?",
    "FIT --project mine": "did you mean --wandb_project?",
    "FIT --wandb-project mine": "did you mean --wandb_project?",
    # of Lightning and Hydra
    "FIT --trainer.logger CSVLogger": "CSVLogger needs save_dir expected: --trainer.logger.save_dir text or a path",
    "FIT --trainer.logger csv": "logger of the trainer cannot be csv",
    "FIT --trainer.callbacks+ EarlyStopping": "EarlyStopping needs monitor expected: --trainer.callbacks.monitor text",
    "FIT --trainer.callbacks EarlyStopping": "EarlyStopping needs monitor expected: --trainer.callbacks.monitor text",
    "FIT --trainer.callbacks+ EarlyStoping": "no Callback named EarlyStoping; did you mean EarlyStopping?",
    "FIT --trainer.callbacks+=EarlyStopping --trainer.callbacks.patiense 3": "did you mean patience?",
    "FIT trainer.max_steps=10": "trainer.max_steps=10 stands alone expected: --trainer.max_steps=10",
    # of files and runs
    "fit": "fit needs an experiment example: slotbench fit --config experiments/blinking_balls.yaml",
    "fit blinking_balls": "no file blinking_balls; did you mean experiments/blinking_balls.yaml?",
    "fit --config blinking_balls": "no file blinking_balls; did you mean experiments/blinking_balls.yaml?",
    "fit --config blinking-balls.yaml": "no file blinking-balls.yaml; did you mean experiments/blinking_balls.yaml?",
    "fit --config experiments": "experiments is a directory; --config takes a YAML file",
    "fit --resume runs/mine/1": "no run folder at runs/mine/1: there is no such path",
    "fit --resume": "--resume needs a value expected: --resume RUN",
    "test": "test needs an experiment example: slotbench test runs/NAME/ID",
    "test runs/mine/1": "no run folder at runs/mine/1: there is no such path",
    "predict clip.mp4": "clip.mp4 is a file; expected a run folder",
    "show": "show needs a configuration",
    "show videos": "videos is not a run folder: it has no run.json",
    "show blinking_balls": "no file blinking_balls; did you mean experiments/blinking_balls.yaml?",
    "show runs/mine/1": "no file runs/mine/1",
    # of commands
    "train --config x.yaml": "no command named train; did you mean slotbench fit?",
    "eval runs/mine/1": "no command named eval; did you mean slotbench test?",
    "list": "no command named list; did you mean slotbench plugins?",
    "resume runs/mine/1": "did you mean slotbench fit --resume RUN?",
    "--config x.yaml": "did you mean slotbench fit --config x.yaml?",
    "--resume runs/mine/1": "did you mean slotbench fit --resume runs/mine/1?",
    "plugins corse": "no kind of component named corse; did you mean cores?",
}

# what is typed of the run that `trained` makes
REFUSED_OF_A_RUN = {
    "predict RUN nowhere.mp4": "there is nothing at nowhere.mp4; expected slotbench predict RUN VIDEO",
    "predict RUN videos/mine_0.npy videos/mine_1.npy": "predict takes one video, and videos/mine_0.npy and",
    "test RUN videos": "slotbench predict RUN videos draws it",
    "test RUN mine.yaml": "mine.yaml stands alone expected: --config mine.yaml",
    "fit RUN": "is a run; --config takes a YAML file to resume it: slotbench fit --resume RUN",
    "fit --config mine.yaml --trainer.accelerator mps": "expected: --trainer.accelerator auto, or cpu",
    "fit --config mine.yaml --data.path nowhere": "there is nothing at nowhere; expected a folder of videos",
    "predict RUN --data.path nowhere": "there is nothing at nowhere; expected a folder of videos",
}

MINE = {
    "model": {
        "class_path": "SlotAutoencoding",
        "init_args": {
            "encoder": {"class_path": "PatchEncoder", "init_args": {"dim": 8}},
            "core": {"class_path": "SlotAttention", "init_args": {"num_slots": 2, "dim": 8}},
            "decoder": {"class_path": "SpatialBroadcastDecoder", "init_args": {"channels": 4}},
        },
    },
    "data": {
        "class_path": "VideoFolder",
        "init_args": {"path": "videos", "num_frames": 2, "eval_frames": 2, "resolution": 16},
    },
    "trainer": {"max_steps": 1, "limit_val_batches": 0, "accelerator": "cpu"},
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working folder with an experiment, an empty clip.mp4, and videos."""
    folder = tmp_path_factory.mktemp("guesses")
    (folder / "experiments").mkdir()
    shutil.copy(ROOT / "experiments" / "blinking_balls.yaml", folder / "experiments")
    (folder / "mine.yaml").write_text(yaml.safe_dump(MINE))
    (folder / "clip.mp4").touch()
    (folder / "videos").mkdir()
    for number in range(2):
        clip = np.random.default_rng(number).integers(0, 256, (2, 24, 24, 3), dtype=np.uint8)
        np.save(folder / "videos" / f"mine_{number}.npy", clip)
    return folder


@pytest.fixture(autouse=True)
def here(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    monkeypatch.delenv("SLOTBENCH_RUN_DIR", raising=False)


def answer(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    capsys.readouterr()
    assert run(arguments) == code
    said = capsys.readouterr()
    assert "Traceback" not in said.err
    return said.err if code else said.out


@pytest.fixture(scope="module")
def trained(place: Path) -> tuple[Path, str]:
    """A run, and what `fit` has printed."""
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.chdir(place)
        patch.delenv("SLOTBENCH_RUN_DIR", raising=False)
        assert run(["fit", "mine.yaml", "--seed", "3", "--quiet", "--runs_dir", "kept"]) == 0
    (folder,) = (place / "kept" / "mine").iterdir()
    return folder.relative_to(place), printed.getvalue()


@pytest.mark.parametrize("typed", REFUSED)
def test_a_first_guess_is_answered_by_a_sentence_that_says_what_to_type(
    typed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = typed.split()
    said = answer(capsys, *(FIT if words[0] == "FIT" else words[:1]), *words[1:], code=2)
    assert said.startswith("slotbench: ")
    assert REFUSED[typed] in " ".join(said.split())
    assert len(said.splitlines()) <= 8
    assert not Path("runs").exists()


@pytest.mark.parametrize("typed", REFUSED_OF_A_RUN)
def test_a_first_guess_about_a_run_or_its_data_is_answered_likewise(
    typed: str, trained: tuple[Path, str], capsys: pytest.CaptureFixture[str]
) -> None:
    said = answer(capsys, *(str(trained[0]) if word == "RUN" else word for word in typed.split()), code=2)
    assert said.startswith("slotbench: ")
    assert REFUSED_OF_A_RUN[typed] in " ".join(said.split()).replace(str(trained[0]), "RUN")
    assert not Path("runs").exists()


def test_the_path_of_data_is_checked_before_there_is_a_run_folder(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "create", None)
    for data in ("--data.path nowhere", "--data MOVi --data.path nowhere --data.resolution 16"):
        assert " nowhere" in answer(capsys, "fit", "mine.yaml", *data.split(), code=2)


def test_a_file_is_trained_with_a_seed_and_quietly(trained: tuple[Path, str]) -> None:
    folder, printed = trained
    assert printed == f"{folder}\n"
    assert yaml.safe_load((folder / "config.yaml").read_text())["seed_everything"] == 3


def test_a_run_is_shown_as_yaml_and_json(trained: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(trained[0])
    shown = answer(capsys, "show", folder)
    assert shown == Path(folder, "config.yaml").read_text()
    assert json.loads(answer(capsys, "show", folder, "--json")) == yaml.safe_load(shown)
    changed = answer(capsys, "show", "--json", "mine.yaml", "--seed=5")
    assert json.loads(changed)["seed_everything"] == 5


def test_a_video_is_predicted(trained: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    answer(capsys, "predict", str(trained[0]), "videos/mine_1.npy", "--save", "masks", "--quiet")
    (saved,) = trained[0].glob("media/predict-*/*.npz")
    assert saved.name == "video0000_mine_1.npz"


def test_a_finished_run_quietly_names_its_folder(trained: tuple[Path, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "fit", "--resume", str(trained[0]), "--quiet") == f"{trained[0]}\n"


def test_help_of_a_command_and_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert answer(capsys, "help", "fit") == answer(capsys, "fit", "--help")
    assert answer(capsys, "help", "grid") == answer(capsys, "grid", "--help")
    assert answer(capsys, "help") == answer(capsys, "--help")
    assert answer(capsys, "--version") == answer(capsys, "version") == f"slotbench {__version__}\n"
