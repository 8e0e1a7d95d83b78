"""A process knows from its environment which one of a run it is, and what the run can be named after."""

from __future__ import annotations

import pytest

from slotbench.runs.launch import Launch, find_launch

TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "1", "TORCHELASTIC_RESTART_COUNT": "0"}
SLURM = {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "41", "SLURM_STEP_ID": "0"}


def test_a_process_on_its_own_names_its_run_itself() -> None:
    assert find_launch(0, {}) == Launch(0)


def test_one_that_lightning_started_is_told_the_folder() -> None:
    assert find_launch(1, {"SLOTBENCH_RUN_DIR": "runs/a/b", "LOCAL_RANK": "1", "WORLD_SIZE": "2"}) == Launch(1)
    assert find_launch(0, {"NODE_RANK": "1"}).rank == 1


@pytest.mark.parametrize(("given", "job"), [("none", None), ("night", "torchrun-night")])
def test_torchrun_has_an_id_only_if_it_was_given_one(given: str, job: str | None) -> None:
    launch = find_launch(1, {**TORCHRUN, "TORCHELASTIC_RUN_ID": given})
    assert (launch.rank, launch.together, launch.job) == (1, True, job)


def test_torchrun_with_one_process_is_a_process_on_its_own() -> None:
    assert not find_launch(0, {**TORCHRUN, "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "none"}).together


def test_a_job_step_of_slurm_keeps_its_name_when_it_is_queued_again() -> None:
    first = find_launch(0, SLURM)
    again = find_launch(0, {**SLURM, "SLURM_RESTART_COUNT": "1"})
    assert (first.together, first.job) == (True, "slurm-41.0")
    assert again.job == first.job
    assert again.token != first.token


def test_a_job_step_of_one_task_is_a_process_on_its_own() -> None:
    assert find_launch(0, {**SLURM, "SLURM_NTASKS": "1"}) == Launch(0)


def test_processes_that_were_started_together_share_a_token_and_no_others_do() -> None:
    tokens = {find_launch(rank, {**TORCHRUN, "RANK": str(rank)}).token for rank in (0, 1)}
    assert len(tokens) == 1
    assert find_launch(0, {**TORCHRUN, "TORCHELASTIC_RESTART_COUNT": "1"}).token not in tokens
    assert find_launch(0, {**TORCHRUN, "MASTER_PORT": "2"}).token not in tokens
