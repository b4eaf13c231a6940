"""The file behind a spec, for findings that still look into it. To go once they ask the declarations."""

from __future__ import annotations

from functools import lru_cache
from types import SimpleNamespace

from rewardspec.language.shape import Block, read_shape
from rewardspec.syntax.yaml import Mapping, read_yaml
from rewardspec.text.diagnostics import Report
from rewardspec.text.source import Source


@lru_cache(maxsize=64)
def root(source: Source) -> Mapping:
    found = read_yaml(source, Report())
    assert found is not None
    return found


@lru_cache(maxsize=64)
def document(source: Source) -> SimpleNamespace:
    whole = read_shape(source, Report())
    assert whole is not None
    components = {name: _component(block) for name, block in whole.block("components").blocks()}
    return SimpleNamespace(components=components, allow=dict(whole.block("allow").ones()))


def _component(block: Block) -> SimpleNamespace:
    stages = block.stages("stages")
    return SimpleNamespace(
        **{key: block.one(key) for key in ("squash", "when", "weight")},
        scale=block.several("scale"),
        stages=stages and [SimpleNamespace(add=s.one("add"), when=s.one("when")) for s in stages],
        allow=dict(block.block("allow").ones()),
    )
