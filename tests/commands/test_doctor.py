"""`slotbench doctor`: what it finds, what it says is broken, and its exit codes."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from collections.abc import Iterator
from pathlib import Path

import pytest

from slotbench import ops, registry
from slotbench.cli import run
from slotbench.health import kernels, machine, packages, tools
from slotbench.health.examination import all_checks
from slotbench.health.findings import Check, Finding, ok, run_check
from slotbench.ops.dispatch import KERNELS

Usage = namedtuple("Usage", "total used free")


def found_by(*names: str, runs: Path = Path("runs")) -> dict[str, Finding]:
    """The findings of a group, or of single names."""
    checks = [check for check in all_checks(runs) if {check.group, *check.names} & {*names}]
    return {finding.name: finding for check in checks for finding in run_check(check)}


def asked(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, dict]]:
    code = run(["doctor", *arguments, "--json"])
    document = json.loads(capsys.readouterr().out)
    assert document["exit_code"] == code
    return code, {finding["name"]: finding for finding in document["findings"]}


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in front of the path, whose distributions hide the installed ones."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_failures", {})
    clear()
    yield tmp_path
    clear()


def clear() -> None:
    packages._installed.cache_clear()
    packages.requirements.cache_clear()


def only_cores(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    """The others need not be imported to see what is said of these."""
    monkeypatch.setattr(registry, "names", lambda kind: list(names) if kind == "cores" else [])


def distribution(folder: Path, name: str, version: str, requires: tuple[str, ...] = (), entry: str = "") -> None:
    info = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    needed = "".join(f"Requires-Dist: {line}\n" for line in requires)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needed}")
    (info / "entry_points.txt").write_text(entry)


def test_every_package_that_is_needed_is_in_the_range_that_the_metadata_demands(
    capsys: pytest.CaptureFixture[str],
) -> None:
    code, found = asked(capsys, "versions")
    assert code == 0
    assert found["torch"]["state"] == "ok"
    assert importlib.metadata.version("torch") in found["torch"]["text"]
    assert set(found) == {*packages.core_names(), "conflicts"}


def test_a_version_out_of_range_is_broken_with_what_to_type(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    distribution(installed, "jsonargparse", "3.0")
    code, found = asked(capsys, "versions")
    assert code == 1
    assert found["jsonargparse"]["state"] == "broken"
    assert "jsonargparse is 3.0" in found["jsonargparse"]["text"]
    assert found["jsonargparse"]["fix"].startswith("pip install 'jsonargparse")


def test_a_compromised_release_is_said_to_be_one(installed: Path) -> None:
    distribution(installed, "lightning", "2.6.3")
    found = found_by("versions")
    assert found["lightning"].state == "broken"
    assert "lightning 2.6.3 is a compromised release" in found["conflicts"].text


def test_a_torchvision_for_another_torch_is_found_though_nothing_needs_it(installed: Path) -> None:
    distribution(installed, "torchvision", "0.1", ("torch==1.2.3",))
    conflicts = found_by("versions")["conflicts"]
    assert conflicts.state == "broken"
    assert "torchvision 0.1 does not fit: torch is" in conflicts.text
    assert conflicts.fix == "pip uninstall torchvision"


def test_an_extra_is_complete_or_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = {"mlxtend": "mlxtend is not installed", "av": "av is 1.0, and >=14 is needed"}
    monkeypatch.setattr(packages, "unmet", lambda needed: missing.get(needed.name, ""))
    found = found_by("extras")
    assert found["slotbench[sim3d]"].state == "ok"
    assert (found["slotbench[mnist]"].state, found["slotbench[mnist]"].text) == ("note", "mlxtend is not installed")
    assert found["slotbench[mnist]"].fix == "pip install 'slotbench[mnist]'"
    assert found["slotbench[video]"].state == "broken"
    # test takes in both
    assert "mlxtend is not installed" in found["slotbench[test]"].text


def test_a_plugin_that_cannot_be_imported_is_named_with_its_traceback(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = "[slotbench.cores]\nTorn = torn_module:Torn\n"
    only_cores(monkeypatch, "SlotSSM", "Torn")
    distribution(installed, "torn-plugin", "1.0", ("slotbench>=99",), entry)
    (installed / "torn_module.py").write_text('"""Torn."""\nraise RuntimeError("no such luck")\n')
    assert run(["doctor", "components", "torn-plugin"]) == 1
    shown = capsys.readouterr().out
    assert "core of torn-plugin: RuntimeError: no such luck" in shown
    assert 'raise RuntimeError("no such luck")' in shown
    assert "Traceback" not in shown
    assert "1.0 adds Torn; slotbench is" in shown
    assert run(["doctor", "Torn", "--verbose"]) == 1
    assert "Traceback" in capsys.readouterr().out
    # this one is in order, and the other is not asked for
    assert run(["doctor", "SlotSSM", "--json"]) == 0


@pytest.mark.parametrize("named", [[], ["components"], ["plugins"], ["--require", "SlotSSM"]])
def test_code_of_other_packages_runs_for_who_names_it_and_is_said_not_to_have_run_otherwise(
    named: list[str], installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    only_cores(monkeypatch, "SlotSSM", "Quiet")
    for check in ("packages.versions", "packages.conflicts", "packages.extras", "kernels.kernels"):  # slow
        monkeypatch.setattr(f"slotbench.health.{check}", lambda: iter(()))
    distribution(installed, "quiet-plugin", "1.0", entry="[slotbench.cores]\nQuiet = quiet_module:Quiet\n")
    source = f'"""Quiet."""\nimport pathlib\npathlib.Path({str(installed / "ran")!r}).touch()\n'
    (installed / "quiet_module.py").write_text(source)
    code, found = asked(capsys, *named)
    assert code == 0
    assert not (installed / "ran").exists()
    if named in ([], ["components"]):
        assert found["Quiet"]["state"] == "note"
        assert found["Quiet"]["text"] == "core of quiet-plugin, not imported"
        assert found["Quiet"]["fix"] == "`slotbench doctor Quiet` imports it, which runs code of its package"
    # asked for by its name; the module has no such class
    assert asked(capsys, "Quiet")[0] == 1
    assert (installed / "ran").exists()


def test_every_kernel_that_can_run_has_been_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert dict.fromkeys(kernels.OPS) == dict.fromkeys(KERNELS)
    code, found = asked(capsys, "kernels")
    assert code == 0
    for op in KERNELS:
        for kernel, refusal in ops.available_kernels(op).items():
            finding = found[f"{op}/{kernel}"]
            assert finding["state"] == ("ok" if refusal is None else "note")
            if refusal is None:
                assert float(finding["text"].split()[0]) < 1e-4


def test_the_kernel_that_is_taken_by_itself_is_said_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import torch

    from slotbench.ops import dispatch

    _, found = asked(capsys, "kernels")
    assert {op: found[f"{op}/auto"]["text"] for op in ("selective_scan", "linear_scan")} == {
        "selective_scan": "numba on cpu",
        "linear_scan": "numba on cpu",
    }
    # as on a machine with a GPU, with mamba-ssm and without Triton
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dispatch, "_trial_failure", lambda op, kernel, device: None)
    absent = {"triton": "needs triton", "causal_conv1d": "needs causal-conv1d"}
    monkeypatch.setattr(dispatch, "_import_failure", lambda op, kernel: absent.get(kernel))
    finding = kernels._choice("selective_scan", [torch.device("cpu"), torch.device("cuda")])
    assert finding.text == "numba on cpu. mamba_ssm on cuda; not triton: it needs triton"


def test_a_kernel_that_gives_something_else_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(x, weight, bias, *, kernel):
        y, state = right(x, weight, bias, kernel=kernel)
        return (y * 1.1 if kernel == "torch" else y), state

    right = ops.causal_conv1d
    monkeypatch.setattr(ops, "causal_conv1d", wrong)
    code, found = asked(capsys, "causal_conv1d")
    assert code == 1
    assert found["causal_conv1d/torch"]["state"] == "broken"
    assert found["causal_conv1d/reference"]["state"] == "ok"


def test_more_threads_than_cores_is_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(machine, "_granted", lambda controller, choices: 1.5)
    found = found_by("threads")
    assert found["torch threads"].state == "note"
    assert "--threads" in found["torch threads"].fix
    assert found["cores"].text.startswith(f"{min(1.5, len(os.sched_getaffinity(0))):g}")


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, float("inf")),
        ({"cpu.cfs_quota_us": "200000\n", "cpu.cfs_period_us": "100000\n"}, 2.0),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, float("inf")),
        ({}, float("inf")),
    ],
)
def test_the_quota_of_a_control_group_is_read(
    files: dict[str, str], quota: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(machine, "_group_folders", lambda controller: [tmp_path])
    assert machine._granted("cpu", machine._CPU_FILES) == quota


def test_little_room_is_a_note_and_a_file_in_the_place_of_the_folder_is_broken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, 10**9))
    found = found_by("runs folder", runs=tmp_path / "runs")
    assert found["runs folder"].state == "note"
    assert "0.9 GiB free" in found["runs folder"].text
    (tmp_path / "file").write_text("")
    assert found_by("runs folder", runs=tmp_path / "file" / "runs")["runs folder"].state == "broken"


def test_small_shared_memory_says_how_a_container_gets_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(64 << 20, 0, 64 << 20))
    shared = found_by("shared memory")["shared memory"]
    assert shared.state == "note"
    assert "--shm-size" in shared.fix


@pytest.mark.parametrize("available", [64 << 30, 1 << 30])
def test_free_memory_can_be_required_however_much_there_is(
    available: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "_meminfo", lambda: {"MemAvailable": available, "MemTotal": 64 << 30})
    monkeypatch.setattr(machine, "_granted", lambda controller, choices: 64 << 30)
    code, found = asked(capsys, "memory", "--require", "free memory")
    assert code == (0 if available == 64 << 30 else 1)
    assert found["free memory"]["state"] == ("ok" if available == 64 << 30 else "note")


def test_every_name_that_can_be_required_of_the_memory_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda path: False)
    monkeypatch.setattr(machine, "_meminfo", dict)
    assert set(found_by("memory")) == {"free memory", "shared memory"}


def test_wandb_without_a_key_is_a_note_and_offline_needs_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    wandb.teardown()
    assert tools.wandb().state == "note"
    assert "wandb login" in tools.wandb().fix
    wandb.teardown()  # it reads its settings once per process
    monkeypatch.setenv("WANDB_MODE", "offline")
    assert tools.wandb().state == "ok"
    wandb.teardown()
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("WANDB_API_KEY", "0123456789" * 4)
    assert tools.wandb().state == "ok"
    assert "0123456789" not in tools.wandb().text


def test_what_is_absent_is_a_note_until_it_is_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    code, found = asked(capsys, "memory", "--require", "slurm")
    assert code == 1
    assert found["slurm"]["state"] == "note"
    run(["doctor", "memory", "--require=slurm"])
    assert "not in order: slurm" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["kernel"], "doctor knows nothing named kernel; did you mean kernels?"),
        (["--require", "SlotSMM"], "did you mean SlotSSM?"),
        (["--require"], "--require names nothing"),
        (["--jsn"], "doctor has no option --jsn; did you mean --json?"),
    ],
)
def test_what_is_not_known_is_said(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_a_check_that_fails_itself_is_a_finding_and_no_traceback() -> None:
    def run_and_fail() -> Iterator[Finding]:
        yield ok("", "first")
        raise ZeroDivisionError("by nothing")

    found = run_check(Check("disk", ["first"], run_and_fail))
    assert [finding.state for finding in found] == ["ok", "broken"]
    assert "ZeroDivisionError: by nothing" in found[1].text


def test_a_component_of_two_distributions_is_broken(installed: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    only_cores(monkeypatch, "SlotSSM")
    distribution(installed, "twin", "1.0", (), "[slotbench.cores]\nSlotSSM = twin:SlotSSM\n")
    (installed / "twin.py").write_text('"""Twin."""\n\nclass SlotSSM:\n    """Twin."""\n')
    twin = found_by("components")["SlotSSM"]
    assert twin.state == "broken"
    assert "2 cores are named SlotSSM" in twin.text


def test_what_needs_no_torch_does_not_import_it() -> None:
    script = "import sys; from slotbench.cli import run; run(['doctor', 'versions', 'wandb', 'disk', '--json'])"
    script += "; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ({"avx512_bf16": True, "amx_bf16": False}, "multiplies it (avx512_bf16): --trainer.precision bf16-mixed may"),
        ({"avx512_bf16": False, "avx2": True}, "no unit that multiplies it: --trainer.precision bf16-mixed works on"),
        ({}, "this version of torch does not say"),
    ],
)
def test_it_says_whether_the_cpu_multiplies_bfloat16(monkeypatch, capabilities, said):
    monkeypatch.setattr("torch.cpu.get_capabilities", lambda: capabilities, raising=False)
    finding = machine.bfloat16()
    assert finding.state == "ok"
    assert said in finding.text
