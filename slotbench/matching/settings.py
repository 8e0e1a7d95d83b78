"""The command line of `slotbench match`, taken apart: which cores, what goes to a core, and everything else."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from slotbench import registry
from slotbench.config.options import RunOptions
from slotbench.config.settings import Setting, command_line_settings, load_named, read_settings
from slotbench.errors import UserError, did_you_mean, lines, listing

if TYPE_CHECKING:
    from slotbench.matching.search import Model

__all__ = ["CoreSettings"]


class CoreSettings:
    """The settings of the command line, taken apart: which cores, what goes to a core, and everything else."""

    def __init__(self, arguments: list[str], options: RunOptions) -> None:
        self._options = options
        self.named: list[str] = []
        self._of_core: list[Setting] = []
        self._others: list[str] = []
        self.files: list[str] = []
        for setting in command_line_settings(arguments):
            if not setting.key:
                self.named.append(setting.text)
            elif setting.key == ("model", "core"):
                self.named.append(str(setting.value))
            elif setting.key[:2] == ("model", "core"):
                self._of_core.append(setting)
            else:
                self._others += typed(setting)
                if setting.key == ("config",):
                    self.files.append(str(setting.value))

    def cores(self, everything: bool) -> list[str]:
        """The cores to match, each once."""
        known = registry.names("cores")
        if everything:
            return known
        named = list(dict.fromkeys(self.named)) or [self._own_core()]
        for name in named:
            if name not in known:
                raise UserError(lines(f"no core named {name}{did_you_mean(name, known)}", available=listing(known)))
        return named

    def _own_core(self) -> str:
        """The core of the configuration files."""
        named = [str(setting.value) for setting in read_settings(self._others) if setting.key == ("model", "core")]
        if not named:
            raise UserError(
                lines(
                    "match needs an experiment, and a core to match",
                    example="slotbench match --config experiments/blinking_balls.yaml SlotSSM --parameters 600000",
                )
            )
        return named[-1].rpartition(".")[2]

    def check_core_settings(self, cores: list[str]) -> None:
        """Every --model.core.ARGUMENT must be one that a core has."""
        for setting in self._of_core:
            known = {argument for core in cores for argument in self._arguments_of(core)}
            if setting.key[2] not in known:
                raise UserError(
                    lines(
                        f"no argument {setting.key[2]} of {listing(cores)}{did_you_mean(setting.key[2], known)}",
                        given=setting.text,
                        arguments=listing(sorted(known), 20),
                    )
                )

    def _arguments_of(self, core: str) -> Iterable[str]:
        from slotbench.config.arguments import parameters_of

        try:
            return parameters_of(registry.load("cores", core), supplied=1)
        except registry.RegistryError:
            return ()  # it is reported where the core is matched

    def of_core(self, core: str) -> list[str]:
        """The settings that go to this core, as typed."""
        known = self._arguments_of(core)
        return [part for setting in self._of_core if setting.key[2] in known for part in typed(setting)]

    def model(self, core: str, settings: list[str]) -> Model:
        """The experiment with this core."""
        return self._build([*self._others, "--model.core", core, *settings])

    def model_of(self, file: str) -> Model:
        """The experiment of another file, as it is."""
        return self._build(["--config", file])

    def _build(self, arguments: list[str]) -> Model:
        settings = read_settings(arguments)
        load_named(settings)
        from slotbench.matching.search import Model

        return Model(arguments, settings, self._options)


def typed(setting: Setting) -> list[str]:
    option = f"--{'.'.join(setting.key)}"
    return [option] if setting.value is None else [option, str(setting.value)]
