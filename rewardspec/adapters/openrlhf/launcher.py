"""The launcher: `python -m rewardspec.adapters.openrlhf --spec spec.yaml -- ARGUMENTS OF train_ppo_ray`."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version

from rewardspec.adapters.common.binding import BindingError, read_spec
from rewardspec.adapters.common.jobs import job_variables, problems_everywhere
from rewardspec.adapters.common.rollout_log import log_of
from rewardspec.adapters.openrlhf.checks import TESTED, WAS_TESTED, check_settings, reward_problems, setting
from rewardspec.adapters.openrlhf.hook import PATCHES, hook, install, setup_hook
from rewardspec.adapters.openrlhf.settings import Settings
from rewardspec.spec import Spec
from rewardspec.text.shown import printed

logger = logging.getLogger(__name__)

CLI = "openrlhf.cli.train_ppo_ray"
LOG = {
    "folder": "--rollout-log",
    "every": "--rollout-log-every",
    "keep": "--rollout-log-keep",
    "text": "--rollout-log-text",
    "columns": "--rollout-log-columns",
}


def _install_in_driver(settings: Settings, spec: Spec) -> None:
    """Install the hooks here and, after the stock command line was read and checked, in Ray's workers."""
    try:
        found = version("openrlhf")
        import ray

        importlib.import_module("openrlhf.trainer.ray")  # first, as in the stock command line
        config = importlib.import_module("openrlhf.utils.config")
        install(settings)
        for name in PATCHES:
            importlib.import_module(name)
    except PackageNotFoundError:
        raise BindingError("OpenRLHF is not installed in this environment") from None
    except ImportError as error:
        raise BindingError(f"OpenRLHF {found} cannot be imported here, or its version is unknown: {error}") from error
    if found not in TESTED:
        logger.warning("rewardspec: this is OpenRLHF %s; %s", found, WAS_TESTED)
    checked = []

    def hierarchize(original):
        def wrapper(args):
            args = original(args)
            check_settings(args, spec)
            if problems := reward_problems(*_files(args, settings)):
                raise BindingError("\n".join(problems))
            checked.append(args)
            print(printed(f"[rewardspec] advantages of {spec.name}, fingerprint {spec.fingerprint}"))
            return args

        return wrapper

    def init(original):
        def wrapper(*args, runtime_env=None, **kwargs):
            if not checked:
                raise BindingError(f"{CLI} of OpenRLHF {found} does not read its arguments as expected: {WAS_TESTED}")
            runtime_env = dict(runtime_env or {}) | {"worker_process_setup_hook": setup_hook(settings)}
            of_job = job_variables()  # OpenRLHF reads their values
            runtime_env["env_vars"] = {k: v for k, v in runtime_env.get("env_vars", {}).items() if k not in of_job}
            started = original(*args, runtime_env=runtime_env, **kwargs)
            if problems := problems_everywhere(reward_problems, *_files(checked[-1], settings)):
                raise BindingError("\n".join(problems))
            return started

        return wrapper

    hook(config, "hierarchize", hierarchize)
    hook(ray, "init", init)


def _files(args, settings: Settings) -> tuple:
    """The arguments of `reward_problems`, as plain values that can be sent to other machines."""
    files = setting(args, "reward.remote_url"), setting(args, "train.agent_func_path")
    return (*files, settings.text, settings.name, settings.constants)


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not (name and equals):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return name.strip(), value


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `train_ppo_ray` with a spec's advantages."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    parser = argparse.ArgumentParser(
        prog="python -m rewardspec.adapters.openrlhf",
        usage="%(prog)s --spec SPEC [options] -- ARGUMENTS OF train_ppo_ray",
        description=f"Runs {CLI} with the advantages of a spec. Tested with OpenRLHF {', '.join(TESTED)}.",
        epilog=f"`... -- --help` shows the arguments of {CLI}.",
    )
    parser.add_argument("--spec", required=True, help="the spec's file")
    parser.add_argument("--dialect", help="a trainer's numerics, such as openrlhf; default: the spec's own")
    parser.add_argument("--set", type=_pair, action="append", default=[], metavar="NAME=VALUE", help="a constant")
    parser.add_argument("--seed", type=int, default=0, help="for groups that are drawn again; default: 0")
    parser.add_argument(
        "--resume-changed", action="store_true", help="resume from a checkpoint that was trained under another spec"
    )
    parser.add_argument("--rollout-log", metavar="DIR", help="the folder of the rollout log")
    parser.add_argument("--rollout-log-every", metavar="N", help="log one of so many steps; default: 1")
    parser.add_argument("--rollout-log-keep", metavar="N", help="keep the last N steps; default: all")
    parser.add_argument("--rollout-log-text", metavar="HOW", help="full, hash or none; default: full")
    parser.add_argument("--rollout-log-columns", metavar="NAME,...", help="columns of the data set to keep in it")
    given = parser.parse_args(arguments[:at])
    constants = dict(given.set)
    try:
        read = read_spec(given.spec, constants)
        log = log_of({f"--{name.replace('_', '-')}": value for name, value in vars(given).items()}, LOG)
        if log is not None:  # as seen from here: workers may start in another folder
            log = replace(log, folder=os.path.abspath(log.folder))
        settings = Settings.of(read, constants, given.dialect, given.seed, given.resume_changed, log)
        spec = settings.spec()
    except (ValueError, OSError) as error:
        sys.exit(printed(f"rewardspec: {error}"))
    try:
        _install_in_driver(settings, spec)
        _run_stock(arguments[at + 1 :])
    except BindingError as error:
        sys.exit(printed(f"rewardspec: {error}"))


def _run_stock(arguments: Sequence[str]) -> None:
    from ray.exceptions import RayTaskError

    sys.argv = [CLI, *arguments]
    try:
        runpy.run_module(CLI, run_name="__main__", alter_sys=True)
    except RayTaskError as error:
        cause = error
        while isinstance(cause, RayTaskError):  # one for each actor that it has come through
            cause = cause.cause
        if not isinstance(cause, BindingError):
            raise
        raise cause from None
