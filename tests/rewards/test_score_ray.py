"""`score --engine ray` on a cluster of two machines, both here: the rows, numbers and bad rows of the plain engine."""

import json
import os
import random
import shutil
import sys
import threading
from pathlib import Path

import pytest
from judge_server import said, serving, surroundings  # noqa: F401

import rewardspec
from rewardspec.logs.outputs import held
from rewardspec.logs.parts import RolloutFile
from rewardspec.logs.rows import BadLog
from rewardspec.rewards.judge import Account, Budget, Limits
from rewardspec.scoring import ray as on_ray
from rewardspec.scoring import storage
from rewardspec.scoring.score import score

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
pytest.importorskip("ray.data")

SPEC = """
rewardspec: 1
name: right
signals: {tokens: {range: [0, .inf]}}
components:
  answer: {use: qa.exact_match, with: {tag: none, answer: gold}}
  brief: tokens <= 4
advantage: (center(total) - mean(tokens, over=batch)) / (1 + std(tokens, over=batch))
"""
OWN = """
rewardspec: 1
components:
  own: {python: "slowly:measure", values: [0, 1]}
  answer: {use: qa.exact_match, with: {tag: none, answer: gold}}
advantage: grpo
"""
SLOWLY = """
import os, pathlib, time
def measure(completion, group):
    folder = pathlib.Path(__file__).with_name("asked")
    folder.mkdir(exist_ok=True)
    with open(folder / str(os.getpid()), "a") as file:
        file.write(group + "\\n")
    time.sleep(0.05)
    return float(completion == "a")
def known(completion):
    here = pathlib.Path(__file__)
    folder = here.with_name("asked again")
    folder.mkdir(exist_ok=True)
    with open(folder / str(os.getpid()), "a") as file:
        file.write(completion + "\\n")
    word, number = completion.split()
    return None if here.with_name("down").exists() and number.endswith("7") else float(word == "a")
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    """Two machines of one core each; the second can be ended."""
    import ray
    from ray.cluster_utils import Cluster

    folder = tmp_path_factory.mktemp("modules")
    (folder / "slowly.py").write_text(SLOWLY)
    keep = {name: os.environ.get(name) for name in ("RAY_USAGE_STATS_ENABLED", "PYTHONPATH")}
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [keep["PYTHONPATH"]])])
    sys.path.append(str(folder))
    started = Cluster()

    def machine(**more):
        for last in (False, False, True):
            try:
                return started.add_node(num_cpus=1, object_store_memory=80 << 20, **more)
            except Exception:  # Ray gives it 30 s, which a busy machine may not have
                if last:
                    raise

    try:
        machine(include_dashboard=False)
        second = machine()
        ray.init(address=started.address, logging_level="ERROR", log_to_driver=False)
        yield started, second, folder
    finally:
        ray.shutdown()
        started.shutdown()
        sys.path.remove(str(folder))
        for name, value in keep.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(storage, "PIECE_BYTES", 600)  # many pieces of few rows
    Path("spec.yaml").write_text(SPEC)
    return tmp_path


def rows_of(count):
    dice = random.Random(count)
    rows = [
        {"group": f"g{i % 9}", "completion": dice.choice("ab"), "gold": "a", "tokens": dice.randrange(9)}
        for i in range(count)
    ]
    rows[3].pop("group")
    rows[7]["tokens"] = "many"
    return rows


def written(rows, path="rows.jsonl"):
    texts = [json.dumps(row) for row in rows]
    texts.insert(5, "no json")
    Path(path).write_text("\n".join(texts) + "\n")


def parts(output):
    return [path for path in sorted(Path(output).iterdir()) if path.name != "_SUCCESS"]


def close(found, expected):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert list(one) == list(other)
        for name, value in other.items():
            assert one[name] == (pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value)


def test_rows_are_those_of_the_plain_engine(cluster, folder):
    """In every format and at every kind of address; bad rows too; groups are scattered over all pieces."""
    rows = rows_of(60)
    written(rows)
    spec = rewardspec.load("spec.yaml")
    plain = score(spec, Path("rows.jsonl"), Path("plain.jsonl"))
    expected = RolloutFile(Path("plain.jsonl")).rows()
    found = on_ray.score(spec, "rows.jsonl", f"local://{folder}/out")  # moved file by file: fsspec's address
    assert (folder / "out" / "_SUCCESS").exists()
    assert not (folder / "out.partial").exists()
    close([json.loads(line) for path in parts("out") for line in path.read_text().splitlines()], expected)
    assert Path("out.bad.jsonl").read_bytes() == Path("plain.jsonl.bad.jsonl").read_bytes()
    assert (found.scored, found.bad, found.groups) == (plain.scored, plain.bad, plain.groups)
    assert found.missing == plain.missing
    assert found.mean == pytest.approx(plain.mean)

    on_ray.score(spec, f"file://{folder}/rows.jsonl", f"file://{folder}/out.parquet")
    close([row for path in parts("out.parquet") for row in RolloutFile(path).rows()], expected)
    on_ray.score(spec, "out.parquet", "again", prefix="again/")
    again = [row for path in parts("again") for row in RolloutFile(path).rows()]
    assert [row["again/answer"] for row in again] == [row["scored/answer"] for row in expected]
    with pytest.raises(storage.BadPath, match="exists"):
        on_ray.score(spec, "rows.jsonl", "out")


def test_a_machine_that_ends_loses_nothing(cluster, folder):
    """It is ended while its worker measures: all rows have values, and what was kept is not asked again."""
    started, second, _ = cluster
    rows = [{"group": f"g{i % 5}", "completion": "ab"[i % 3 > 0], "gold": "a"} for i in range(160)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = rewardspec.loads(OWN)
    ended = threading.Event()

    def progress(done, of):
        if done >= 3 and not ended.is_set():
            ended.set()
            started.remove_node(second, allow_graceful=False)

    found = on_ray.score(spec, "rows.jsonl", "out", progress=progress, allow_python=["slowly"])
    assert ended.is_set()
    assert found.scored == len(rows)
    score(spec, Path("rows.jsonl"), Path("plain.jsonl"), allow_python=["slowly"])
    here = [json.loads(line) for path in parts("out") for line in path.read_text().splitlines()]
    close(here, RolloutFile(Path("plain.jsonl")).rows())


def test_an_interrupted_run_resumes(cluster, folder):
    rows = [{"group": f"g{i % 5}", "completion": "ab"[i % 3 > 0], "gold": "a", "tokens": i} for i in range(40)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = rewardspec.load("spec.yaml")

    def stop(done, of):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        on_ray.score(spec, "rows.jsonl", "out", progress=stop)
    assert not Path("out").exists()
    found = on_ray.score(spec, "rows.jsonl", "out")
    assert found.scored == 40
    assert found.resumed > 0


def test_what_functions_said_is_kept_beside_the_output(cluster, folder):
    """By all workers: what is asked follows the rows and the function, and where there was no answer if one says so."""
    home = cluster[2]
    spec = """
rewardspec: 1
components:
  own: {python: "slowly:known", values: [0, 1], missing: zero}
  answer: {use: qa.exact_match, with: {tag: none, answer: gold}}
advantage: grpo
"""
    rows = [{"group": i % 5, "completion": f"{'ab'[i % 3 > 0]} {i}", "gold": "a"} for i in range(40)]

    def asked(output, text=spec, **options):
        shutil.rmtree(home / "asked again", ignore_errors=True)
        Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        given = {"allow_python": ["slowly"], "cache": "kept", **options}
        found = on_ray.score(rewardspec.loads(text), "rows.jsonl", output, **given)
        here = [json.loads(line) for path in parts(output) for line in path.read_text().splitlines()]
        calls = [line for path in (home / "asked again").glob("*") for line in path.read_text().splitlines()]
        assert len(calls) == found.asked and found.asked + found.recalled == len(rows)
        assert [row["scored/own"] for row in here if row["scored/own"] is not None] == [
            float(row["completion"][0] == "a") for row in here if row["scored/own"] is not None
        ]
        return sorted(calls), [row["completion"] for row in here if row["scored/own"] is None]

    (home / "down").touch()
    assert asked("first") == (sorted(row["completion"] for row in rows), ["b 7", "b 17", "a 27", "b 37"])
    (home / "down").unlink()
    rows[3]["completion"], rows[4]["gold"] = "a 99", "b"
    rows.insert(0, rows.pop())  # all rows are in other pieces
    edited = spec.replace("answer: {", "right: {").replace("missing", "weight: 2, missing")
    assert asked("second", edited)[0] == ["a 99"]
    assert asked("third", only_failed=True) == (["a 27", "b 17", "b 37", "b 7"], [])
    with pytest.raises(storage.BadPath, match="is known from a cache"):
        asked("fourth", cache=None, only_failed=True)
    with pytest.raises(storage.BadPath, match="need folders of their own"):
        asked("fourth", cache="fourth.partial/kept")


def test_two_runs_into_one_output_are_noticed(cluster, folder):
    Path("rows.jsonl").write_text(json.dumps({"group": 1, "completion": "a", "gold": "a", "tokens": 1}) + "\n")
    with held(folder / "out"), pytest.raises(storage.BadPath, match=f"another run .process {os.getpid()}. is writing"):
        on_ray.score(rewardspec.load("spec.yaml"), "rows.jsonl", "out")


def test_an_object_store_of_s3(cluster, folder, monkeypatch):
    """Over HTTP, from a server of others: runs that end while they measure, and while they move files, go on."""
    pytest.importorskip("moto.server", reason="pip install 'moto[s3]' flask flask-cors")
    from moto.server import ThreadedMotoServer
    from pyarrow.fs import FileSelector, FileSystem

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = f"?region=us-east-1&scheme=http&allow_bucket_creation=true&endpoint_override={host}%3A{port}"

        def at(path):
            return f"s3://name:secret@bucket/{path}{options}"

        store, _ = FileSystem.from_uri(at("rows"))
        monkeypatch.setattr(on_ray, "TOGETHER", 4)  # several files of output
        rows = rows_of(60)
        written(rows)
        plain = score(rewardspec.load("spec.yaml"), Path("rows.jsonl"), Path("plain.jsonl"))
        store.create_dir("bucket/rows")
        with store.open_output_stream("bucket/rows/0.jsonl") as file:
            file.write(Path("rows.jsonl").read_bytes())

        def ends(done, of):
            if done == 3:
                raise KeyboardInterrupt

        def run(**more):
            return on_ray.score(rewardspec.load("spec.yaml"), at("rows/"), at("out"), cache=at("kept"), **more)

        def names(path):
            return sorted(info.base_name for info in store.get_file_info(FileSelector(path)) if info.is_file)

        with pytest.raises(KeyboardInterrupt):
            run(progress=ends)
        with monkeypatch.context() as patched:
            patched.setattr(on_ray, "publish", half_published)
            with pytest.raises(KeyboardInterrupt):
                run()
        assert names("bucket/out") == ["part-00000.jsonl"]
        found = run()
        assert found.resumed == len(rows) + 1  # its bad rows, too
        assert (found.scored, found.bad, found.groups) == (plain.scored, plain.bad, plain.groups)
        assert names("bucket/out") == ["_SUCCESS", "part-00000.jsonl", "part-00001.jsonl"]
        assert names("bucket") == ["out.bad.jsonl"]
        made = b"".join(store.open_input_stream(f"bucket/out/part-{i:05}.jsonl").read() for i in range(2))
        close([json.loads(line) for line in made.splitlines()], RolloutFile(Path("plain.jsonl")).rows())
        with pytest.raises(storage.BadPath, match="exists"):
            run()
    finally:
        server.stop()


def half_published(made, output, again):
    output.make_folder()
    name = made.names()[0]
    made.system.move((made / name).path, (output / name).path)
    raise KeyboardInterrupt


def test_a_dataset_gets_columns(cluster, folder):
    import ray

    rows = [{"group": f"g{i % 5}", "completion": "ab"[i % 3 > 0], "gold": "a", "tokens": i} for i in range(40)]
    Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    spec = rewardspec.load("spec.yaml")
    score(spec, Path("rows.jsonl"), Path("plain.jsonl"))
    found = on_ray.score_dataset(ray.data.from_items(rows, override_num_blocks=3), spec)
    close(found.dataset.take_all(), RolloutFile(Path("plain.jsonl")).rows())
    assert found.summary.groups == 5


@pytest.mark.usefixtures("surroundings")
def test_judges_have_one_limit_and_a_pool_of_their_own(cluster, folder, monkeypatch):
    """A light function, one with processes and a judge; the judge is asked what the others left, evenly in time."""
    monkeypatch.setattr(storage, "PIECE_BYTES", 300)
    with serving(lambda text, before: said(f"Score: {text[-1]}")) as server:
        judge = f"{{template: '{{completion}}', scores: [0, 1], model: m, cache: none, url: '{server.url}'}}"
        spec = rewardspec.loads(f"""
rewardspec: 1
components:
  answer: {{use: qa.exact_match, with: {{tag: none, answer: answer}}}}
  correct: {{use: math.correct}}
  clear: {{use: judge.rubric, with: {judge}, missing: ignore}}
advantage: grpo
""")
        rows = [{"group": f"g{i % 3}", "prompt": "p", "completion": f"{i} {i % 2}", "answer": "1"} for i in range(12)]
        rows[4].pop("answer")
        Path("rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = on_ray.score(spec, "rows.jsonl", "out", account=Account(Limits(requests=600), Budget(calls=11)))
        assert len(server.asked) == 11 and not found.stopped
        assert (found.judges["m"].calls, found.judges["m"].unsaid) == (11, 11)  # replies without `usage`
        assert server.times[-1] - server.times[0] > 0.9  # ten pauses of 0.1 s: a lower bound
        assert [row for row, _ in found.bad] == [5]
        here = [json.loads(line) for path in parts("out") for line in path.read_text().splitlines()]
        assert [row["scored/clear"] for row in here] == [int(row["completion"][-1]) for row in here]


def test_what_cannot_be_scored_is_said(cluster, folder):
    Path("rows.jsonl").write_text('{"completion": "a", "gold": "a", "tokens": 1}\n' * 40)
    spec = rewardspec.load("spec.yaml")
    with pytest.raises(BadLog, match="identifies groups"):
        on_ray.score(spec, "rows.jsonl", "out")
    assert not Path("out").exists()
