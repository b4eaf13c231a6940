"""The settings of an OpenRLHF run with a spec."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rewardspec.adapters.common.binding import BindingError
from rewardspec.logs.rollout_log import RolloutLog
from rewardspec.spec import Spec, loads


@dataclass(frozen=True)
class Settings:
    """The settings of a run, as plain values that can be sent to other machines."""

    text: str
    name: str  # of the file
    constants: Mapping[str, str]
    fingerprint: str  # without the dialect
    dialect: str | None = None
    seed: int = 0
    resume_changed: bool = False
    log: RolloutLog | None = None

    @classmethod
    def of(
        cls,
        spec: Spec,
        constants: Mapping[str, object] = {},
        dialect: str | None = None,
        seed: int = 0,
        resume_changed: bool = False,
        log: RolloutLog | None = None,
    ):
        """Settings for a spec that was read with `constants`."""
        texts = {name: str(value) for name, value in constants.items()}
        return cls(spec.source.text, spec.source.name, texts, spec.fingerprint, dialect, seed, resume_changed, log)

    def plain(self) -> Spec:
        """The spec without the dialect. Raises BindingError if its fingerprint here is not that of the launcher."""
        spec = loads(self.text, self.name, constants=self.constants)
        if spec.fingerprint != self.fingerprint:
            raise BindingError(
                f"{self.name} has the fingerprint {spec.fingerprint} here and {self.fingerprint} where training was "
                "started: install the same rewardspec on all machines"
            )
        return spec

    def spec(self) -> Spec:
        return self.plain() if self.dialect is None else self.plain().under(self.dialect)
