"""The arguments of `slotbench match`: the cores, the settings of cores, and those of everything else."""

from __future__ import annotations

from collections.abc import Iterable

from slotbench import registry
from slotbench.config.options import RunOptions
from slotbench.config.settings import Setting, command_line_settings, read_settings
from slotbench.errors import UserError, did_you_mean, lines, listing

__all__ = ["CoreSettings"]


class CoreSettings:
    """The settings of the command line, those of cores apart.

    Attributes:
        options: what may be imported.
        named: the cores.
        files: the experiment's configuration files.
    """

    def __init__(self, arguments: list[str], options: RunOptions) -> None:
        self.options = options
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

    def experiment(self, core: str, settings: Iterable[str] = ()) -> list[str]:
        """The arguments of `slotbench fit` for the experiment with this core."""
        return [*self._others, "--model.core", core, *settings]


def typed(setting: Setting) -> list[str]:
    option = f"--{'.'.join(setting.key)}"
    return [option] if setting.value is None else [option, str(setting.value)]
