"""Every spec that ships compiles, runs and says where it is from, and `rewardspec list` knows it."""

import numpy as np
import pytest
import torch
from places import SPECS

import rewardspec
from rewardspec.language.catalogue import catalogue
from rewardspec.language.prelude import dialects, prelude
from rewardspec.ops.domain import Level

FILES = sorted(path for path in SPECS.glob("*/*.yaml") if path.parent.name != "dialects")
METHODS = {  # the methods of the papers, folder by folder
    "alp": ["alp"],
    "dler": ["dler"],
    "dr_grpo": ["dr_grpo"],
    "dvao": ["dvao"],
    "gd2po": ["gd2po_hard", "gd2po_snr"],
    "gdpo": [
        f"{task}{scheme}"
        for task in ("code", "math", "math_conditioned", "tool_calling")
        for scheme in ("", "_decoupled", "_dr_grpo", "_grpo")
    ]
    + ["code_filtered", "code_two", "code_two_grpo", "math_conditioned_filtered", "math_filtered"],
    "gigpo": ["gigpo", "gigpo_mean", "gigpo_steps"],
    "gpg": ["gpg"],
    "grpo_lead": ["grpo_lead"],
    "healthbench": ["healthbench", "healthbench_decoupled"],
    "kevin": ["kevin"],
    "kimi": ["kimi_length"],
    "l1": ["l1_exact", "l1_max"],
    "laconic": ["laconic"],
    "maxrl": ["maxrl"],
    "mo_grpo": ["mo_grpo"],
    "mt_grpo": ["mt_grpo"],
    "open_r1": ["open_r1", "open_r1_code"],
    "opo": ["opo"],
    "papo": ["fullnorm", "mult", "orm", "orm_dapo", "papo", "papo_dapo", "prm"],
    "prs": ["general", "long", "long_zero_one", "short", "zero_one"],
    "rc_grpo": ["rc_grpo"],
    "retool": ["retool"],
    "rvpo": ["rvpo"],
    "saw": ["saw_gdpo", "saw_grpo"],
    "search_r1": ["search_r1"],
    "spiral": ["rae"],
    "spo": ["spo"],
    "toolrl": [
        "coarse",
        "equal_max",
        "fine",
        "intermediate",
        "length",
        "length_dynamic",
        "original",
        "smooth",
        "two_stage",
    ],
    "vspo": ["no_clip", "uniform", "uniform_no_clip", "vspo", "vspo_long"],
}
EVERY_SPEC = pytest.mark.parametrize("path", FILES, ids=lambda p: p.relative_to(SPECS).as_posix())


def rollouts(spec, rng, ids):
    """Columns of random values that the spec's domains allow, float64: one a rollout, a group or an item of a list."""
    found = {}
    places = {group: ids.index(group) for group in ids}
    lengths = np.random.default_rng(len(ids)).integers(0, 5, len(ids))
    for name in spec.columns:
        column = spec.program.columns[name]
        n = int(lengths.sum()) if column.level.listed else len(ids)
        domain = column.domain
        assert domain.symbols is None
        if domain.ids:
            found[name] = rng.integers(0, 5, n)
        elif domain.values is not None:
            found[name] = rng.choice([float(v) for v in domain.values], n)
        else:
            lo, hi = float(max(domain.lo, -4)), float(min(domain.hi, 9000))
            found[name] = rng.uniform(lo, hi, n) if hi < 100 else rng.integers(lo, hi, n).astype(float)
        if column.level.listed:
            found[name] = torch.from_numpy(found[name]).split(lengths.tolist())
        elif column.level is not Level.ROLLOUT:
            assert column.level is Level.GROUP
            found[name] = found[name][[places[group] for group in ids]]
    return found


def test_every_method_has_its_file():
    found = {}
    for path in FILES:
        found.setdefault(path.parent.name, []).append(path.stem)
    assert {folder: sorted(names) for folder, names in METHODS.items()} == {f: sorted(n) for f, n in found.items()}


def test_no_two_methods_have_one_name():
    """`rewardspec new mine --like math` takes the name without its folder."""
    assert len({path.stem for path in FILES}) == len(FILES)


@pytest.mark.slow
@EVERY_SPEC
def test_spec_says_what_it_is_and_runs(path):
    spec = rewardspec.load(path)
    assert not spec.diagnostics
    assert spec.declarations.origin is not None
    assert any(word in spec.declarations.origin for word in ("Eq.", "Sec.", "Alg.", "Read in", "read at"))
    assert spec.name.replace("-", "_").endswith(path.stem)
    fn = rewardspec.compile(spec)
    for seed, sizes in enumerate(([4] * 6, [1, 7, 2, 4, 16], [1])):
        rng = np.random.default_rng(seed)
        ids = rng.permutation(np.repeat(np.arange(len(sizes)), sizes)).tolist()
        columns = rollouts(spec, rng, ids)
        state = fn.initial_state()
        out = fn(columns, ids, step=3, total_steps=10, state=state)
        assert out.advantages.dtype is torch.float64
        assert torch.isfinite(out.advantages).all()
        again = fn(columns, ids, step=3, total_steps=10, state=state).advantages
        assert again.equal(out.advantages)
        assert seed or out.advantages.any()
        if out.shares:
            torch.testing.assert_close(sum(out.shares.values()), out.advantages)


@pytest.mark.slow
@EVERY_SPEC
def test_spec_goes_with_every_dialect(path):
    spec = rewardspec.load(path)
    for dialect in dialects():
        fn = rewardspec.compile(spec, dialect=dialect)
        columns = rollouts(fn.spec, np.random.default_rng(0), [i // 4 for i in range(24)])
        columns |= {"tokens": np.arange(24) + 1.0}
        out = fn(columns, 4, step=3, total_steps=10, state=fn.initial_state())
        assert torch.isfinite(out.advantages).all()


@pytest.mark.slow
@pytest.mark.parametrize("dialect", [None, *dialects()])
@pytest.mark.parametrize("scheme", [name for name in prelude().values if name not in ("measured", "total")])
def test_no_dialect_makes_advantage_out_of_rounding(dialect, scheme):
    """Laws 1 and 2 outrank dialects."""
    text = "rewardspec: 1\ncomponents: {a: {range: [0, 1]}, b: {range: [0, 1], weight: 0.1}}\nadvantage: "
    fn = rewardspec.compile(rewardspec.loads(text + scheme), dialect=dialect)
    constant = {"a": torch.full((12,), 0.7), "b": torch.full((12,), 0.1), "tokens": torch.arange(12) + 1.0}
    assert not fn(constant, 4).advantages.any()
    varied = constant | {"a": torch.linspace(0, 1, 12)}
    alone = fn(varied, 1).advantages
    assert not alone.any()


@pytest.mark.parametrize("weight", [1, 0.75, 0.5, 0.25])
@pytest.mark.parametrize("name", ["math", "math_conditioned"])
def test_weights_of_the_length_reward(name, weight):
    spec = rewardspec.load(SPECS / f"gdpo/{name}.yaml", constants={"length_weight": weight})
    out = rewardspec.compile(spec)({"correct": [1, 0, 1, 0], "tokens": [10, 10, 9000, 9000]}, 4)
    assert float(out.weights["length"]) == weight
    assert out.rewards["length"].tolist() == ([1, 0, 0, 0] if name == "math_conditioned" else [1, 1, 0, 0])


def test_list_shows_every_scheme_and_spec_with_its_source():
    entries = catalogue()
    assert all(entry.about for entry in entries)
    specs = [entry.name for entry in entries if entry.kind == "spec"]
    assert specs == [f"{path.parent.name}/{path.stem}" for path in FILES]
    schemes = {entry.name: entry.about for entry in entries if entry.kind == "scheme"}
    assert set(schemes) == set(prelude().values) - {"measured"}
    assert "Eq. 6" not in schemes["decoupled"]
    assert "Eq. 4" in schemes["decoupled"]
    assert "arXiv:2503.14476" in next(e.about for e in entries if e.name.startswith("overlong"))
