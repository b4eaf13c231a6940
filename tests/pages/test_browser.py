"""Pages in a browser: they show what was computed, every control works, and hostile texts are texts."""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from pages_by_hand import GROUPS, LONG, SIZE, SPECS, STEPS, by_hand, log
from typer.testing import CliRunner

import rewardspec
from rewardspec.cli import app
from rewardspec.pages.replay import replay_page

pytest.importorskip("bokeh")
pytestmark = pytest.mark.slow


def run(*arguments):
    done = CliRunner().invoke(app, [*map(str, arguments)])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a run, its page under two specs and the page of one of these, and the JSON of both."""
    folder = tmp_path_factory.mktemp("pages")
    rows = log(folder / "run.jsonl")
    for name, text in SPECS.items():
        (folder / f"{name}.yaml").write_text(text)
    specs = "--spec", folder / "a.yaml", "--spec", folder / "b.yaml"
    options = "--from", "table", "--group-by", "group", "--by", "source", "--format", "json"
    replayed = run("replay", folder / "run.jsonl", *specs, *options, "-o", folder / "two.html")
    report = run("report", folder / "a.yaml", "-g", "2,3", "--format", "json", "-o", folder / "spec.html")
    return folder, rows, replayed, report


def numbers(texts):
    return [None if text is None else float(text) for text in texts]


def test_the_numbers_shown_are_those_of_the_json_and_of_numpy(made, opened):
    folder, rows, replayed, _ = made
    page = opened(folder / "two.html")
    page.tab.click("#steps summary")
    for _ in range(3):
        if page.tab.is_visible("#steps .more"):
            page.tab.click("#steps .more")
    shown = {
        head: numbers(page.values("steps", head)) for head in ("step", "dead groups", "all wrong", "reward", "right")
    }
    steps = replayed["steps"]
    assert len(steps) == 2 * STEPS
    assert shown["step"] == [row["step"] for row in steps]
    for head, key in [("dead groups", "groups_without_signal"), ("all wrong", "all_wrong"), ("reward", "total")]:
        assert shown[head] == [row[key] for row in steps]
    hand = by_hand(rows)
    for i, row in enumerate(steps):
        if row["spec"] == "sums":
            own = hand[row["step"]]
            assert shown["dead groups"][i] == own["groups_without_signal"]
            assert shown["right"][i] == own["right"]
            assert shown["reward"][i] == pytest.approx(own["total"], rel=1e-6)
    tiles = page.tab.locator(".tile[data-key=groups_without_signal] [data-value]")
    means = numbers(tiles.nth(i).get_attribute("data-value") for i in range(2))
    assert means == [spec["means"]["groups_without_signal"] for spec in replayed["specs"]]
    assert means[0] == pytest.approx(np.mean([own["groups_without_signal"] for own in hand.values()]))
    assert page.tab.locator(".subject").inner_text().startswith(f"{STEPS * GROUPS * SIZE} rollouts")


def test_the_charts_draw_the_numbers_of_the_json(made, opened):
    folder, _, replayed, _ = made
    charts = {chart["title"]: chart["glyphs"] for chart in opened(folder / "two.html").charts()}
    under = {name: [row for row in replayed["steps"] if row["spec"] == name] for name in ("sums", "gated")}
    for title, name in [("A sums", "sums"), ("B gated", "gated")]:
        stacks = [data for kind, data in charts[f"Groups without signal: {title}"] if kind == "VBar"][:3]
        for data, key in zip(stacks, ("all_wrong", "tied", "all_right"), strict=True):
            assert data["x"] == [row["step"] for row in under[name]]
            heights = [top - low for top, low in zip(data["top"], data["bottom"], strict=True)]
            assert heights == pytest.approx([row[key] for row in under[name]])
    for title, key in [("Reward", "total"), ("Right answers", "right"), ("Spread of a group", "advantage_spread")]:
        lines = [data["y"] for kind, data in charts[title] if kind == "Line"]
        assert lines == [[row[key] for row in under[name]] for name in ("sums", "gated")]


def test_of_a_long_run_lines_also_show_the_mean_over_neighbours(made, opened):
    folder, *_ = made
    spec = rewardspec.loads(SPECS["a"].replace("name: sums", "name: <b>sums</b>"))
    found = rewardspec.replay(folder / "run.jsonl", spec, format="table", group_by="group")
    totals = np.random.default_rng(1).random(160)
    (under,) = found.specs
    steps = tuple(replace(under.steps[0], step=i, total=float(total)) for i, total in enumerate(totals))
    text = replay_page(replace(found, specs=(replace(under, steps=steps),)), [spec])
    (folder / "long.html").write_text(text, encoding="utf-8")
    page = opened(folder / "long.html")
    glyphs = next(chart["glyphs"] for chart in page.charts() if chart["title"] == "Reward")
    thin, thick = [data["y"] for kind, data in glyphs if kind == "Line"]
    assert thin == [*totals]
    assert thick[2:-2] == pytest.approx(np.convolve(totals, np.full(5, 1 / 5), "valid"))
    assert page.tab.locator(".chip").first.inner_text() == "<b>sums</b>" and page.tab.locator("b").count() == 0
    assert "the mean over 5 points" in page.tab.locator("figure.chart", has_text="Reward").first.inner_text()


def test_of_very_many_steps_neighbours_are_one_point_with_their_range(made, opened):
    folder, *_ = made
    specs = [rewardspec.loads(SPECS[name]) for name in "ab"]
    found = rewardspec.replay(folder / "run.jsonl", specs, format="table", group_by="group")
    totals = np.random.default_rng(1).random(50_000)
    totals[31_234] = 7.0  # which no mean would show
    under = found.specs[0].steps[0]
    steps = tuple(replace(under, step=i, total=float(total)) for i, total in enumerate(totals))
    text = replay_page(replace(found, specs=tuple(replace(one, steps=steps) for one in found.specs)), specs)
    assert len(text) < 5_000_000
    (folder / "longest.html").write_text(text, encoding="utf-8")
    page = opened(folder / "longest.html")
    glyphs = next(chart["glyphs"] for chart in page.charts() if chart["title"] == "Reward")
    band, thin = (next(data for kind, data in glyphs if kind == of) for of in ("VArea", "Line"))
    parts = totals.reshape(1000, 50)
    assert thin["y"] == pytest.approx(parts.mean(1)) and thin["x"] == [*range(0, 50_000, 50)]
    assert band["y1"] == [*parts.min(1)] and band["y2"] == [*parts.max(1)] and max(band["y2"]) == 7
    said = page.tab.locator("#steps").inner_text()
    assert "Each point is 50 steps of 50,000: their mean over groups, on a band from the least to the greatest" in said
    assert "50,000 steps, read as" in page.tab.locator(".subject").inner_text()
    page.tab.click("#steps summary")
    assert page.tab.locator("table[aria-label=steps] tbody tr").first.inner_text().split("\t")[1] == "0 to 49"
    assert numbers(page.values("steps", "reward"))[:50] == pytest.approx(parts.mean(1)[:50])


def test_the_pointer_reads_the_numbers_and_a_drag_zooms_all_charts(made, opened):
    folder, _, replayed, _ = made
    page = opened(folder / "two.html")
    whole = {tuple(chart["range"]) for chart in page.charts()}
    assert len(whole) == 1
    canvas = page.tab.locator("figure.chart", has_text="Right answers").locator(".canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    told = page.tab.locator(".bk-Tooltip .bk-tooltip-row-value")

    def is_told():
        page.tab.mouse.move(x - 5, y)
        page.tab.mouse.move(x, y)
        return told.count() == 3 and told.nth(2).is_visible()

    page.until(is_told)
    step, *values = told.all_inner_texts()
    assert values == [f"{100 * row['right']:.1f}%" for row in replayed["steps"] if row["step"] == int(step)]
    page.tab.mouse.down()
    page.tab.mouse.move(x + 60, y, steps=4)
    page.tab.mouse.move(x + 120, y, steps=4)
    page.tab.mouse.up()
    page.until(lambda: {tuple(chart["range"]) for chart in page.charts()} != whole)
    (zoomed,) = {tuple(chart["range"]) for chart in page.charts()}
    (low, high), (start, end) = whole.copy().pop(), zoomed
    assert low < start < end < high and end - start < (high - low) / 2
    page.tab.click("button[data-choice=dark]")  # what was zoomed stays so
    page.until(lambda: page.tab.locator("html[data-theme=dark]").count() == 1)
    assert {tuple(chart["range"]) for chart in page.charts()} == {zoomed}
    page.tab.click("#steps .zoom-out")
    page.until(lambda: {tuple(chart["range"]) for chart in page.charts()} == whole)


def test_tables_sort_by_any_column_both_ways_and_show_long_ones_in_parts(made, opened):
    folder, _, replayed, _ = made
    page = opened(folder / "two.html")
    page.tab.click("#steps summary")
    table = page.tab.locator('table[aria-label="steps"]')
    assert len(page.values("steps", "reward")) == 50
    assert f"50 of {2 * STEPS} rows" in page.tab.locator("#steps .more").inner_text()
    head = table.locator("th", has_text=re.compile("^reward$"))
    for direction in ("descending", "ascending"):
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == direction
        wanted = sorted((row["total"] for row in replayed["steps"]), reverse=direction == "descending")
        assert numbers(page.values("steps", "reward")) == wanted[:50]
    table.locator("th", has_text="spec").locator("button").click()
    assert head.get_attribute("aria-sort") == "none"
    page.tab.locator("#steps .more").click()
    assert len(page.values("steps", "step")) == 2 * STEPS and page.tab.locator("#steps .more").is_hidden()
    page.tab.locator('table[aria-label="components"] th', has_text="component").locator("button").click()
    assert page.values("components", "component") == sorted(row["name"] for row in replayed["components"])


def escaped(text):
    """As Python writes what cannot be printed; line breaks and tabs are themselves."""
    return "".join(c if c in "\n\t" or c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def test_rollouts_unfold_with_their_text_whatever_it_is(made, opened):
    folder, rows, replayed, _ = made
    page = opened(folder / "two.html")
    before = page.tab.evaluate("[document.title, document.scripts.length, document.images.length]")
    page.tab.evaluate("document.querySelectorAll('details.group').forEach((one) => { one.open = true; })")
    page.tab.wait_for_selector("details.rollout")
    page.tab.evaluate("document.querySelectorAll('details.rollout').forEach((one) => { one.open = true; })")
    page.tab.wait_for_selector("details.rollout .text.completion")
    found = page.tab.evaluate(
        """() => [...document.querySelectorAll("details.rollout")].map((one) => ({
            place: one.querySelector(".inside > .about").textContent,
            advantage: one.querySelector(".advantage [data-value]").dataset.value,
            texts: [...one.querySelectorAll(".completion pre")].map((text) => text.textContent),
            cut: one.querySelector(".completion .cut")?.textContent ?? "",
        }))"""
    )
    told = [row for remark in replayed["audit"] for row in remark["rollouts"]] + replayed["difference"]["rollouts"]
    assert len(found) == len(told) > 20
    advantages = {(f"{row['file']}:{row['row']}", row["advantage"]) for row in told}
    assert {(one["place"].partition(", ")[2], float(one["advantage"])) for one in found} == advantages
    for one in found:
        text = rows[int(one["place"].rpartition(":")[2]) - 1]["completion"]
        if text == LONG:
            begin, end = one["texts"]
            assert LONG.startswith(begin) and LONG.endswith(end)
            left = len(LONG) - len(begin) - len(end)
            assert one["cut"] == f"{left:,} characters of {len(LONG):,} are left out here"
        else:
            assert one["texts"] == [escaped(text)] and not one["cut"]
    whole = "\n".join(text for one in found for text in one["texts"])
    assert "<script>document.title" in whole and "</script><!--" in whole
    assert "\\u202e" in whole and "\\x00" in whole and "\\ud800" in whole
    assert any(one["cut"] for one in found)
    assert page.tab.evaluate("[document.title, document.scripts.length, document.images.length]") == before


def test_the_policy_lets_no_other_script_run(made, opened):
    folder, *_ = made
    page = opened(folder / "two.html")
    page.tab.evaluate(
        """() => {
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            document.body.append(script);
            const image = document.createElement("div");
            image.innerHTML = "<img src='data:,' onerror=\\"document.title = 'owned'\\">";
            document.body.append(image);
        }"""
    )
    page.until(lambda: sum("Content Security Policy" in text for text in page.wrong) == 2)
    assert page.tab.title() != "owned"
    page.wrong.clear()  # the refusals, each a line


@pytest.mark.parametrize("name", ["two", "spec"])
def test_colours_follow_the_system_until_the_switch_is_used(made, opened, name):
    folder, *_ = made
    page = opened(folder / f"{name}.html", color_scheme="dark")
    ground = "getComputedStyle(document.body).backgroundColor"
    paper = "Bokeh.documents.at(-1).roots()[0].background_fill_color"

    def brightness(colours):
        return sum(map(int, colours.strip("rgba()").split(",")[:3]))

    assert brightness(page.tab.evaluate(ground)) < 150
    dark = page.tab.evaluate(f"JSON.stringify({paper})")
    page.tab.click("button[data-choice=light]")
    assert brightness(page.tab.evaluate(ground)) > 600
    assert page.tab.evaluate(f"JSON.stringify({paper})") != dark
    assert page.tab.get_attribute("button[data-choice=light]", "aria-pressed") == "true"
    page.tab.click("button[data-choice=auto]")
    assert brightness(page.tab.evaluate(ground)) < 150
    page.tab.emulate_media(color_scheme="light")
    page.until(lambda: brightness(page.tab.evaluate(ground)) > 600)


@pytest.mark.parametrize("name", ["two", "spec"])
def test_nothing_is_wider_than_a_narrow_window(made, opened, name):
    folder, *_ = made
    page = opened(folder / f"{name}.html", viewport={"width": 380, "height": 800})
    unfold = "document.querySelectorAll('details').forEach((one) => { one.open = true; })"
    page.tab.evaluate(unfold)
    if name == "two":  # groups are filled when they are unfolded
        page.tab.wait_for_selector("details.rollout", state="attached")
        page.tab.evaluate(unfold)
        page.tab.wait_for_selector("details.rollout .text.completion", state="attached")
    assert page.tab.evaluate("document.documentElement.scrollWidth") <= 380
    for link in page.tab.locator("nav a").all():
        assert page.tab.locator(link.get_attribute("href")).count() == 1


def test_the_page_of_a_spec_shows_its_numbers(made, opened):
    folder, _, _, report = made
    page = opened(folder / "spec.html")
    counts = report["counts"]
    assert numbers(page.values("distinct groups", "reward groups")) == [row["reward_groups"] for row in counts]
    assert numbers(page.values("distinct groups", "advantage groups")) == [row["advantage_groups"] for row in counts]
    assert numbers(page.values("distinct groups", "dead groups")) == [
        row["signal"]["groups_without_signal"] for row in counts
    ]
    assert numbers(page.values("earnings", "at most")) == [1, 2]
    shares = counts[-1]["signal"]["shares"]
    assert numbers(page.values("earnings", "share")) == [shares["correct"], shares["long"]]
    (verdict,) = report["verdicts"]
    group = verdict["counterexample"]
    name = "a group that breaks right above wrong"
    assert numbers(page.values(name, "advantage")) == group["advantages"]
    assert numbers(page.values(name, "correct")) == group["columns"]["correct"]
    charts = {chart["title"]: chart["glyphs"] for chart in page.charts()}
    lines = [data["y"] for kind, data in charts["Distinct groups"] if kind == "Line"]
    assert lines == [[row["reward_groups"] for row in counts], [row["advantage_groups"] for row in counts]]
    (line,) = [data for kind, data in charts["Dead groups by success rate"] if kind == "Line"]
    assert line["x"] == [row["rate"] for row in report["swept"]]
    assert line["y"] == [row["groups_without_signal"] for row in report["swept"]]
    codes = [one.get_attribute("data-code") for one in page.tab.locator("#findings article").all()]
    assert codes == [one["code"] for one in report["findings"]]
    page.tab.locator("#says summary").first.click()
    assert page.tab.locator("#says .text.spec pre").text_content() == SPECS["a"]
    page.tab.locator("#findings summary", has_text="Why").first.click()
    assert page.tab.locator("#findings details[open] pre").first.is_visible()


def test_a_run_of_one_step_has_a_page_and_suggestions_are_on_it(made, opened, tmp_path):
    """Right answers and long wrong ones earn the same: groups are tied, until less is paid for length."""
    folder, *_ = made
    rows = [{"step": 0, "group": i // 4, "correct": i % 2, "long": 0 if i % 2 else 0.5} for i in range(16)]
    (tmp_path / "one.jsonl").write_text("\n".join(map(json.dumps, rows)))
    spec = ("--spec", folder / "a.yaml", "--from", "table", "--group-by", "group", "--format", "json")
    found = run("replay", tmp_path / "one.jsonl", *spec, "--suggest", "-o", tmp_path / "one.html")["suggestions"]
    page = opened(tmp_path / "one.html")
    assert len(page.charts()) >= 4
    assert found and page.values("suggestions", "change") == [one["change"] for one in found]
    assert numbers(page.values("suggestions", "now")) == [1 for _ in found]
    assert numbers(page.values("suggestions", "dead groups")) == [one["groups_without_signal"] for one in found]
