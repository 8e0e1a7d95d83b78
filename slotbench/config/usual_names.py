"""What other tools call a setting, or an option of the run, for the sentence that says what it is called here."""

from __future__ import annotations

__all__ = ["USUAL"]

USUAL = {
    word: ours
    for ours, words in {
        "model": "task",
        "model.core.num_slots": "num_slots slots",
        "model.init_from": "pretrained weights finetune_from",
        "model.optimizer": "opt optim",
        "model.optimizer.lr": "lr learning_rate",
        "model.optimizer.weight_decay": "weight_decay wd",
        "model.schedule": "sched scheduler lr_scheduler",
        "data": "dataset",
        "data.loader.batch_size": "batch_size batch bs b per_device_train_batch_size",
        "data.loader.num_workers": "num_workers workers j dataloader_num_workers",
        "data.path": "data_dir data_path data_root dataset_path dataset_dir root",
        "trainer.accelerator": "device",
        "trainer.accelerator cpu": "cpu no_cuda use_cpu",
        "trainer.accelerator cuda": "cuda",
        "trainer.accumulate_grad_batches": "gradient_accumulation_steps grad_accum",
        "trainer.devices": "gpus gpu num_gpus",
        "trainer.fast_dev_run true": "dry_run smoke_test",
        "trainer.gradient_clip_val": "clip_grad grad_clip max_grad_norm",
        "trainer.log_every_n_steps": "log_interval log_every logging_steps",
        "trainer.max_epochs": "epochs num_epochs num_train_epochs",
        "trainer.max_steps": "max_steps steps num_steps iters iterations max_iters",
        "trainer.precision 16-mixed": "fp16 amp mixed_precision",
        "trainer.precision bf16-mixed": "bf16",
        "trainer.val_check_interval": "eval_every eval_steps val_every val_interval",
        "config": "cfg experiment yaml",
        "debug": "verbose",
        "name": "exp exp_name experiment_name run_name wandb_name",
        "quiet": "silent disable_tqdm",
        "resume": "resume_from resume_from_checkpoint",
        "runs_dir": "out out_dir output output_dir save_dir log_dir logdir",
        "seed_everything": "seed",
        "wandb": "wandb_mode",
        "wandb online": "use_wandb report_to",
        "wandb_entity": "entity",
        "wandb_project": "project",
        "wandb_tags": "tags",
    }.items()
    for word in words.split()
}
"""The name here of a name elsewhere, with a value where the name elsewhere says no more than that."""
