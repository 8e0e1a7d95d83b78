"""A training that is resumed with other settings goes on as one that had them from the start."""

from __future__ import annotations

import inspect
from functools import partial

import lightning
import pytest
import torch
from lightning.pytorch.callbacks import EarlyStopping, GradientAccumulationScheduler
from prediction_tasks import quiet_trainer
from torch import nn
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, ExponentialLR, LinearLR, OneCycleLR, SequentialLR
from unlisted_parts import TinyData, TinyTask

from slotbench import registry
from slotbench.data.base import LoaderOptions
from slotbench.tasks.optimisation import ConstantRate, WarmupCosine
from slotbench.tasks.optimizer_factories import TrainingSettingsError, build_optimizer, build_schedule

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*does not have many workers.*",
    "ignore:.*smaller than the logging interval.*",
    "ignore:.*hooks will not be called on every batch.*",
)
PLAIN = partial(SGD, lr=0.1)
OLD, NEW = 4, 10
# what a schedule is given where it has no default or none that moves in ten steps, and what is typed in its place
ARGUMENTS = {
    "ConstantLR": ({"factor": 0.5}, {"factor": 0.25}),
    "CosineAnnealingLR": ({}, {"eta_min": 0.01}),
    "CosineAnnealingWarmRestarts": ({"T_0": 3}, {"T_0": 2}),
    "CyclicLR": (
        {"base_lr": 0.1, "max_lr": 0.5, "step_size_up": 3},
        {"base_lr": 0.2, "max_lr": 0.7, "step_size_up": 2},
    ),
    "ExponentialLR": ({"gamma": 0.9}, {"gamma": 0.8}),
    "LinearLR": ({}, {"start_factor": 1.0, "end_factor": 0.1}),
    "MultiStepLR": ({"milestones": [2, 6]}, {"milestones": [1, 3, 5]}),
    "OneCycleLR": ({"max_lr": 0.5}, {"max_lr": 0.3}),
    "PolynomialLR": ({}, {"power": 2.0}),
    "StepLR": ({"step_size": 3}, {"step_size": 2}),
    "ConstantRate": ({}, {}),
    "WarmupCosine": ({"warmup": 0.25}, {"warmup": 0.5, "final_fraction": 0.1}),
    "WarmupHalfLife": ({"warmup_steps": 2, "half_life": 3}, {"warmup_steps": 3, "half_life": 5}),
    "WarmupStepsCosine": ({"warmup_steps": 1}, {"warmup_steps": 2}),
}


class Seen(lightning.Callback):
    """What the optimiser's first group held in each step, and the length of the training as each step saw it."""

    def __init__(self, path, step):
        self.path, self.step, self.groups, self.lengths = path, step, [], []

    def on_before_optimizer_step(self, trainer, module, optimizer):
        self.groups.append({name: value for name, value in optimizer.param_groups[0].items() if name != "params"})
        self.lengths.append(module.total_steps)

    def on_train_batch_end(self, trainer, *_):
        if self.path is not None and trainer.global_step == self.step and not self.path.exists():
            trainer.save_checkpoint(self.path, weights_only=False)

    def on_train_end(self, trainer, *_):
        if self.path is not None and self.step is None:
            trainer.save_checkpoint(self.path, weights_only=False)

    def rates(self, key="lr"):
        return [group[key] for group in self.groups]


def fitted(to=None, start=None, optimizer=PLAIN, schedule=ConstantRate, callbacks=(), batch=1, at=None, **trainer):
    """A task after a training, its trainer and what was seen; its checkpoint goes `to`. Four clips an epoch."""
    torch.manual_seed(0)
    data = TinyData(LoaderOptions(batch_size=batch))
    task = TinyTask(optimizer=optimizer, schedule=schedule, data_spec=data.spec)
    run = quiet_trainer(limit_val_batches=0, callbacks=[seen := Seen(to, at), *callbacks], **trainer)
    run.fit(task, data, ckpt_path=start, weights_only=True)
    return task, run, seen


def weights_of(task):
    return torch.cat([value.flatten() for value in task.state_dict().values()])


def from_the_start(optimizer, schedule, steps, key="lr"):
    """The values of a group in the steps of a training that has these settings from the start."""
    built = build_schedule(schedule, build_optimizer(optimizer, [nn.Parameter(torch.zeros(1))]), steps)
    found = []
    for _ in range(steps):
        found.append(built.optimizer.param_groups[0][key])
        built.optimizer.step()
        built.step()
    return found


def two_phases(optimizer, total_steps):
    rises = LinearLR(optimizer, 0.1, total_iters=total_steps // 2)
    return SequentialLR(optimizer, [rises, ExponentialLR(optimizer, 0.9)], milestones=[total_steps // 2])


def test_every_schedule_that_may_be_named_is_in_the_table():
    assert {*registry.names("schedules")} <= {*ARGUMENTS}


@pytest.mark.parametrize("name", [*ARGUMENTS, "two phases"])
def test_rates_are_those_of_a_training_that_had_the_settings_from_the_start(name, tmp_path):
    cls = two_phases if name == "two phases" else registry.load("schedules", name)
    given, typed = ARGUMENTS.get(name, ({}, {}))
    # nothing, the length, the rate with it, arguments of the schedule, and another schedule
    optimizer, slower = partial(SGD, lr=0.1, momentum=0.9), partial(SGD, lr=0.02, momentum=0.9)
    fitted(tmp_path / "a.ckpt", optimizer=optimizer, schedule=partial(cls, **given), max_steps=OLD)
    for factory, schedule in (
        (optimizer, partial(cls, **given)),
        (slower, partial(cls, **given)),
        (optimizer, partial(cls, **(given | typed))),
        (optimizer, WarmupCosine),
    ):
        *_, seen = fitted(tmp_path / "b.ckpt", tmp_path / "a.ckpt", optimizer=factory, schedule=schedule, max_steps=NEW)
        if name == "two phases" and factory is slower:
            continue  # a function cannot be written down, so that nobody knows that the optimiser is another
        for key in ("lr", "momentum"):
            assert seen.rates(key) == from_the_start(factory, schedule, NEW, key)[OLD:]
    # of the same length
    fitted(tmp_path / "c.ckpt", optimizer=optimizer, schedule=partial(cls, **given), max_steps=NEW, at=OLD)
    schedule = partial(cls, **(given | typed))
    *_, seen = fitted(None, tmp_path / "c.ckpt", optimizer=optimizer, schedule=schedule, max_steps=NEW)
    assert seen.rates() == from_the_start(optimizer, schedule, NEW)[OLD:]
    # the same once more, of a training that has ended twice
    *_, seen = fitted(None, tmp_path / "b.ckpt", schedule=WarmupCosine, optimizer=optimizer, max_steps=NEW + 3)
    assert seen.rates() == from_the_start(optimizer, WarmupCosine, NEW + 3)[NEW:]


UNUSED = {"SparseAdam", "LBFGS"}  # of sparse gradients, and of one group


@pytest.mark.parametrize("name", [name for name in registry.names("optimizers") if name not in UNUSED])
def test_numbers_of_an_optimiser_that_are_typed_are_used_and_its_state_stays(name, tmp_path):
    cls = registry.load("optimizers", name)
    defaults = {one.name: one.default for one in inspect.signature(cls).parameters.values()}
    numbers = {
        key: tuple(value / 2 for value in default) if isinstance(default, tuple) else default / 2
        for key, default in defaults.items()
        if key not in ("initial_accumulator_value", "d") and isinstance(default, float | tuple) and key != "etas"
        if not isinstance(default, tuple) or all(isinstance(value, float) for value in default)
    }
    fitted(tmp_path / "a.ckpt", optimizer=cls, max_steps=3)
    stored = torch.load(tmp_path / "a.ckpt", weights_only=True)["optimizer_states"][0]
    for typed in ({"lr": numbers["lr"]}, numbers):
        _, run, seen = fitted(None, tmp_path / "a.ckpt", optimizer=partial(cls, **typed), max_steps=5)
        for key in numbers:
            expected = typed.get(key, stored["param_groups"][0][key])
            assert seen.groups[0][key] == expected == seen.groups[-1][key], key
        steps = [state["step"] for state in run.optimizers[0].state.values() if "step" in state]
        assert all(step == 5 for step in steps)


def test_what_nobody_typed_is_what_the_checkpoint_has(tmp_path):
    class Decays(lightning.Callback):
        def on_train_batch_end(self, trainer, *_):
            for group in trainer.optimizers[0].param_groups:
                group["weight_decay"] = 0.25

    settings = {"schedule": CosineAnnealingLR, "max_steps": 6}
    fitted(tmp_path / "a.ckpt", optimizer=partial(Adam, lr=0.1), callbacks=[Decays()], at=4, **settings)
    for typed in ({"eps": 1e-5}, {"lr": 0.2}, {"betas": (0.5, 0.9)}):
        given = {"lr": 0.1, "eps": 1e-8, "betas": (0.9, 0.999)} | typed
        *_, seen = fitted(None, tmp_path / "a.ckpt", optimizer=partial(Adam, **({"lr": 0.1} | typed)), **settings)
        assert {name: seen.groups[0][name] for name in ("eps", "betas")} == {k: given[k] for k in ("eps", "betas")}
        assert seen.rates() == from_the_start(partial(Adam, lr=given["lr"]), CosineAnnealingLR, 6)[4:]
        assert seen.groups[0]["weight_decay"] == 0.25


def test_momenta_that_a_schedule_moves_are_of_the_new_settings(tmp_path):
    schedule = partial(OneCycleLR, max_lr=0.5)
    fitted(tmp_path / "a.ckpt", optimizer=partial(Adam, lr=0.1), schedule=schedule, max_steps=OLD)
    faster = partial(Adam, lr=0.1, betas=(0.8, 0.99))
    *_, seen = fitted(None, tmp_path / "a.ckpt", optimizer=faster, schedule=schedule, max_steps=NEW)
    assert seen.rates("betas") == from_the_start(faster, schedule, NEW, "betas")[OLD:]


@pytest.mark.parametrize(
    ("optimizer", "said"),
    [
        (partial(SGD, lr=0.1), "SGD cannot use the state that Adam has in the run"),
        (partial(Adam, lr=0.1, amsgrad=True), "Adam has in the run: 'max_exp_avg_sq'\n.*model.optimizer.amsgrad"),
        (partial(Adam, lr=0.01), None),
    ],
)
def test_what_cannot_be_changed_is_refused_by_name(optimizer, said, tmp_path):
    fitted(tmp_path / "a.ckpt", optimizer=partial(Adam, lr=0.1), max_steps=2)
    checkpoint = torch.load(tmp_path / "a.ckpt", weights_only=True)
    task = TinyTask(optimizer=optimizer, schedule=ConstantRate, data_spec=TinyData(LoaderOptions()).spec)
    if said is None:
        task.check_resumed(checkpoint)
        return
    with pytest.raises(TrainingSettingsError, match=said) as refused:
        task.check_resumed(checkpoint)
    assert "--model.init_from RUN" in str(refused.value)
    task = TinyTask(optimizer=partial(Adam, lr=0.1), schedule=ConstantRate, data_spec=TinyData(LoaderOptions()).spec)
    task.part_rates = {"core": 0.1}
    with pytest.raises(TrainingSettingsError, match=r"different number of parameter groups"):
        task.check_resumed(checkpoint)


class Warms(lightning.Callback):
    """A callback whose state begins with its setting and moves on."""

    def __init__(self, heat=1.0, label="a"):
        self._heat, self.label = heat, label

    def on_train_batch_end(self, *_):
        self._heat += 1

    def state_dict(self):
        return {"heat": self._heat, "label": self.label}

    def load_state_dict(self, state):
        self._heat, self.label = state["heat"], state["label"]


def test_settings_of_callbacks_that_are_typed_win_and_others_come_from_the_checkpoint(tmp_path):
    def stopping(patience):
        return EarlyStopping("train_loss", patience=patience, strict=False, check_on_train_epoch_end=True)

    fitted(tmp_path / "a.ckpt", callbacks=[stopping(3), Warms(5.0)], max_steps=4)
    for patience, warms, heat, label in (
        (3, Warms(5.0), 8, "a"),
        (7, Warms(5.0, "b"), 8, "b"),
        (7, Warms(2.0), 2, "a"),
    ):
        stops = stopping(patience)
        fitted(None, tmp_path / "a.ckpt", callbacks=[stops, warms], max_steps=4)
        assert (stops.patience, warms._heat, warms.label) == (patience, heat + (heat == 8), label)


# settings of the trainer, of what a batch is, and the steps of the training
LENGTHS = [
    ({"max_epochs": 3}, [], 12),
    ({"max_epochs": 3, "limit_train_batches": 3}, [], 9),
    ({"max_epochs": 3, "accumulate_grad_batches": 3}, [], 6),
    ({"max_epochs": 3, "max_steps": 7}, [], 7),
    ({"max_steps": 7}, [], 7),
    ({"max_epochs": 4}, [{1: 2, 3: 4}], 4 + 2 + 2 + 1),
    ({"max_epochs": 4, "max_steps": 7}, [{1: 2, 3: 4}], 7),
    ({"max_epochs": 3, "limit_train_batches": 3}, [{0: 2, 2: 1}], 2 + 2 + 3),
]


@pytest.mark.parametrize(("trainer", "accumulated", "steps"), LENGTHS)
def test_steps_are_counted_once_and_for_all_steps(trainer, accumulated, steps, tmp_path):
    callbacks = [GradientAccumulationScheduler(dict(one)) for one in accumulated]
    task, run, seen = fitted(
        tmp_path / "a.ckpt", schedule=partial(WarmupCosine, warmup=0.3), callbacks=callbacks, **trainer
    )
    assert run.global_step == steps
    assert seen.lengths == [steps] * steps
    assert (task.total_steps, task.progress) == (steps, 1.0)
    assert seen.rates() == from_the_start(partial(SGD, lr=0.1), partial(WarmupCosine, warmup=0.3), steps)


@pytest.mark.parametrize("step", [2, 4, 5, 8])
def test_a_training_with_accumulation_by_epochs_resumes_to_the_bit(step, tmp_path):
    def accumulated():
        return GradientAccumulationScheduler({1: 2, 3: 4})

    options = {"schedule": WarmupCosine, "max_epochs": 4}
    whole, *_ = fitted(tmp_path / "a.ckpt", callbacks=[accumulated()], at=step, **options)
    task, run, seen = fitted(None, tmp_path / "a.ckpt", callbacks=[accumulated()], **options)
    assert run.global_step == 9
    assert seen.lengths == [9] * (9 - step)
    assert torch.equal(weights_of(task), weights_of(whole))


@pytest.mark.parametrize(
    ("changed", "steps"),
    [
        ({"max_epochs": 6}, 24),
        ({"max_epochs": 4, "batch": 2}, 8 + 2 * 2),
        ({"max_epochs": 4, "accumulate_grad_batches": 4}, 8 + 2),
        ({"max_epochs": 4, "accumulate_grad_batches": 3}, 8 + 2 * 2),
        ({"max_epochs": 6, "limit_train_batches": 3}, 8 + 4 * 3),
        ({"max_epochs": 4, "max_steps": 10}, 10),
    ],
)
def test_the_steps_of_a_resumed_training_are_those_that_it_ends_after(changed, steps, tmp_path):
    schedule = CosineAnnealingLR
    fitted(tmp_path / "a.ckpt", schedule=schedule, at=8, max_epochs=4)
    *_, seen = fitted(tmp_path / "b.ckpt", tmp_path / "a.ckpt", schedule=schedule, at=9, **changed)
    assert seen.lengths == [steps] * (steps - 8)
    assert seen.rates() == from_the_start(PLAIN, schedule, steps)[8:]
    # and once more, with what was changed
    task, run, seen = fitted(None, tmp_path / "b.ckpt", schedule=schedule, **changed)
    assert run.global_step == steps == task.total_steps
    assert seen.rates() == from_the_start(PLAIN, schedule, steps)[9:]
