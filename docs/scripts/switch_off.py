"""Says what the modules of a trained run are to one another: its error without communication, and without each module.

    python docs/scripts/switch_off.py RUN [RUN ...]

A run is one of `experiments/moving_sprites.yaml`, or another of RIM, OCRIM or SCOFF whose decoder can leave slots out.
A module is switched off in core and decoder, as if it were not there, or in the decoder alone, where it goes on being
heard; all else is as it was trained. Scored are the validation clips of the run. The scores go to
RUN/probe-switched.json, which `slotbench grid pack` keeps.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from slotbench.files import dump_json, write_atomically

SCORES = ("val/rollout_mse_sum", "val/rollout_mse/step_01")


@contextmanager
def switched(task, communication: str = "full", core: tuple[int, ...] = (), decoder: tuple[int, ...] = ()) -> Iterator:
    """The trained task with modules or communication off, and as it was afterwards."""
    before = task.core.communication_mode, task.core.disabled_slots, task.decoder.disabled_slots
    task.core.communication_mode, task.core.disabled_slots, task.decoder.disabled_slots = communication, core, decoder
    try:
        yield task
    finally:
        task.core.communication_mode, task.core.disabled_slots, task.decoder.disabled_slots = before


def ways(num_slots: int) -> dict[str, dict]:
    """What is switched off, by name."""
    return {
        "as trained": {},
        "no communication": {"communication": "off"},
        "each hears itself alone": {"communication": "self"},
        **{f"without module {index}": {"core": (index,), "decoder": (index,)} for index in range(num_slots)},
        **{f"module {index} not drawn": {"decoder": (index,)} for index in range(num_slots)},
    }


def main() -> int:
    """Scores each run in every way, prints that, and writes it into the run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run's folder")
    options = parser.parse_args()
    import lightning
    from draw_cores import Run

    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for folder in options.runs:
        run = Run(folder)
        task, data = run.load(), run.data()
        print(folder.name)
        found = {}
        for name, off in ways(task.core.slot_spec.num_slots).items():
            trainer = lightning.Trainer(
                accelerator="cpu",
                logger=False,
                enable_progress_bar=False,
                enable_model_summary=False,
                enable_checkpointing=False,
            )
            with switched(task, **off):
                scores = trainer.validate(task, data, verbose=False)[0]
            found[name] = {score.removeprefix("val/"): scores[score] for score in SCORES if score in scores}
            print(f"  {name}: {', '.join(f'{score} {value:.4g}' for score, value in found[name].items())}", flush=True)
        write_atomically(
            folder / "probe-switched.json", dump_json({"step": run.scores["step"], "scores": found}, indent=1)
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
