"""What a spec, its function, its results and its errors are in other processes: what they were here."""

import copy
import gc
import importlib
import inspect
import linecache
import multiprocessing
import pickle
import pkgutil
import sys
import threading

import cloudpickle
import dill
import pytest
import torch
from places import SPECS

import rewardspec
from rewardspec.scoring.permission import NotAllowed
from rewardspec.text.diagnostics import SpecError

COLUMNS = {"correct": [1, 0, 1, 0, 1, 1], "tokens": [10, 10, 9000, 9000, 10, 9000]}
RAGGED = ["a", "b", "a", "b", "b", "a"]
KEPT = """rewardspec: 1
name: kept
components: {a: {values: [0, 1]}, b: {range: [0, 1], missing: ignore, weight: half}}
define: {half: 0.5}
keep: var(a, ddof=0) > 0
refill: var(a, ddof=0)
advantage: grpo
"""
KEPT_COLUMNS = {"a": [1, 0, 1, 1, 0, 0, 1, 0], "b": [0.1, None, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8]}


def same(one, other):
    """Whether two results are the same in everything that a caller can ask of them."""
    assert torch.equal(one.advantages, other.advantages)
    assert torch.equal(one.kept, other.kept) and torch.equal(one.copies, other.copies)
    for a, b in zip(one.refilled, other.refilled, strict=True):
        assert torch.equal(a, b)
    for part in ("rewards", "weights", "shares"):
        a, b = getattr(one, part), getattr(other, part)
        assert a.keys() == b.keys()
        assert all(torch.equal(a[name].nan_to_num(-9), b[name].nan_to_num(-9)) for name in a)
    assert one.metrics() == other.metrics()
    return True


def results():
    """Functions, and calls of theirs: dense, ragged, with groups that are drawn again."""
    fn = rewardspec.compile(SPECS / "gdpo/math.yaml")
    yield fn, (COLUMNS, 2), {}
    yield fn, (COLUMNS, RAGGED), {}
    yield (
        rewardspec.compile(rewardspec.loads(KEPT, constants={"half": "0.25"})),
        (KEPT_COLUMNS, 2),
        {"seed": 3, "step": 1},
    )


@pytest.mark.slow
@pytest.mark.parametrize("library", [pickle, dill, cloudpickle, copy], ids=lambda library: library.__name__)
def test_function_spec_result_and_errors_survive(library):
    again = copy.deepcopy if library is copy else lambda x: library.loads(library.dumps(x))
    for fn, given, options in results():
        found, other = fn(*given, **options), again(fn)
        assert other.source == fn.source and other.spec.fingerprint == fn.spec.fingerprint
        assert same(found, other(*given, **options)) and same(found, again(found))
        with pytest.raises(fn.RolloutError) as error:
            fn({"correct": [2], "tokens": [1], "a": [2], "b": [3]}, 1)
        returned = again(error.value)
        assert isinstance(returned, other.RolloutError) and str(returned) == str(error.value)
    spec = rewardspec.load(SPECS / "toolrl/smooth.yaml")
    for made in (spec, spec.under("verl"), spec.at(3, 10), spec.under("trl").at(3, 10), spec.at(3, 10).under("trl")):
        assert again(made).fingerprint == made.fingerprint and again(made).python == made.python
    assert len({m.python for m in (spec, spec.under("trl"), spec.at(3, 10), spec.at(progress=0.5))}) > 2
    with pytest.raises(SpecError) as error:
        rewardspec.loads("rewardspec: 1\ncomponents: {a: {values: [0, x]}}\nadvantage: nothing + b\n")
    returned = again(error.value)
    assert str(returned) == str(error.value)
    assert [d.to_json() for d in returned.diagnostics] == [d.to_json() for d in error.value.diagnostics]


def test_spec_that_no_text_gives_is_refused_rather_than_changed():
    spec = rewardspec.loads(KEPT)
    other = rewardspec.Spec(spec.source, spec.declarations, spec.program)
    with pytest.raises(pickle.PicklingError, match="a variation of another"):
        pickle.dumps(other)


def test_scheme_of_the_caller_survives():
    spec = rewardspec.loads(KEPT, advantage="rloo")
    assert pickle.loads(pickle.dumps(spec)).fingerprint == spec.fingerprint != rewardspec.loads(KEPT).fingerprint


def test_pickle_of_a_function_holds_the_text_of_its_spec_and_no_code():
    data = pickle.dumps(rewardspec.compile(rewardspec.loads(KEPT)))
    assert b"keep: var(a, ddof=0) > 0" in data
    assert b"import torch" not in data and b"def advantages" not in data


def exceptions():
    for found in pkgutil.walk_packages(rewardspec.__path__, "rewardspec."):
        if any(part in found.name for part in ("sandbox_child", "__main__", "adapters.trl", "adapters.verl")):
            continue  # these run something, or import a trainer, and have no errors of their own
        try:
            module = importlib.import_module(found.name)
        except ModuleNotFoundError:
            continue
        for name, kind in vars(module).items():
            if (
                not name.startswith("_")
                and inspect.isclass(kind)
                and issubclass(kind, BaseException)
                and kind.__module__ == module.__name__
            ):
                yield f"{found.name}.{name}", kind


def test_every_error_of_the_package_survives():
    kinds = dict(exceptions())
    assert len(kinds) > 12
    made = {SpecError: SpecError([]), NotAllowed: NotAllowed("spec", {"a": "module:function"})}
    for kind in kinds.values():
        error = made[kind] if kind in made else kind("why")
        returned = pickle.loads(pickle.dumps(error))
        assert (
            type(returned) is kind and str(returned) == str(error) and returned.__dict__.keys() == error.__dict__.keys()
        )


# other processes


def work(task):
    """In the other process: what a task says."""
    what, fn = task
    if what == "a broken spec":
        rewardspec.loads("rewardspec: 1\ncomponents: {a: b}\n")
    if what == "a broken rollout":
        return fn({"correct": [7, 0], "tokens": [1, 2]}, 2)
    return fn, fn(COLUMNS, 2), fn.spec


@pytest.mark.slow
def test_pool_of_spawned_processes():
    fn = rewardspec.compile(SPECS / "gdpo/math.yaml")
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(SpecError, match="no-advantage"):
            pool.apply_async(work, (("a broken spec", fn),)).get(timeout=120)
        with pytest.raises(fn.RolloutError, match="`correct` is 7 at rollout 0"):
            pool.apply_async(work, (("a broken rollout", fn),)).get(timeout=120)
        other, result, spec = pool.apply_async(work, (("a call", fn),)).get(timeout=120)
    assert same(result, fn(COLUMNS, 2)) and same(other(COLUMNS, 2), result)
    assert spec.fingerprint == fn.spec.fingerprint


@pytest.mark.slow
def test_map_over_a_data_set_in_several_processes(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="datasets comes with the trainers")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    fn = rewardspec.compile(SPECS / "gdpo/math.yaml")
    data = datasets.Dataset.from_dict({name: values * 4 for name, values in COLUMNS.items()})

    def scored(rows):
        return {"advantage": fn({name: rows[name] for name in COLUMNS}, 6).advantages.tolist()}

    found = data.map(scored, batched=True, batch_size=6, num_proc=2)["advantage"]
    assert list(found) == fn(COLUMNS, 6).advantages.tolist() * 4
    again = rewardspec.compile(SPECS / "gdpo/math.yaml")
    hashed = datasets.fingerprint.Hasher.hash
    assert hashed(fn) == hashed(again)  # what was mapped before is found again
    assert hashed(fn) != hashed(rewardspec.compile(SPECS / "gdpo/math_grpo.yaml"))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_ray_actor(tmp_path):
    ray = pytest.importorskip("ray", reason="Ray comes with the trainers")
    fn = rewardspec.compile(SPECS / "gdpo/math.yaml")

    class Trainer:
        def __init__(self, fn):
            self.fn = fn

        def advantages(self, columns, groups):
            return self.fn, self.fn(columns, groups)

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, configure_logging=False)
    try:
        actor = ray.remote(Trainer).remote(fn)
        other, result = ray.get(actor.advantages.remote(COLUMNS, RAGGED), timeout=240)
        assert same(result, fn(COLUMNS, RAGGED)) and same(other(COLUMNS, RAGGED), result)
        with pytest.raises(fn.RolloutError, match="`correct` is 7"):
            ray.get(actor.advantages.remote({"correct": [7, 0], "tokens": [1, 2]}, 2), timeout=240)
    finally:
        ray.shutdown()


# the compiler


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_torch_compile_gives_equal_numbers():
    for fn, given, options in list(results())[2:]:
        compiled = torch.compile(fn, backend="eager")
        assert same(compiled(*given, **options), fn(*given, **options))
    weights = torch.linspace(0, 1, 6)

    def step(columns):
        return (fn(columns, 2).advantages * weights.sin()).sum()

    fn = rewardspec.compile(SPECS / "gdpo/math.yaml")
    columns = {name: torch.tensor(values, dtype=torch.float32) for name, values in COLUMNS.items()}
    assert torch.equal(torch.compile(step, backend="aot_eager")(columns), step(columns))
    with pytest.raises(fn.RolloutError, match="`correct` is 2"):
        torch.compile(step, backend="eager")({**columns, "correct": columns["correct"] * 2})


def test_module_of_a_function_goes_with_it():
    before = {name for name in sys.modules if name.startswith("rewardspec_compiled")}
    fn = rewardspec.compile(SPECS / "gdpo/math.yaml")
    assert fn.module_function.__globals__ is vars(sys.modules[fn.module_function.__globals__["__name__"]])
    del fn
    assert {name for name in sys.modules if name.startswith("rewardspec_compiled")} <= before


def test_texts_of_functions_that_are_gone_are_not_kept():
    spec = rewardspec.loads("rewardspec: 1\ncomponents: {only_here: {values: [0, 1]}}\nadvantage: grpo\n")
    older, newer = rewardspec.compile(spec), rewardspec.compile(spec)
    filename = newer.module_function.__code__.co_filename
    assert filename == older.module_function.__code__.co_filename
    del older
    gc.collect()
    assert linecache.getlines(filename)  # of the newer one
    del newer
    gc.collect()
    assert not linecache.getlines(filename)


@pytest.mark.slow
def test_function_can_be_made_and_called_in_several_threads():
    found, spec = [], rewardspec.load(SPECS / "gdpo/math.yaml")

    def run():
        found.append(rewardspec.compile(spec)(COLUMNS, 2).advantages)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4 and all(torch.equal(x, found[0]) for x in found)
